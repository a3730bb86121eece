"""The pretend world: many members, one clock, one seed."""
