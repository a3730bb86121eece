"""Whole jobs of a site: begun, closed, left by their clients, over. Pure."""
