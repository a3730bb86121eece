"""Calls that a task waits for, which it runs itself where they do not begin elsewhere."""
