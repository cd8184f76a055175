"""What everything else stands on: compiling, threads, random streams, files, checks."""
