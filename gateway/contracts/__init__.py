"""Buying from and selling to other sites. Pure; exchange.py is the entry."""
