"""All-or-nothing booking of slots at several sites, by an ordered two-phase protocol. Pure.

    holding ──► booking ──► booked          every site holds, then every site has booked
       └───────────┴──────► releasing ──► released

*Holding.* The coordinator asks sites to hold their parts one after the other, by name. All
coordinators use the same order: of two that want the same slots, the one that is first at the first
site gets them, and neither waits for the other while holding slots that the other wants. Each hold
lapses by itself. Nothing is stored: a coordinator that dies here has decided nothing, and its holds
lapse.

*Booking.* When all sites hold, with enough lease left, the coordinator decides to book. It stores
that before it sends anything (`Decide`). Then it tells all sites to book, and repeats until each
has answered. Unless it is kept by then, a booked part lapses some minutes after that (KEEP_S) or at
its beginning, if that is later, but no later than at its end.

*Booked.* When all have booked, the coordinator stores that, tells the user, and tells all sites to
keep their parts.

*Releasing.* It begins when a site refuses, lets a hold lapse (a message came too late), or times
out. It is stored if the decision to book was. The coordinator tells all sites to release their
parts, and repeats until each has answered that it has none; without a decision to book, no longer
than a hold may last anywhere (FORGET_S): a site that is gone for good must not fill the list of
bookings.

So, even if messages are lost, late or repeated:

1. A site books only slots that it holds, so nothing is ever oversold.
2. "Booked" is decided only when every site has answered that it has booked, and soon (BOOK_S is far
   below KEEP_S). No site lets go of its part before it lapses, unless the coordinator releases it,
   which after that it does only for its user.
3. Otherwise it is released: by the coordinator, as soon as its message arrives; by the lease, where
   it was only held; later, where the coordinator never returns: after all leases, none is left.
4. A site that booked, and gets no message until its part lapses, lets go of it even though the
   coordinator may have decided for it: the two could not talk all that time, and no work could have
   come. No protocol over lossy messages can do without such a last step (two generals). This one
   costs no buyer slots that it could have used.
5. A site never takes up again a part that it has let go of: a late message finds that it is over.

(Gray 1978; presumed abort: Mohan, Lindsay, Obermarck 1986; ordered acquisition: Havender 1968.)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from federation.clocks import MonoS
from federation.words import duration_text

ASK_S: Final = 5.0  # the timeout of a request to hold
MARGIN_S: Final = 2.0  # the lease that each hold must have left at the decision to book
BOOK_S: Final = 60.0  # the timeout until all must have booked
KEEP_S: Final = 300.0  # how long a part stays booked, at least, without a message to keep it
# A mere hold has lapsed by itself after this long, whether or not its site answers.
FORGET_S: Final = 900.0
AGAIN_S: Final = 2.0  # the interval at which unanswered messages are sent again

# The answers of sites.
HELD: Final = "held"
BOOKING: Final = "booking"
BOOKED: Final = "booked"
REFUSED: Final = "refused"
OVER: Final = frozenset({REFUSED, "cancelled", "expired", "ended"})


class BookingPhase(StrEnum):
    """The phase of a booking."""

    HOLDING = "holding"
    BOOKING = "booking"
    BOOKED = "booked"
    RELEASING = "releasing"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class AskPart:
    """Tell a site to hold, book, keep or release its part."""

    site: str
    step: str


@dataclass(frozen=True, slots=True)
class Decide:
    """Store this phase before anything after it is sent."""

    phase: BookingPhase


Act = AskPart | Decide


@dataclass(slots=True)
class Coallocation:
    """One booking at several sites; each call returns the actions to take, in order.

    Attributes:
        sites: by name.
        states: the last answer of each site.
        leases_s: until when each holds its part.
        reason: why it is being released.
    """

    sites: tuple[str, ...]
    phase: BookingPhase = BookingPhase.HOLDING
    states: dict[str, str] = field(default_factory=dict)
    leases_s: dict[str, MonoS] = field(default_factory=dict)
    reason: str = ""
    _is_decided: bool = False  # whether the decision to book was stored
    _since_s: MonoS = MonoS(0.0)
    _said_at_s: MonoS = MonoS(0.0)

    def __post_init__(self) -> None:
        self.sites = tuple(sorted(set(self.sites)))

    def begin(self, mono_s: MonoS) -> list[Act]:
        """Ask the first site to hold."""
        self._since_s = self._said_at_s = mono_s
        return [AskPart(self.sites[0], "hold")]

    def resume(self, phase: BookingPhase, mono_s: MonoS) -> list[Act]:
        """Resume after a restart, from the last stored phase."""
        self.phase, self._since_s, self._is_decided = phase, mono_s, True
        self.states.clear()
        return self._say_all(mono_s)

    def heard(self, site: str, state: str, mono_s: MonoS, until_s: MonoS = MonoS(0.0)) -> list[Act]:
        """Take a site's answer; `until_s`: until when it holds."""
        if site not in self.sites:
            return []
        if self.phase is BookingPhase.RELEASED:
            return [] if state in OVER else [AskPart(site, "release")]
        before = self.states.get(site)
        self.states[site] = state
        match self.phase:
            case BookingPhase.HOLDING:
                return self._heard_holding(site, state, before, mono_s, until_s)
            case BookingPhase.BOOKING:
                if state in OVER:
                    return self.release(f"{site} did not book: {state}", mono_s)
                if all(self.states.get(each) in (BOOKING, BOOKED) for each in self.sites):
                    self.phase = BookingPhase.BOOKED
                    return [Decide(BookingPhase.BOOKED), *self._say_all(mono_s)]
            case BookingPhase.RELEASING:
                if all(self.states.get(each) in OVER for each in self.sites):
                    self.phase = BookingPhase.RELEASED
                    return [Decide(BookingPhase.RELEASED)]
        return []

    def _heard_holding(
        self, site: str, state: str, before: str | None, mono_s: MonoS, until_s: MonoS
    ) -> list[Act]:
        if state in OVER:
            return self.release(f"{site}: {state}", mono_s)
        if before is not None or site != self._asked()[-1]:
            return []
        self.leases_s[site] = until_s
        at = self.sites.index(site)
        if at + 1 < len(self.sites):
            self._since_s = self._said_at_s = mono_s
            return [AskPart(self.sites[at + 1], "hold")]
        if min(self.leases_s.values()) < mono_s + MARGIN_S:
            return self.release("the first hold would expire before all sites have booked", mono_s)
        self.phase, self._since_s, self._is_decided = BookingPhase.BOOKING, mono_s, True
        return [Decide(BookingPhase.BOOKING), *self._say_all(mono_s)]

    def release(self, reason: str, mono_s: MonoS) -> list[Act]:
        """Release all parts: a site failed, or the user cancelled."""
        was_decided = self.phase is not BookingPhase.HOLDING
        self.reason, self.phase, self._since_s = reason, BookingPhase.RELEASING, mono_s
        written: list[Act] = [Decide(BookingPhase.RELEASING)] if was_decided else []
        asked = [each for each in self.sites if was_decided or each in self._asked()]
        for each in self.sites:
            if each not in asked:
                self.states[each] = "expired"  # it was never asked
        for each, state in list(self.states.items()):
            if state not in OVER:
                del self.states[each]
        if all(self.states.get(each) in OVER for each in self.sites):
            self.phase = BookingPhase.RELEASED
            return [*written, Decide(BookingPhase.RELEASED)]
        return [*written, *self._say_all(mono_s)]

    def _asked(self) -> tuple[str, ...]:
        """Return the sites that were asked to hold: those that have answered, and the next."""
        return self.sites[: len(self.leases_s) + 1]

    def tick(self, mono_s: MonoS) -> list[Act]:
        """Send unanswered messages again, and give up steps that time out."""
        waited_s = mono_s - self._since_s
        if self.phase is BookingPhase.HOLDING and waited_s >= ASK_S:
            site = self._asked()[-1]
            return self.release(f"{site} did not answer within {duration_text(ASK_S)}", mono_s)
        if self.phase is BookingPhase.BOOKING and waited_s >= BOOK_S:
            late = [each for each in self.sites if self.states.get(each) not in (BOOKING, BOOKED)]
            return self.release(f"{', '.join(late)} did not book in time", mono_s)
        if self.phase is BookingPhase.RELEASING and not self._is_decided and waited_s >= FORGET_S:
            self.phase = BookingPhase.RELEASED
            return [Decide(BookingPhase.RELEASED)]
        if (
            self.phase in (BookingPhase.HOLDING, BookingPhase.RELEASED)
            or mono_s - self._said_at_s < AGAIN_S
        ):
            return []
        return self._say_all(mono_s)

    def _say_all(self, mono_s: MonoS) -> list[Act]:
        """Return the message of this phase for each site that has not answered it."""
        self._said_at_s = mono_s
        step, done = _SAID[self.phase]
        return [AskPart(each, step) for each in self.sites if self.states.get(each) not in done]


_SAID: Final[Mapping[BookingPhase, tuple[str, frozenset[str]]]] = {
    BookingPhase.BOOKING: ("book", frozenset({BOOKING, BOOKED})),
    BookingPhase.BOOKED: ("keep", frozenset({BOOKED, *OVER})),
    BookingPhase.RELEASING: ("release", OVER),
}
