"""Waits in event loops, asyncio's and trio's, for what other threads end."""
