"""The work of a run: clients, probes and the tasks that leave evidence."""
