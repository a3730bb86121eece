"""Engines with workers of their own: the process that feeds one."""
