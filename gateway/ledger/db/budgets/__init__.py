"""Shares of budgets in the books."""
