"""A pool that grows and shrinks on a simulated cloud: what it costs, and how long it takes."""
