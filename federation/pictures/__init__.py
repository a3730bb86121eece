"""Pictures of work for people."""
