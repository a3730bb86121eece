"""The table [limits]: what clients, workers and their sessions may use, and for how long."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """The listener's parameters and limits for its guests.

    `grace_s` is how long a session outlives its pipe. For a worker it is the lease, after which it
    has stopped its tasks itself; these are placed elsewhere a little later, by the formula of
    leases between sites (contracts.grantor_until_s). federation.sessions.hearing defines when a
    hung peer is noticed. A guest that sends more frames than `frames_per_s` is answered, and so can
    continue, only at that rate: no frame is lost. `handshakes_per_s` applies to each host
    separately. A rate of 0 is no limit.
    """

    site: str = "local"
    boot: int = 0
    secret: str = ""
    heartbeat_s: float = 2.0
    grace_s: float = 10.0
    tasks_max: int = 200_000
    bytes_max: int = 256 << 20
    message_bytes_max: int = 64 << 20
    function_wait_s: float = 60.0
    jobs_max: int = 50_000
    function_bytes_max: int = 512 << 20
    kept_bytes_max: int = 1 << 30
    losses_max: int = 5
    store_wait_s: float = 30.0
    guests_max: int = 4096
    questions_max: int = 256  # unanswered ones of one guest
    strangers_max: int = 512  # pipes that have not been admitted yet, …
    host_strangers_max: int = 256  # … and of one host: see gateway.sessions.half_open
    handshakes_per_s: float = 0.0  # of one host
    frames_per_s: float = 0.0  # of one guest
