"""Which waiting task goes to which worker."""
