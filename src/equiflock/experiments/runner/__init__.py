"""Jobs that know nothing of each other, run in processes here or by Dask elsewhere."""
