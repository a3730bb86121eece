"""Alerts in the books."""
