"""A site's GatewayServer without its loops: its messages and requests go nowhere."""

from types import SimpleNamespace
from typing import Any

from gateway.config.site import SiteConfig, check
from gateway.runtime.environment import RuntimeEnvironment
from gateway.runtime.making import Seat
from gateway.runtime.server import GatewayServer
from simulations.world.memory.disk import Disk
from simulations.world.memory.store import MemoryStore


def make_server(config: SiteConfig, disk: Disk, utc_s: float, **seat: Any) -> GatewayServer:
    """A gateway server on a disk, at a moment; `seat`: the unusual fields of its Seat."""
    return GatewayServer(
        check(config, 0.0),
        SimpleNamespace(),
        MemoryStore(disk),
        runtime=RuntimeEnvironment(mono_s=lambda: 100.0, utc_s=lambda: utc_s),
        seat=Seat(boot=2, **seat),
        on_stored=lambda call: call(),
        ask=lambda *_: None,
        say=lambda _: None,
        on_unfinished=lambda: None,
    )
