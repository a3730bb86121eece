"""The rights that a site gives another for one of its users' jobs: grants, for the exchange. Pure.

The chain of signatures (federation.signed.grants) is the grant signer's: gateway.trust.grant_signer
has the real one. This module has the contents of a grant, and checks whether a question exceeds it.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from federation.clocks import UtcS
from federation.messages.deals import AskQuote

DELEGATION_SITES_MAX: Final = 64  # the most sites that a grant can name
WIDENED: Final = "widened"
WRONG_PATH: Final = "wrong-path"
WRONG_PURPOSE: Final = "wrong-purpose"


class NotGranted(Exception):
    """A grant that can't be given or is not valid; `code` is a Refusal."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class GrantTerms:
    """The purpose of a grant: one contract with one site.

    Args:
        target: the site.
        contract: its name with us; a grant counts for no other.
        job: the job that it is part of; only the origin sets that.
        user, project, function: likewise.
        max_cost_nanos, currency: the most that it may cost; None and "" for no limit.
        expires_s: until when work may start, UTC epoch seconds.
        hops_left: how often it may be forwarded from there.
        regions: where the data may be; None for anywhere.
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
    expires_s: UtcS
    hops_left: int
    regions: frozenset[str] | None
    sites: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class JobGrant:
    """A verified grant for us: its terms, and the path by which it came.

    `path` is its origin and every site that forwarded it; `raw` the chain, to be forwarded.
    """

    grant_terms: GrantTerms
    path: tuple[str, ...]
    raw: bytes


class GrantSigner(Protocol):
    """Gives grants in our site's name, and reads those of others."""

    def issue(self, grant_terms: GrantTerms) -> bytes:
        """Issue a grant for a job of our own users; raises NotGranted."""

    def narrow(self, given: JobGrant, grant_terms: GrantTerms, utc_s: UtcS) -> bytes:
        """Narrow a grant that we received, for the next site; NotGranted if it would be wider."""

    def check(self, buyer: str, raw: bytes, utc_s: UtcS) -> JobGrant:
        """Verify a buyer's grant: its chain, that it is for us, not expired, and not used before.

        Raises NotGranted.
        """


def check_ask(ask: AskQuote, given: JobGrant) -> None:
    """Raise NotGranted if a question differs from its grant or exceeds it."""
    grant_terms = given.grant_terms
    if tuple(ask.path) != given.path:
        came, told = " > ".join(given.path), " > ".join(ask.path)
        raise NotGranted(WRONG_PATH, f"the path of the grant is {came}, the path of the job {told}")
    # Each site that forwards a job appends the name of the site that it came from.
    user = "@".join((grant_terms.user, *given.path[:-1]))
    asked = ask.contract, ask.user, ask.project, ask.function, ask.currency
    granted = (
        grant_terms.contract,
        user,
        grant_terms.project,
        grant_terms.function,
        grant_terms.currency,
    )
    names = ("contract", "user", "project", "function", "currency")
    for name, one, other in zip(names, asked, granted, strict=True):
        if one != other:
            raise NotGranted(WRONG_PURPOSE, f"the grant is for another {name}")
    if ask.hops_left > grant_terms.hops_left:
        reason = f"{ask.hops_left} hops exceed the {grant_terms.hops_left} of the grant"
        raise NotGranted(WIDENED, reason)
    wanted = ask.wishes.get("jurisdictions")
    if grant_terms.regions is not None and not (
        isinstance(wanted, list) and grant_terms.regions.issuperset(wanted)
    ):
        raise NotGranted(WIDENED, "the jurisdictions exceed those of the grant")
