"""Graphs as Dask writes them: keys and tasks, submitted as calls that wait for others."""
