"""Drains that operators have ordered, in the books."""
