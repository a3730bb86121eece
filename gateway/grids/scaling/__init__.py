"""Pools that grow and shrink: demand, orders to the grid, pilots."""
