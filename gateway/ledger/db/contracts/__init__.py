"""Contracts and deliveries in the books."""
