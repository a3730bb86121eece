"""What a site lets another do for one of its users' jobs: grants, as the exchange sees them. Pure.

The chain of signatures (federation.grants) is a notary's: gateway.notary has the real one. Here
is what it says, and whether a question goes beyond it.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from federation.deals import AskQuote

ERRAND_SITES_MAX: Final = 64  # that a grant can name
WIDENED: Final = "widened"
WRONG_PATH: Final = "wrong-path"
WRONG_PURPOSE: Final = "wrong-purpose"


class NotGranted(Exception):
    """A grant that can't be given or is not believed; `code` is a Refusal."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Errand:
    """What a grant is to be given for: one contract with one site.

    Args:
        target: the site.
        contract: its name with us; a grant counts for no other.
        job: whose part it is; only the origin says that.
        user, project, function: likewise.
        max_cost_nanos, currency: the most that it may cost; None and "" for no limit.
        expires_s: until when work may start, UTC epoch seconds.
        hops_left: how often it may go on from there.
        regions: where the data may lie; None for anywhere.
        sites: that may run or relay it, the target among them; None for any.
    """

    target: str
    contract: str
    job: str
    user: str
    project: str
    function: bytes
    max_cost_nanos: int | None
    currency: str
    expires_s: float
    hops_left: int
    regions: frozenset[str] | None
    sites: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Allowance:
    """A grant that was checked and is for us: the errand that it gives, and the way that it came.

    `path` is its origin and every site that passed it on; `raw` the chain, to be passed on.
    """

    errand: Errand
    path: tuple[str, ...]
    raw: bytes


class Notary(Protocol):
    """Gives grants in our site's name, and reads those of others."""

    def issue(self, errand: Errand) -> bytes:
        """A grant of ours, for a job of our own users; NotGranted."""

    def narrow(self, given: Allowance, errand: Errand, utc_s: float) -> bytes:
        """A grant that came to us, for the next site; NotGranted where it would be wider."""

    def check(self, buyer: str, raw: bytes, utc_s: float) -> Allowance:
        """Believe what a buyer shows: its chain, that it is for us, in time, shown the first time.

        Raises NotGranted.
        """


def check_ask(ask: AskQuote, given: Allowance) -> None:
    """Raise NotGranted where a question is about anything else than its grant, or about more."""
    errand = given.errand
    if tuple(ask.path) != given.path:
        came, told = " > ".join(given.path), " > ".join(ask.path)
        raise NotGranted(WRONG_PATH, f"the grant came by {came}, the job by {told}")
    # Each site that passes a job on adds the name of the one that it had it from.
    user = "@".join((errand.user, *given.path[:-1]))
    asked = ask.contract, ask.user, ask.project, ask.function, ask.currency
    granted = errand.contract, user, errand.project, errand.function, errand.currency
    names = ("contract", "user", "project", "function", "currency")
    for name, one, other in zip(names, asked, granted, strict=True):
        if one != other:
            raise NotGranted(WRONG_PURPOSE, f"the grant is for another {name}")
    if ask.hops_left > errand.hops_left:
        reason = f"{ask.hops_left} hops, where {errand.hops_left} are granted"
        raise NotGranted(WIDENED, reason)
    wanted = ask.wishes.get("jurisdictions")
    if errand.regions is not None and not (
        isinstance(wanted, list) and errand.regions.issuperset(wanted)
    ):
        raise NotGranted(WIDENED, "more jurisdictions than are granted")
