"""A load generator that speaks the real protocol, and a gateway's figures under its load.

One process simulates hundreds of agents, another clients with thousands of jobs in flight; see
benchmarks/README.md.
"""
