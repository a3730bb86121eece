"""Reservations in the books."""
