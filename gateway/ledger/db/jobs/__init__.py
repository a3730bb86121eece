"""Jobs in the books."""
