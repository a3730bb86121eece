"""One site's jobs: events in, effects out. Pure; broker.py is the entry."""
