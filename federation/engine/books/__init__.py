"""The books of a client: its unfinished jobs and requests. Pure."""
