"""The parts of a world: clock, network, hosts, faults, invariants."""
