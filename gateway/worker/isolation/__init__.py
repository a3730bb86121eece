"""What holds a slot in: limits, cgroups, sandboxes, containers, packages."""
