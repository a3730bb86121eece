"""The worker: an agent on a host, and one child process for each of its slots."""
