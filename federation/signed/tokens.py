"""User tokens: a site's signed word on a user's identity and rights at a gateway.

A token serves any holder, so it travels only over TLS or a socket of its own user. It is valid at
its own site unless it names others, and it expires. A gateway checks it without asking other sites.
Its rights are an upper bound; the site's own rules come after. Another site's token is accepted
only if our operator admits its users, and never makes its holder an administrator or a worker here.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import msgpack

from federation.clocks import UtcS
from federation.signed import strict
from federation.signed.declarations import TOKEN_PATTERN
from federation.signed.identity import (
    CLOCK_AHEAD_MAX_S,
    SiteKey,
    Trust,
    TrustRefusal,
    Untrusted,
    federation_id,
    find_signer,
    from_text,
    site_id,
    to_text,
)
from federation.users import USER_CHARS_MAX

PREFIX: Final = "gft1"
PROJECTS_MAX: Final = 64
SITES_MAX: Final = 64
SCOPES_MAX: Final = 20
BODY_BYTES_MAX: Final = 8 << 10
TEXT_CHARS_MAX: Final = 16 << 10
_DOMAIN: Final = "token"


class Scope(StrEnum):
    """The rights of the holder of a token."""

    SUBMIT = "submit"
    CANCEL = "cancel"
    REPORT = "report"
    ADMIN = "admin"
    WORK = "work"  # join as a worker; "work:POOL": of that pool alone
    AUDIT = "audit"  # see the rows of all users, and change nothing


SCOPE_PATTERN: Final = "[a-z]{1,20}(:[A-Za-z0-9_.-]{1,60})?"
_WORK_IN: Final = f"{Scope.WORK}:"
# The most that a token of another site can allow.
FOREIGN_SCOPES: Final = frozenset({Scope.SUBMIT.value, Scope.CANCEL.value, Scope.REPORT.value})


@dataclass(frozen=True, slots=True)
class UserToken:
    """A `user`, with `projects` (None: all), `scopes`, the `sites` that it is for, and its times.

    `id` is 16 hexadecimal digits, by which the token can be revoked. The scope "work" may name a
    pool, as in "work:hpc".
    """

    federation: str
    issuer: str
    id: str
    user: str
    projects: frozenset[str] | None
    scopes: frozenset[str]
    sites: frozenset[str]
    issued_s: UtcS
    expires_s: UtcS

    def allows(self, scope: Scope, project: str | None = None) -> bool:
        """Whether it covers this scope, and this project if one is named."""
        covered = self.projects is None or project is None or project in self.projects
        return covered and scope.value in self.scopes

    def may_work_in(self, pool: str | None = None) -> bool:
        """Whether a worker with it may join this pool; None: any pool at all."""
        if Scope.WORK.value in self.scopes:
            return True
        if pool is None:
            return any(each.startswith(_WORK_IN) for each in self.scopes)
        return _WORK_IN + pool in self.scopes


def _scopes(value: object) -> frozenset[str]:
    return frozenset(strict.several(strict.matching(SCOPE_PATTERN), 1, SCOPES_MAX)(value))


_FORM = strict.Form(
    UserToken,
    {
        "federation": federation_id,
        "issuer": site_id,
        "id": strict.matching(TOKEN_PATTERN),
        "user": strict.line(USER_CHARS_MAX),
        "projects": strict.subset(strict.line(USER_CHARS_MAX), PROJECTS_MAX),
        "scopes": _scopes,
        "sites": lambda value: frozenset(strict.several(site_id, 1, SITES_MAX)(value)),
        "issued_s": strict.moment,
        "expires_s": strict.moment,
    },
    BODY_BYTES_MAX,
    closed=True,
)


def write_token(token: UserToken, key: SiteKey) -> str:
    """Sign a token and write it as text; ValueError when no site would accept it."""
    body = _FORM.encode(token)
    if not token.user:
        raise ValueError("a token must name a user")
    signature = key.sign(_DOMAIN, body)
    return to_text(PREFIX, msgpack.packb([body, signature], use_bin_type=True))


def read_token(text: str) -> tuple[UserToken, bytes, bytes]:
    """Read a token without checking it; return its content, its signed bytes, its signature.

    Raises:
        Untrusted: ALTERED, when it was not copied whole.
        ProtocolError: it is no token.
    """
    raw = from_text(PREFIX, text, TEXT_CHARS_MAX)
    body, signature = strict.decode_parts(raw, TEXT_CHARS_MAX, "body signature")
    return _FORM.decode(body), body, signature


def check_token(text: str, trust: Trust, utc_s: UtcS) -> UserToken:
    """Read and verify a token: signed by its site, for us, unexpired, not revoked.

    Of another site's token only the FOREIGN_SCOPES are left.

    Raises:
        ProtocolError: it is no token.
        Untrusted: ALTERED, WRONG_FEDERATION, WRONG_SITE, UNKNOWN_SITE, BAD_SIGNATURE, AHEAD,
            EXPIRED, REVOKED.
    """
    token, body, signature = read_token(text)
    if token.federation != trust.federation:
        raise Untrusted(
            TrustRefusal.WRONG_FEDERATION, f"the token is for federation {token.federation!r}"
        )
    if trust.site not in token.sites:
        raise Untrusted(
            TrustRefusal.WRONG_SITE, f"the token is for {', '.join(sorted(token.sites)[:8])}"
        )
    is_foreign = token.issuer != trust.site
    keys = trust.lasting_keys_of(token.issuer)
    if not keys or (is_foreign and not trust.welcomes(token.issuer)):
        raise Untrusted(
            TrustRefusal.UNKNOWN_SITE, f"tokens of site {token.issuer!r} are not accepted here"
        )
    if find_signer(keys, signature, _DOMAIN, body) is None:
        raise Untrusted(
            TrustRefusal.BAD_SIGNATURE, f"the token is not signed by site {token.issuer!r}"
        )
    if token.issued_s > utc_s + CLOCK_AHEAD_MAX_S:
        raise Untrusted(TrustRefusal.AHEAD, f"token {token.id} is not valid yet")
    if token.expires_s <= utc_s:
        raise Untrusted(TrustRefusal.EXPIRED, f"token {token.id} has expired")
    if token.id in trust.revoked_by(token.issuer):
        raise Untrusted(TrustRefusal.REVOKED, f"token {token.id} was revoked")
    return replace(token, scopes=token.scopes & FOREIGN_SCOPES) if is_foreign else token
