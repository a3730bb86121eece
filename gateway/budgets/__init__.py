"""Budgets: the purses that pay for work, here and at other sites."""
