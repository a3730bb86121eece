"""The engines of one client: at the nearest gateway, and at those that have detached jobs of it.

All views of a client share a ClientEngines. It reads which gateways are meant, and with which
credentials; federation.engine.dialling finds, measures and dials them.
"""

import atexit
import contextlib
import os
import random
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from federation.address import (
    GATEWAY_VARIABLE,
    TOKEN_VARIABLE,
    check_bearer,
    is_service,
    login,
)
from federation.address import resolve as resolve_address
from federation.clocks import MonoS
from federation.engine.books.streams import Stream
from federation.engine.closing import drop, wind_up_at_exit
from federation.engine.dialling.client_file import ClientFile, read_client_file
from federation.engine.dialling.gateways import Itinerary
from federation.engine.dialling.nearest import GatewayChoice, choose, measure
from federation.engine.dialling.resolver import find_candidates
from federation.engine.dialling.settings import ConnectionSettings, Holder
from federation.engine.engine import ClientEngine
from federation.errors import GridError
from federation.sessions.task_passes import is_pass
from federation.transport import TlsSettings

HOMES_MAX: Final = 10_000  # detached jobs of which a client remembers the gateway
NEARER_S: Final = 30.0  # how often a nearer gateway is looked for, after a failover
_engines: "weakref.WeakSet[ClientEngine]" = weakref.WeakSet()


