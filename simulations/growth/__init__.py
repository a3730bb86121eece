"""A pool that grows and shrinks on a simulated cloud: its cost, and how long it takes."""
