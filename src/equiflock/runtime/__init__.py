"""What all other parts use: compiled kernels, threads, random streams, files, checks of input."""
