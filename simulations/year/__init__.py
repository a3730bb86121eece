"""A year in the pretend world: three sites, real prices, carbon and work. See README.md."""
