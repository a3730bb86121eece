"""The rules of a site over time, changed while its gateway runs."""
