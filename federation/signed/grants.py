"""Grants: a user's permission, carried with a job from site to site, and only ever narrowed.

A grant is a chain of signed blocks. The first is the origin's: user, job, maximum cost, expiry,
places. Each site that passes the job on appends a block. That block names the next target, may not
restore anything that was denied, and is signed by the site that the block before it named. A chain
therefore shows the sites it came through, and no site on the way can widen it, cut it short,
reorder it, or use it for itself.

A grant bounds one contract: a site that splits a job gives each part a grant of its own, whose
costs add up to no more than its own. It states what the user allowed; the receiving site's own
rules decide what that site allows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import msgpack

from federation.clocks import UtcS
from federation.errors import ProtocolError
from federation.signed import strict
from federation.signed.identity import (
    SiteKey,
    Trust,
    TrustRefusal,
    Untrusted,
    federation_id,
    find_signer,
    signed_bytes,
    site_id,
)

BLOCKS_MAX: Final = 4
HOPS_MAX: Final = BLOCKS_MAX - 1
BYTES_MAX: Final = 24 << 10
NAME_CHARS_MAX: Final = 200
SITES_MAX: Final = 64
REGIONS_MAX: Final = 64
REGION_CHARS_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class GrantBounds:
    """The fields that every block states again, and may only narrow.

    Args:
        target: the site that this block is for.
        contract: the contract that it is for; under any other name it is worthless.
        max_cost_nanos: the most that the work may cost, in the grant's currency.
        expires_s: until when work may start, UTC epoch seconds.
        hops_left: how often it may be passed on from here.
        regions: where the user's data may lie (data residency); None for anywhere.
        sites: the sites that may run or relay it; None for any.
    """

    target: str
    contract: str
    max_cost_nanos: int
    expires_s: UtcS
    hops_left: int
    regions: frozenset[str] | None = None
    sites: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Purpose:
    """The fields that only the origin states: the user and the job."""

    federation: str
    origin: str
    user: str
    project: str
    job: str
    function: bytes  # the SHA-256 of its pickle
    currency: str


@dataclass(frozen=True, slots=True)
class Grant:
    """A chain that was checked: what its target site may do.

    `path` is the origin and every site that passed it on, in order, without its target.
    """

    purpose: Purpose
    bounds: GrantBounds
    path: tuple[str, ...]
    raw: bytes


@dataclass(frozen=True, slots=True)
class _Block:
    """A block. `about` is the purpose in the first one, the previous block's hash in others."""

    about: bytes
    bounds: bytes
    signature: bytes

    def hash(self) -> bytes:
        """Return the hash by which the next block names this one as its parent."""
        return sha256(signed_bytes("block", self.about, self.bounds, self.signature)).digest()

    def is_signed(self, keys: Sequence[bytes], domain: str) -> bool:
        return find_signer(keys, self.signature, domain, self.about, self.bounds) is not None


_name = strict.line(NAME_CHARS_MAX)
_PURPOSE = strict.Form(
    Purpose,
    {
        "federation": federation_id,
        "origin": site_id,
        "user": _name,
        "project": _name,
        "job": _name,
        "function": strict.data(32, 32),
        "currency": strict.matching("[A-Z]{3}"),
    },
    4 << 10,
    closed=True,
)
_BOUNDS = strict.Form(
    GrantBounds,
    {
        "target": site_id,
        "contract": _name,
        "max_cost_nanos": strict.count,
        "expires_s": strict.moment,
        "hops_left": strict.upto(HOPS_MAX),
        "regions": strict.subset(strict.line(REGION_CHARS_MAX), REGIONS_MAX),
        "sites": strict.subset(site_id, SITES_MAX),
    },
    8 << 10,
    closed=True,
)
_ORIGIN: Final = "grant by its origin"
_HOP: Final = "grant passed on"


def issue(purpose: Purpose, bounds: GrantBounds, key: SiteKey) -> bytes:
    """Return the origin's grant for one contract.

    Raises:
        ValueError: a field that no site would accept.
        Untrusted: WIDENED or LOOP, when its own target is not among its sites, or is the origin.
    """
    about, encoded = _PURPOSE.encode(purpose), _BOUNDS.encode(bounds)
    _check_target(bounds, (purpose.origin,))
    return _pack([_Block(about, encoded, key.sign(_ORIGIN, about, encoded))])


def pass_on(grant: Grant, bounds: GrantBounds, key: SiteKey) -> bytes:
    """Return the chain for the next site: one that was checked to be for us, and our block.

    Raises:
        ValueError: a field that no site would accept.
        Untrusted: WIDENED or LOOP: the next site would refuse it for that.
    """
    _check_narrowing(grant.bounds, bounds)
    _check_target(bounds, (*grant.path, grant.bounds.target))
    blocks = _split(grant.raw)
    about, encoded = blocks[-1].hash(), _BOUNDS.encode(bounds)
    return _pack([*blocks, _Block(about, encoded, key.sign(_HOP, about, encoded))])


