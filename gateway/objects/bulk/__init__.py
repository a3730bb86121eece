"""The bulk port of a site: the process that carries objects to and from other hosts."""
