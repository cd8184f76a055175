"""Runs independent jobs in processes on this machine, or on the workers of a Dask scheduler."""
