"""`python -m equiflock` is `equiflock`."""

from equiflock.cli import main

main()
