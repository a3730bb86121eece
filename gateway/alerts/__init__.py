"""Alerts: the watched conditions, and the actions that notify people."""
