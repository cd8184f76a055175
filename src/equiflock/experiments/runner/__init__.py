"""Execution of independent jobs in local processes or on the workers of a Dask scheduler."""
