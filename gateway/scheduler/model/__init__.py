"""Events, effects and the broker's data: jobs, assignments, workers, budgets."""
