"""Frames become events, effects become I/O, and a restart is recovered from."""
