"""Budgets: what is paid from which purse, here and at other sites."""
