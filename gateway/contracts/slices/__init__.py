"""Slices of budgets that several sites spend from: lent and held."""
