"""Objects at a site: who holds them, the process that keeps their bytes, and stores."""
