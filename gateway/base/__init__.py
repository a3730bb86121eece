"""Helpers that every part of the gateway may use."""
