"""Graphs: calls that wait for the results of other calls, and when each may begin."""
