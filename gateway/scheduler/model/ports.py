"""The ports of a site, by which the scheduler's clients and workers are reached. Pure."""

from enum import StrEnum


class PortKind(StrEnum):
    """Who is at the other end.

    A contract with another site is a client of its seller and a worker of its buyer: both are
    reached by PEER. Handles are numbers from one source for the whole site, whatever the port.
    """

    CLIENT = "client"
    WORKER = "worker"
    PEER = "peer"
