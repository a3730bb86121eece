"""Usage and capacity in the books."""
