"""The grids that a gateway can wrap: a module each."""
