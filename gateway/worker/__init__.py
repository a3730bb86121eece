"""The worker: an agent on a host, and the slots that it keeps there."""
