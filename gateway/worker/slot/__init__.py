"""The slot's process and its agent's end of it."""
