"""A simulated year: three sites, real prices, carbon and work. See README.md."""
