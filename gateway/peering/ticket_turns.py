"""Questions of other sites for tickets, answered a few digests at a time, site after site. Pure.

A signature takes some 0.2 ms of the gateway's loop. A question may want hundreds of them, and a
site may ask again and again: so each site has its turn, and waits with its own questions alone.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

from federation.messages.transferring import DIGESTS_MAX, AskTickets

TURN: Final = 16  # digests of one site before it is another one's turn
WAITING_MAX: Final = 8 * DIGESTS_MAX  # digests of one site; a question above that is dropped


@dataclass(slots=True)
class TicketQuestion:
    """A question of a site, and the answer so far: for each digest a ticket, or why not."""

    site: str
    message: AskTickets
    tickets: list[bytes] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer for each digest."""
        return len(self.tickets) >= len(self.message.digests)

    @property
    def turn(self) -> list[bytes]:
        """The digests that are next."""
        at = len(self.tickets)
        return self.message.digests[at : at + TURN]


class TicketTurns:
    """The questions that wait, by site; the site whose turn was longest ago comes first."""

    def __init__(self) -> None:
        self._sites: OrderedDict[str, deque[TicketQuestion]] = OrderedDict()

    def add(self, site: str, message: AskTickets) -> bool:
        """Add a question; return False where too much of its site waits: it will ask again."""
        waiting = self._sites.get(site, ())
        number = sum(1 + len(each.message.digests) for each in waiting)
        if number + 1 + len(message.digests) > WAITING_MAX:
            return False
        self._sites.setdefault(site, deque()).append(TicketQuestion(site, message))
        return True

    def take(self) -> TicketQuestion | None:
        """Return the question whose turn it is, once; give it back by `put_back`, or it is done."""
        if not self._sites:
            return None
        site, questions = self._sites.popitem(last=False)
        question = questions.popleft()
        if questions:
            self._sites[site] = questions
        return question

    def put_back(self, question: TicketQuestion) -> None:
        """Put a question back that has answers to come; the other sites are first."""
        self._sites.setdefault(question.site, deque()).appendleft(question)
