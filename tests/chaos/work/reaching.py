"""How the processes of a run come to their gateway, which may be away for a while."""

import time

import cloudpickle

from federation import Client
from federation.errors import GatewayUnreachable
from tests.chaos.work import tasks

PATIENCE_S = 300.0
LOOK_S = 0.5


def connected(address: str, user: str) -> Client:
    """A client of a gateway, as soon as one listens there. Raises GatewayUnreachable in the end."""
    cloudpickle.register_pickle_by_value(tasks)  # slots do not have this package
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return Client(address, connect_timeout_s=PATIENCE_S, user=user)
        except GatewayUnreachable:
            if time.monotonic() > until_s:
                raise
            time.sleep(LOOK_S)