def check(raw: bytes, sender: str, trust: Trust, utc_s: UtcS) -> Grant:
    """Check a chain from its first block to its last, and return what it allows this site.

    Args:
        raw: the chain as it came.
        sender: the neighbour that presented it: the last block must be its own.
        trust: this site's identity, and the keys that it trusts.
        utc_s: now.

    Raises:
        ProtocolError: it is no chain.
        Untrusted: WRONG_FEDERATION, UNKNOWN_SITE, BAD_SIGNATURE, WRONG_PARENT, WIDENED, LOOP,
            WRONG_DESTINATION, WRONG_SITE, EXPIRED.
    """
    first, *later = _split(raw)
    purpose, bounds = _PURPOSE.decode(first.about), _BOUNDS.decode(first.bounds)
    if purpose.federation != trust.federation:
        raise Untrusted(
            TrustRefusal.WRONG_FEDERATION, f"the grant is for federation {purpose.federation!r}"
        )
    _check_signature(first, _ORIGIN, purpose.origin, trust)
    path = [purpose.origin]
    _check_target(bounds, path)
    parent = first
    for block in later:
        narrowed = _BOUNDS.decode(block.bounds)
        if block.about != parent.hash():
            raise Untrusted(
                TrustRefusal.WRONG_PARENT, "a block does not belong to the chain before it"
            )
        _check_signature(block, _HOP, bounds.target, trust)
        path.append(bounds.target)
        _check_narrowing(bounds, narrowed)
        _check_target(narrowed, path)
        parent, bounds = block, narrowed
    if bounds.target != trust.site:
        raise Untrusted(TrustRefusal.WRONG_DESTINATION, f"the grant is for site {bounds.target!r}")
    if path[-1] != sender:
        raise Untrusted(
            TrustRefusal.WRONG_SITE, f"site {sender!r} presents a grant of site {path[-1]!r}"
        )
    if bounds.expires_s <= utc_s:
        raise Untrusted(TrustRefusal.EXPIRED, f"the grant of job {purpose.job!r} has expired")
    return Grant(purpose, bounds, tuple(path), raw)


def _check_narrowing(wide: GrantBounds, narrow: GrantBounds) -> None:
    """Raise Untrusted if anything in `narrow` goes beyond `wide`."""
    wider = ""
    if narrow.max_cost_nanos > wide.max_cost_nanos:
        wider = f"a cost of {narrow.max_cost_nanos} exceeds the allowed {wide.max_cost_nanos}"
    elif narrow.expires_s > wide.expires_s:
        wider = f"an expiry at {narrow.expires_s:.0f} is after the allowed {wide.expires_s:.0f}"
    elif narrow.hops_left >= wide.hops_left:
        wider = f"{narrow.hops_left} hops left are too many after {wide.hops_left}"
    elif not _is_within(narrow.regions, wide.regions):
        wider = "more regions than the block before it allows"
    elif not _is_within(narrow.sites, wide.sites):
        wider = "more sites than the block before it allows"
    if wider:
        raise Untrusted(TrustRefusal.WIDENED, wider)


def _is_within(narrow: frozenset[str] | None, wide: frozenset[str] | None) -> bool:
    return wide is None or (narrow is not None and narrow <= wide)


def _check_target(bounds: GrantBounds, path: Sequence[str]) -> None:
    if bounds.target in path:
        raise Untrusted(TrustRefusal.LOOP, f"the grant has passed site {bounds.target!r} already")
    if bounds.sites is not None and bounds.target not in bounds.sites:
        raise Untrusted(
            TrustRefusal.WIDENED, f"site {bounds.target!r} is not among the sites of the grant"
        )


def _check_signature(block: _Block, domain: str, signer: str, trust: Trust) -> None:
    keys = trust.lasting_keys_of(signer)
    if not keys:
        raise Untrusted(
            TrustRefusal.UNKNOWN_SITE,
            f"the grant has a block by site {signer!r}, which is not known",
        )
    if not block.is_signed(keys, domain):
        raise Untrusted(
            TrustRefusal.BAD_SIGNATURE, f"the grant has a block that site {signer!r} did not sign"
        )


def _pack(blocks: Sequence[_Block]) -> bytes:
    parts = [[each.about, each.bounds, each.signature] for each in blocks]
    return bytes(msgpack.packb(parts, use_bin_type=True))


def _split(raw: bytes) -> list[_Block]:
    parts = strict.decode(raw, BYTES_MAX)
    if type(parts) is not list or not 1 <= len(parts) <= BLOCKS_MAX:
        raise ProtocolError(f"a grant must have 1 to {BLOCKS_MAX} blocks")
    if not all(strict.is_parts(part, 3) for part in parts):
        raise ProtocolError("a block must be its purpose, its bounds and a signature")
    return [_Block(*part) for part in parts]
