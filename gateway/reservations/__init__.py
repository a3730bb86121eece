"""Slots that are reserved: here, and between sites."""
