"""Checks of a configuration against the world around it: files, names, grids, dates."""
