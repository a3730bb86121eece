"""How tasks end: results, failures, lost workers, cancels, charges."""
