"""Infrastructure: kernel compilation, threads, random streams, files, checks of input."""
