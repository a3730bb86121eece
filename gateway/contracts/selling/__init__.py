"""Contracts that this site sells: adverts, quotes, renewals, endings."""
