"""Signed grants for gateway.scheduler.model.delegation, made with the keys of our registry."""

from collections import OrderedDict
from hashlib import sha256
from typing import Final, Protocol

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.signed import grants
from federation.signed.grants import Grant, GrantBounds, Purpose
from federation.signed.identity import SiteKey, Trust, TrustRefusal, Untrusted
from federation.signed.strict import INTEGER_MAX
from gateway.scheduler.model.delegation import Delegation, DelegationGrant, NotGranted

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
    gateway.scheduler.model.delegation.GrantSigner.
    """

    def __init__(self, keeper: SigningSite) -> None:
        self._keeper = keeper
        self._shown: OrderedDict[bytes, UtcS] = OrderedDict()  # hash of a chain → its end, UTC

    def issue(self, delegation: Delegation) -> bytes:
        """See GrantSigner."""
        trust = self._keeper.book
        purpose = Purpose(
            trust.federation,
            trust.site,
            delegation.user,
            delegation.project,
            delegation.job,
            delegation.function,
            delegation.currency or NO_CURRENCY,
        )
        try:
            return grants.issue(purpose, _bounds(delegation), self._keeper.signing_key)
        except (ValueError, ProtocolError) as error:
            raise _not_granted(error) from None

    def narrow(self, given: DelegationGrant, delegation: Delegation, utc_s: UtcS) -> bytes:
        """See GrantSigner."""
        try:
            found = grants.check(given.raw, given.path[-1], self._keeper.book, utc_s)
            bounds = _bounds(delegation, found.bounds)
            return grants.pass_on(found, bounds, self._keeper.signing_key)
        except (ValueError, ProtocolError) as error:
            raise _not_granted(error) from None

    def check(self, buyer: str, raw: bytes, utc_s: UtcS) -> DelegationGrant:
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


def _bounds(delegation: Delegation, wide: GrantBounds | None = None) -> GrantBounds:
    """Return a delegation's bounds for a block; passed-on limits are no wider than `wide`."""
    most = INTEGER_MAX if delegation.max_cost_nanos is None else delegation.max_cost_nanos
    regions, sites, expires_s = delegation.regions, delegation.sites, delegation.expires_s
    if wide is not None:
        expires_s = min(expires_s, wide.expires_s)
        regions = wide.regions if regions is None else regions
        sites = wide.sites if sites is None else sites
    return GrantBounds(
        delegation.target,
        delegation.contract,
        most,
        expires_s,
        delegation.hops_left,
        regions,
        sites,
    )


def _allowance(grant: Grant) -> DelegationGrant:
    purpose, bounds = grant.purpose, grant.bounds
    is_limited = purpose.currency != NO_CURRENCY
    delegation = Delegation(
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
    return DelegationGrant(delegation, grant.path, grant.raw)


def _not_granted(error: Exception) -> NotGranted:
    if isinstance(error, Untrusted):
        return NotGranted(error.refusal, error.details)
    return NotGranted(TrustRefusal.ALTERED, f"invalid grant: {error}"[:300])
