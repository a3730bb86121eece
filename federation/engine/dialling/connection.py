"""A client's connection to its gateways: one pipe at a time, dialled, watched and replaced.

It has neither lock nor thread: the leader of the engine (federation.engine.engine) calls it, under
the engine's lock. federation.engine.dialling.gateways decides which gateway is dialled, and when.
"""

import logging
import math
import os
import select
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from federation.address import USUAL_ORIGIN, AddressError, check_bearer
from federation.clocks import MonoS
from federation.engine.dialling.gateways import DialGateway, GatewayLoss, GiveUp, Itinerary
from federation.sessions.handshake import Dialogue
from federation.sessions.nng import ANSWERS_NOT, NngLink, explain_silence, is_refused
from federation.sessions.waking import Waker
from federation.transport import TlsSettings

_log: Final = logging.getLogger("gridfed")


class Connection:
    """The connection under a dialogue, over as many pipes and gateways as it takes.

    With `bears_token`, no gateway is dialled where others could read the hello. `certificate_names`
    are the names that certificates must have in place of the host, by address.

    Attributes:
        link: the pipe; None between two attempts.
    """

    def __init__(
        self,
        itinerary: Itinerary,
        dialogue: Dialogue,
        tls: TlsSettings,
        *,
        bears_token: bool = False,
        certificate_names: Mapping[str, str] | None = None,
    ) -> None:
        self.itinerary = itinerary
        self._certificate_names = certificate_names or {}
        self._bears_token = bears_token
        self._dialogue = dialogue
        self._tls = tls
        self.link: NngLink | None = None
        self._greeted = False
        self._redial_at_s = MonoS(0.0)
        self._lost_address = ""  # of the gateway that was reported as gone
        self._waker = Waker()

    def wake(self) -> None:
        """End the current `wait`, in any thread. Thread-safe."""
        self._waker.wake()

    def wait(self, at_most_s: float, lock: threading.RLock) -> None:
        """Return when something has arrived or is due. `lock` is released during the wait."""
        poll = select.poll()
        poll.register(self._waker.fileno(), select.POLLIN)
        if self.link is not None:
            poll.register(self.link.fileno(), select.POLLIN)
        else:
            at_most_s = min(at_most_s, max(0.0, self._redial_at_s - MonoS(time.monotonic())))
        wait_s = min(at_most_s, self._dialogue.acknowledge_s)
        lock.release()
        try:
            ready = poll.poll(wait_s * 1000)
        finally:
            lock.acquire()
        if any(descriptor == self._waker.fileno() for descriptor, _ in ready):
            self._waker.clear()

    # --- pipes ---------------------------------------------------------------------------------

    def certificate_name(self, address: str) -> str:
        """Return the name that the certificate there must have; empty: the host's."""
        return self._tls.server_name or self._certificate_names.get(address, "")

    @property
    def is_missing(self) -> bool:
        """Whether the gateways that the user named would have sockets here, and none has."""
        return all(
            address.startswith("ipc://") and not os.path.exists(address.removeprefix("ipc://"))
            for address in self.itinerary.own
        )

    @property
    def is_refused(self) -> bool:
        """Whether nothing listens at any of the addresses that the user named. Tries each."""
        return all(map(is_refused, self.itinerary.own))

    def explain_silence(self, origin: str) -> str:
        """Return why none of the gateways that the user named answers, and what to do.

        `origin` is the source of their addresses.
        """
        own = self.itinerary.own
        names = map(self.certificate_name, own)
        why = "; ".join(dict.fromkeys(map(explain_silence, own, names)))
        if ANSWERS_NOT in why:
            todo = "Name"
        elif origin == USUAL_ORIGIN:
            todo = "Start one with `gridfed up`, or name"
        else:  # the user named it: it runs elsewhere, or is to
            todo = "Check the address and whether it runs, or name"
        return (
            f"no gateway answers at {' or '.join(own)} ({origin}): {why}. {todo} "
            "another with Client(address), --gateway or $GRIDFED_GATEWAY."
        )

    def dial(self) -> None:
        """Dial the itinerary's current gateway. Raises AddressError."""
        if self._bears_token:
            check_bearer(self.itinerary.address)
        once = self.itinerary.has_others  # otherwise keep dialling this one
        address = self.itinerary.address
        tls = replace(self._tls, server_name=self.certificate_name(address) or None)
        self.link = NngLink(address, self.wake, tls, once=once)
        self._greeted = False

    def redial(self, mono_s: MonoS) -> GatewayLoss | None:
        """Dial when it is time to; return a GatewayLoss if the address can't be dialled."""
        if mono_s < self._redial_at_s:
            return None
        try:
            self.dial()
        except AddressError as error:
            _log.warning("%s", error)
            return GatewayLoss.UNWILLING
        return None

    def greet(self, link: NngLink, mono_s: MonoS) -> None:
        """Send the hello when the pipe has come up."""
        if link.is_up and not self._greeted:
            self._greeted = True
            self._dialogue.connected(mono_s)

    def find_loss(self, link: NngLink, mono_s: MonoS) -> tuple[GatewayLoss, MonoS] | None:
        """Return why the pipe must be given up, and since when the gateway is lost, or None."""
        if link.is_lost:
            return (GatewayLoss.ABSENT if link.is_absent else GatewayLoss.GONE), mono_s
        if self.itinerary.is_overdue(mono_s):
            return GatewayLoss.GONE, mono_s
        if self._greeted and self._dialogue.is_silent(mono_s):
            return GatewayLoss.GONE, self._dialogue.heard_at_s
        return None

    def hang_up(self, loss: GatewayLoss, mono_s: MonoS, since_s: MonoS, *, is_missed: bool) -> str:
        """Give up the pipe; return why no other will be dialled, or an empty text.

        `is_missed` tells whether work is waiting, so that the user must be told.
        """
        if self.link is not None:
            self.link.close()
            self.link = None
        self._dialogue.lost()
        address = self.itinerary.address
        if is_missed and not self._lost_address:
            self._lost_address = address
            what = "trying another" if self.itinerary.has_others else "reconnecting"
            _log.warning("the connection to the gateway at %s is lost; %s", address, what)
        match self.itinerary.lost(loss, mono_s, since_s):
            case DialGateway(to, at_s):
                self._redial_at_s = at_s
                if to != address:
                    self._dialogue.start_over()
            case GiveUp(reason):
                self.stop()
                return reason
        return ""

    def opened(self) -> None:
        """Note that the session is open: stay here, and learn of other gateways."""
        self.itinerary.opened()
        if self._dialogue.welcome is not None:
            self.learn(self._dialogue.welcome.others)
        lost, self._lost_address = self._lost_address, ""
        address = self.itinerary.address
        if lost == address:
            _log.warning("reconnected to the gateway at %s", address)
        elif lost:
            _log.warning("switched from the gateway at %s to the gateway at %s", lost, address)

    def learn(self, others: list[str]) -> None:
        """Learn of other gateways; log those that are not followed."""
        for line in self.itinerary.learn(others):
            _log.warning("%s", line)

    def stop(self) -> None:
        """Stop dialling."""
        self._redial_at_s = MonoS(math.inf)

    def close(self) -> None:
        """Release all resources. Idempotent."""
        self.stop()
        if self.link is not None:
            self.link.close()
            self.link = None
        self._waker.close()
