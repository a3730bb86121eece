"""Stores that keep the bytes of objects outside of memory."""
