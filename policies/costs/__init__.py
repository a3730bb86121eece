"""Prices, budgets, emissions, and when people are told of them."""
