"""A load generator that speaks the real protocol, and what a gateway does under its load.

One process plays hundreds of agents, another clients with thousands of jobs in flight; see
benchmarks/README.md.
"""
