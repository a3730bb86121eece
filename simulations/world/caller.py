"""A client's connection: one dialogue, over any number of consecutive pipes.

The dialogue is the real one (federation.sessions.handshake). Callbacks in virtual time replace
federation.engine.dialling.connection around it.
"""

from typing import Any, Final

from federation.engine.dialling.gateways import PAUSE_MAX_S, PAUSE_MIN_S
from federation.errors import ProtocolError, SessionRefused
from federation.messages.messages import Bye, Hello
from federation.sessions.handshake import Dialogue, SharedSecret
from simulations.world.host import Ground, SimHost
from simulations.world.network import SimLink

CHECK_S: Final = 0.25


class Caller(SimHost):
    """A process that dials a gateway as clients do."""

    def __init__(
        self,
        ground: Ground,
        name: str,
        gateway: str,
        *,
        skew_s: float,
        drift: float,
    ) -> None:
        super().__init__(ground, name, skew_s=skew_s, drift=drift)
        self.gateway = gateway
        self._link: SimLink | None = None
        self._is_looking = False

    def boot(self) -> None:
        """Begin a conversation."""
        self.is_leaving = False
        self._wait_s = PAUSE_MIN_S
        self.dialogue = self.new_dialogue()
        self._dial()
        self.after(CHECK_S, self._check)

    def die(self, *, power: bool) -> None:
        """Drop the process's state."""
        if self._link is not None:
            self._link.is_closed = True
            self._link = None

    def stop(self) -> None:
        """Exit on its own."""
        if self._link is not None:
            self._link.close()
            self._link = None
        self.is_up = False
        self.life += 1

    def new_dialogue(self) -> Dialogue:
        """Return a new conversation."""
        return Dialogue(
            hello=self.hello(), credentials=SharedSecret(""), random_bytes=self.random_bytes
        )

    def hello(self) -> Hello:
        """Return its introduction."""
        raise NotImplementedError

    def hear(self, messages: list[Any]) -> None:
        """Take messages of the gateway."""
        raise NotImplementedError

    def fill(self) -> None:
        """Post queued messages, if the session has room."""

    # --- the pipe ------------------------------------------------------------------------------

    def _dial(self) -> None:
        if self._link is None and not self.is_leaving:
            self._is_greeted = False
            self._link = self.ground.network.dial(self.name, self.gateway, self._changed)

    def _changed(self) -> None:
        """Schedule one look at arrived frames."""
        if not self._is_looking:
            self._is_looking = True
            life = self.life

            def look() -> None:
                self._is_looking = False
                if self.life == life and self.is_up:
                    self.do(self._look)

            self.clock.after(0.0, look)

    def _look(self) -> None:
        link = self._link
        if link is None:
            return
        if link.is_up and not self._is_greeted:
            self._is_greeted = True
            self.dialogue.connected(self.mono_s())
        try:
            said_bye = self._receive(link)
        except SessionRefused as refusal:
            self.note("is refused", str(refusal))
            self.refused(refusal)
            self.hang_up()
            return
        except ProtocolError as error:
            self.note("hangs up", str(error))
            self.hang_up()
            return
        if self._link is not link:
            return  # hung up while listening
        if said_bye or link.is_lost:
            self.hang_up()
            return
        self.flush()
        if self.dialogue.owes:
            self.after(self.dialogue.acknowledge_s, self.flush)

    def _receive(self, link: SimLink) -> bool:
        for frame in link.receive():
            messages = self.dialogue.receive(frame, self.mono_s())
            if self.dialogue.is_open:
                self._wait_s = PAUSE_MIN_S
            self.hear(messages)
            if any(isinstance(message, Bye) for message in messages):
                return True
        return False

    def refused(self, refusal: SessionRefused) -> None:
        """Take the gateway's refusal or expulsion."""

    def hang_up(self) -> None:
        """Give up the pipe, and dial again later."""
        if self._link is not None:
            self._link.close()
            self._link = None
        self.dialogue.lost()
        self.after(self._wait_s * (0.5 + self.dice.random()), self._dial)
        self._wait_s = min(2 * self._wait_s, PAUSE_MAX_S)

    def flush(self) -> None:
        """Send the frames that may go now."""
        if self._link is None or self._link.is_lost:
            return
        self.fill()
        self.dialogue.flush(self._link.send, self.mono_s())

    def _check(self) -> None:
        self.after(CHECK_S, self._check)
        link = self._link
        if link is not None and self._is_greeted and self.dialogue.is_silent(self.mono_s()):
            self.note("gives up a silent pipe")
            self.hang_up()
        self.flush()
