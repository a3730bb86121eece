"""Which jobs go to other sites, when that is planned, and how often."""
