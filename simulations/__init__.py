"""The simulated world: many members, one clock, one seed. README.md describes its design."""
