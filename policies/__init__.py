"""Preferences: pure judgement that may differ from site to site."""
