"""Benchmarks of objects and graphs beside others, and their targets."""
