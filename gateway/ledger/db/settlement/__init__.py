"""Disputes, statements and payments in the books."""
