"""`python -m equiflock.cli` is `equiflock`."""

from equiflock.cli import main

main()
