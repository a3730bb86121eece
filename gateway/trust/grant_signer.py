"""Signed grants for gateway.scheduler.model.job_grants, made with the keys of our registry."""

from collections import OrderedDict
from hashlib import sha256
from typing import Final, Protocol

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.signed import grants
from federation.signed.grants import Grant, GrantBounds, Purpose
from federation.signed.identity import SiteKey, Trust, TrustRefusal, Untrusted
from federation.signed.strict import INTEGER_MAX
from gateway.scheduler.model.job_grants import GrantTerms, JobGrant, NotGranted

NO_CURRENCY: Final = "XXX"  # ISO 4217: no currency is involved, as there is no limit
SHOWN_MAX: Final = 100_000  # grants remembered as shown; the oldest are forgotten first


class SigningSite(Protocol):
    """The queries on our own site that signing needs: gateway.trust.identity_store has them."""

    @property
    def book(self) -> Trust:
        """The sites that we trust."""

    @property
    def signing_key(self) -> SiteKey:
        """The key to sign with now."""


class KeyGrantSigner:
    """A GrantSigner whose grants any member can check; see
    gateway.scheduler.model.job_grants.GrantSigner.
    """

    def __init__(self, keeper: SigningSite) -> None:
        self._keeper = keeper
        self._shown: OrderedDict[bytes, UtcS] = OrderedDict()  # hash of a chain → its end, UTC

    def issue(self, grant_terms: GrantTerms) -> bytes:
        """See GrantSigner."""
        trust = self._keeper.book
        purpose = Purpose(
            trust.federation,
            trust.site,
            grant_terms.user,
            grant_terms.project,
            grant_terms.job,
            grant_terms.function,
            grant_terms.currency or NO_CURRENCY,
        )
        try:
            return grants.issue(purpose, _bounds(grant_terms), self._keeper.signing_key)
        except (ValueError, ProtocolError) as error:
            raise _not_granted(error) from None

    def narrow(self, given: JobGrant, grant_terms: GrantTerms, utc_s: UtcS) -> bytes:
        """See GrantSigner."""
        try:
            found = grants.check(given.raw, given.path[-1], self._keeper.book, utc_s)
            bounds = _bounds(grant_terms, found.bounds)
            return grants.pass_on(found, bounds, self._keeper.signing_key)
        except (ValueError, ProtocolError) as error:
            raise _not_granted(error) from None

    def check(self, buyer: str, raw: bytes, utc_s: UtcS) -> JobGrant:
        """See GrantSigner. A grant shown before is refused, until it has expired or we restart."""
        try:
            found = grants.check(raw, buyer, self._keeper.book, utc_s)
        except ProtocolError as error:
            raise _not_granted(error) from None
        self._note(sha256(raw).digest(), found.bounds.expires_s, utc_s)
        return _allowance(found)

    def _note(self, shown: bytes, expires_s: UtcS, utc_s: UtcS) -> None:
        if shown in self._shown:
            raise NotGranted(TrustRefusal.REPLAYED, "the grant was used before")
        self._shown[shown] = expires_s
        while self._shown:
            oldest, until_s = next(iter(self._shown.items()))
            if until_s > utc_s and len(self._shown) <= SHOWN_MAX:
                return
            del self._shown[oldest]


def _bounds(grant_terms: GrantTerms, wide: GrantBounds | None = None) -> GrantBounds:
    """Return the bounds of a grant for a block; passed-on limits are no wider than `wide`."""
    most = INTEGER_MAX if grant_terms.max_cost_nanos is None else grant_terms.max_cost_nanos
    regions, sites, expires_s = grant_terms.regions, grant_terms.sites, grant_terms.expires_s
    if wide is not None:
        expires_s = min(expires_s, wide.expires_s)
        regions = wide.regions if regions is None else regions
        sites = wide.sites if sites is None else sites
    return GrantBounds(
        grant_terms.target,
        grant_terms.contract,
        most,
        expires_s,
        grant_terms.hops_left,
        regions,
        sites,
    )


def _allowance(grant: Grant) -> JobGrant:
    purpose, bounds = grant.purpose, grant.bounds
    is_limited = purpose.currency != NO_CURRENCY
    grant_terms = GrantTerms(
        target=bounds.target,
        contract=bounds.contract,
        job=purpose.job,
        user=purpose.user,
        project=purpose.project,
        function=purpose.function,
        max_cost_nanos=bounds.max_cost_nanos if is_limited else None,
        currency=purpose.currency if is_limited else "",
        expires_s=bounds.expires_s,
        hops_left=bounds.hops_left,
        regions=bounds.regions,
        sites=bounds.sites,
    )
    return JobGrant(grant_terms, grant.path, grant.raw)


def _not_granted(error: Exception) -> NotGranted:
    if isinstance(error, Untrusted):
        return NotGranted(error.refusal, error.details)
    return NotGranted(TrustRefusal.ALTERED, f"invalid grant: {error}"[:300])
