"""The ports of a site, by which the scheduler's clients and workers are reached. Pure."""

from enum import StrEnum


class PortKind(StrEnum):
    """The kinds of ports.

    A contract with another site is a client of its seller and a worker of its buyer: both are
    reached by PEER. The handles of a site come from one source, for all ports.
    """

    CLIENT = "client"
    WORKER = "worker"
    PEER = "peer"
