"""Contracts that this site buys: quotes, deliveries, back-off of sellers."""
