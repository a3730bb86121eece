"""Slots that are reserved: at one pool, and at several sites or none."""
