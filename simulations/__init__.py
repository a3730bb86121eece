"""The pretend world: many members, one clock, one seed. README.md says how it is built."""
