"""The rules of a site over time in the books."""
