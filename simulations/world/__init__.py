"""What a world is made of: clock, network, hosts, faults, invariants."""