class ClientEngines:
    """The engines of a client; the first is connected on first use.

    Attributes:
        settings: the connection settings of the client.
        connected: the engine of the client's own gateway; None before the first use.
        choice: the gateways that were measured; None before the first use.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self.connected: ClientEngine | None = None
        self.choice: GatewayChoice | None = None
        self._beside: dict[str, ClientEngine] = {}  # by address: gateways we have left
        self._homes: dict[str, str] = {}  # detached job → its gateway's address
        self._certificate_names: Mapping[str, str] = {}  # by address
        self._lock = threading.Lock()

    @property
    def own(self) -> ClientEngine:
        """The engine of the client's own gateway; a client that was unpickled connects here."""
        engine = self.connected
        return engine if engine is not None else self.connect()

    def nearest(self) -> ClientEngine:
        """Return the engine for new work: at a nearer gateway, if one answers again.

        Nothing moves while work is under way: it would all be sent again.
        """
        engine, choice = self.own, self.choice
        at_s = MonoS(time.monotonic())
        if choice is None or at_s - choice.measured_at_s < NEARER_S:
            return engine
        nearer = choice.better(engine.address)
        if nearer and not engine.is_idle:  # which looks at all jobs: not at each submit
            return engine
        self.choice = replace(choice, measured_at_s=at_s)
        if not nearer or not measure(nearer):
            return engine
        try:
            there = self.connect()
        except GridError:  # it answers, and refuses access
            return engine
        engine.close()
        return there

    def at(self, gateway: str, within_s: float | None = None) -> ClientEngine:
        """Return the engine at a gateway: the client's own while there, else a separate one."""
        engine = self.own
        if gateway in ("", engine.address):
            return engine
        connect_timeout_s = self.settings.connect_timeout_s
        if within_s is not None:
            connect_timeout_s = min(connect_timeout_s, within_s)
        beside = self._beside
        with self._lock:
            known = beside.get(gateway)
            if known is None or known.closed or known.error is not None:
                if known is not None:
                    known.close()
                itinerary = Itinerary(
                    (gateway,),
                    give_up_s=self.settings.connect_timeout_s,
                    random=random.Random(),  # noqa: S311 - it spreads clients, and hides nothing
                    follows=False,
                )
                origin = "the gateway of a job"
                known = beside[gateway] = self._start(itinerary, origin, connect_timeout_s)
            return known

    def remember_home(self, stream: Stream) -> None:
        """Remember the gateway that has a detached job."""
        homes = self._homes
        homes[stream.id] = stream.home
        while len(homes) > HOMES_MAX:
            del homes[next(iter(homes))]

    def home_of(self, job_id: str) -> str:
        """Return the address of the gateway that has a job, as far as this client knows.

        An empty text is the gateway of the client, wherever it goes.
        """
        engine = self.own
        here = "" if engine.has_attached(job_id) else engine.address
        return self._homes.get(job_id, here)

    def close_beside(self) -> None:
        """Close the engines at other gateways than the client's own."""
        for beside in list(self._beside.values()):
            beside.close()

    def connect(self) -> ClientEngine:
        """Connect to the nearest of the gateways that are named.

        Raises GatewayUnreachable, SessionRefused, AddressError.
        """
        settings = self.settings
        file = self._file()
        addresses, origin = resolve_address(settings.address)
        if file is not None:
            addresses, _ = resolve_address(file.gateways)
            origin = f"from {file.path}"
        if self._holder.bears_token:
            for each in addresses:
                check_bearer(each)
        found = find_candidates(addresses, settings.connect_timeout_s)
        services = list(filter(is_service, addresses))
        if services:
            origin = f"{', '.join(services)}, {origin}"
        self._certificate_names = found.certificate_names
        self.choice = choose(found.groups, origin)
        itinerary = Itinerary(
            self.choice.addresses,
            failover_s=settings.failover_s,
            give_up_s=settings.give_up_s,
            random=random.Random(),  # noqa: S311 - as above
        )
        engine = self.connected = self._start(itinerary, origin, settings.connect_timeout_s)
        return engine

    def _file(self) -> ClientFile | None:
        """Return the client file, where nothing else names a gateway."""
        named = os.environ.get(GATEWAY_VARIABLE, "").strip(" ,")
        if self.settings.address is not None or named:
            return None
        return read_client_file()

    @property
    def _holder(self) -> Holder:
        settings, environ = self.settings, os.environ
        token = environ.get(TOKEN_VARIABLE, "") if settings.token is None else settings.token
        if not token and settings.token is None and settings.secret is None:
            file = self._file()
            token = "" if file is None else file.token
        if settings.token is None and settings.secret is not None and is_pass(token):
            token = ""  # a task proves itself by the secret that it names, not by its pass
        return Holder(
            settings.user or login(),
            environ.get("GRIDFED_SECRET", "") if settings.secret is None else settings.secret,
            token,
            settings.trusted_sites,
        )

    @property
    def _tls(self) -> TlsSettings:
        """The settings given, by the environment, and of the client file, in this order."""
        found = (self.settings.tls or TlsSettings()).or_environment()
        file = self._file()
        return found if file is None else found.or_else(file.tls)

    def _start(self, itinerary: Itinerary, origin: str, connect_timeout_s: float) -> ClientEngine:
        engine = ClientEngine(
            itinerary,
            origin,
            holder=self._holder,
            tls=self._tls,
            connect_timeout_s=connect_timeout_s,
            waits_refused=self.settings.waits_refused,
            certificate_names=self._certificate_names,
        )
        _engines.add(engine)
        return engine


def _wind_up_engines() -> None:
    """Wait for submitted tasks, as executors do, and end the sessions; at once after a Ctrl-C."""
    ended_by = getattr(sys, "last_type", None)
    is_script = not (sys.flags.interactive or hasattr(sys, "ps1"))
    waits = not (is_script and ended_by is not None and issubclass(ended_by, KeyboardInterrupt))
    for engine in list(_engines):
        if waits:
            waits = wind_up_at_exit(engine)
        elif not (engine.closed or engine.is_foreign):
            drop(engine, "interrupted")


def _register_at_exit() -> None:
    # As concurrent.futures does: threads can't be started any more when functions of `atexit` run.
    # Those functions are for engines that connect after that point.
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        with contextlib.suppress(RuntimeError):  # imported while the interpreter ends
            register(_wind_up_engines)
    atexit.register(_wind_up_engines)


_register_at_exit()
