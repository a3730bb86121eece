"""Alerts: what is watched, and how people are told."""
