"""Where a job goes and when: filters, estimates, ranking, splitting."""
