"""An operator's orders about keys and trust: each verb of `gridfed` that changes the trust book.

The same code serves a command while no gateway runs and the gateway while it does: the process that
holds the folder (gateway.trust.identity_store). Details are plain data, checked here; an answer is
plain data.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from typing import Any, Final

from federation.errors import GridError
from federation.signed import strict
from federation.signed.declarations import (
    REASON_CHARS_MAX,
    Revocations,
    Signed,
)
from federation.signed.identity import site_id
from federation.signed.tokens import PREFIX, Scope, UserToken, check_token, write_token
from federation.users import check_project, check_user
from gateway.base.details import DetailReader, Details
from gateway.base.values import suggest
from gateway.peering.join_server import join
from gateway.peering.order_lines import order_words
from gateway.trust import permissions
from gateway.trust.book import BookError
from gateway.trust.identity_store import Registry
from gateway.trust.invitations import SECRET_BYTES, VALID_S, write_invitation
from gateway.trust.permissions import ANY, PermissionRule, Verb
from gateway.trust.standing import TrustedMember, TrustLevel
from gateway.trust.token_register import RegisterFull

TOKEN_VALID_S: Final = 12 * 3600.0
VALID_MAX_S: Final = 366 * 86400.0
RULES_MAX: Final = 256
TOKENS_SHOWN_MAX: Final = 5_000

SECRETS: Final = frozenset({"invitation", "token"})  # grant access
CHARS_MAX: Final = 1 << 16  # of a token or an invitation


class BadOrder(GridError):
    """An order that can't be carried out as given."""


READ: Final = DetailReader(BadOrder)


async def perform(registry: Registry, verb: str, details: Details) -> Any:
    """Carry out an order; its results are on disk when this returns.

    Raises:
        GridError: it can't be done; the text says why. Nothing has changed then.
    """
    return await VERBS[verb](registry, details)


def shown(verb: str, details: Details, found: Any = None, by: str = "") -> str:
    """Format an order for the log, without secrets; empty when it changes nothing.

    Args:
        found: its answer, of which the ids of tokens are told.
        by: who gave it; empty: not told.
    """
    text = order_words(verb, details, found)
    who = f" by {by}" if by else ""
    return f"order{who}: {text}" if text else ""


async def _invite(registry: Registry, details: Details) -> Any:
    """Make an invitation: {expires_s, approve} → {text, …}."""
    if not registry.join_address:
        raise BadOrder(
            "this site has no address where invited sites can join: set [federation] "
            "join_listen, and join_advertise if that is every interface or port 0"
        )
    if registry.has_left:
        raise BadOrder("this site has left its federation")
    made = registry.invitations.make(
        registry.book.own.card.content,
        registry.active.leaf.certificate,
        registry.join_address,
        secrets.token_bytes(SECRET_BYTES),
        registry.clock(),
        valid_s=_span(details, "expires_s", VALID_S),
        approve=READ.flag(details, "approve"),
    )
    registry.save()
    return {
        "invitation": write_invitation(made),
        "id": made.id,
        "federation": made.federation,
        "site": made.site,
        "address": made.address,
        "expires_s": made.expires_s,
        "fingerprint": registry.book.own.fingerprint,
    }


async def _join(registry: Registry, details: Details) -> Any:
    """Join with an invitation: {invitation, approve} → the inviter, and our level there."""
    joined = await join(
        registry, READ.text(details, "invitation", CHARS_MAX), approve=READ.flag(details, "approve")
    )
    site = joined.card.content.site
    return {
        **_view(registry, site, registry.book.members[site]),
        "federation": registry.federation,
        "there": joined.level.value,
        "own_fingerprint": registry.book.own.fingerprint,
    }


async def _approve(registry: Registry, details: Details) -> Any:
    """Approve a site whose fingerprint was compared: {site, fingerprint, new_keys} → the site.

    Without a fingerprint nothing changes; the answer has the one to compare. With `new_keys` it is
    that of keys which replace those of an approved site.
    """
    site, shown = _site(details), details.get("fingerprint", "")
    if READ.flag(details, "new_keys"):
        registry.book.await_keys(site, READ.text(details, "fingerprint"))
        registry.save()
    elif shown:
        registry.book.approve(site, READ.text(details, "fingerprint"))
        registry.save()
    return _view(registry, site, _member(registry, site))


async def _leave(registry: Registry, _details: Details) -> Any:
    """Leave the federation: {} → the sites that are told."""
    if registry.has_left:
        raise BadOrder("this site has left already")
    told = registry.approved
    said = registry.book.leave(registry.signing_key, registry.clock())
    registry.save(("farewell", said.raw))
    return {"site": registry.site, "federation": registry.federation, "told": told}


async def _expel(registry: Registry, details: Details) -> Any:
    """Expel a site, or revoke that: {site, reason, keep} → the site."""
    site = _site(details)
    reason = str(_line(details.get("reason", "")))
    book = registry.book
    if book.find(site) is None and not book.expulsions.is_expelled(site):
        raise BadOrder(_not_found(registry, site))
    say = book.keep if READ.flag_or_none(details, "keep") else book.expel
    word = say(site, reason, registry.signing_key, registry.clock())
    registry.save(("expulsion", word.raw))
    level = registry.level(site)
    return {"site": site, "level": level.value if level else "unknown", "reason": reason}


async def _trust(registry: Registry, details: Details) -> Any:
    """Set the permissions of a site: {site, may_send, never_run, …, pickles, users} → the site.

    `may_send`, `may_run`, `never_send` and `never_run` are lists of rules in the trust file's
    format. Each replaces the rules of its kind; omitted kinds are unchanged.
    """
    site = ANY if details.get("site") == ANY else _site(details)
    book = registry.book
    rules = book.rules if site == ANY else _member(registry, site).rules
    for verb in Verb:
        for permits in (True, False):
            key = f"{'may' if permits else 'never'}_{verb.value}"
            given = details.get(key)
            if given is None:
                continue
            kept = {rule for rule in rules if (rule.verb, rule.permits) != (verb, permits)}
            new = set(_kept_rules(given, verb))
            if any(rule.permits is not permits for rule in new):
                raise BadOrder(f"{key} has a rule that {'forbids' if permits else 'permits'}")
            rules = frozenset(kept | new)
    book.trust(site, rules)
    pickles, users = READ.flag_or_none(details, "pickles"), READ.flag_or_none(details, "users")
    if site == ANY:
        if pickles is not None or users is not None:
            raise BadOrder("pickles and users are set for one site at a time")
        registry.save()
        return {"site": ANY, "rules": [permissions.to_plain(rule) for rule in rules]}
    if pickles is not None:
        book.trust_results(site, pickles=pickles)
    if users is not None:
        book.welcome(site, users=users)
    registry.save()
    return _view(registry, site, _member(registry, site))


def _kept_rules(rules: Any, verb: Verb) -> Iterable[PermissionRule]:
    """Yield rules that are fully enforced here; BadOrder names a part that would be ignored."""
    for rule in _rules(rules, verb):
        if ANY not in rule.classes:
            raise BadOrder("classes= has no effect yet: jobs have no class of secrecy")
        if verb is Verb.RUN and (rule.slots_max is not None or rule.budget_nanos is not None):
            raise BadOrder(
                "slots= and budget= are only for --may-send; the cost of our work elsewhere "
                "is limited by its users (max_cost)"
            )
        yield rule


def _is_scope(text: str) -> bool:
    name, has_pool, _ = text.partition(":")
    return name in set(Scope) and (not has_pool or name == Scope.WORK)


async def _token(registry: Registry, details: Details) -> Any:
    """Sign a user token: {user, projects, scopes, sites, expires_s} → {token, id, …}."""
    utc_s = registry.clock()
    projects = details.get("projects")
    scopes = READ.names(details, "scopes") or [Scope.SUBMIT, Scope.CANCEL]
    unknown = {each for each in scopes if not _is_scope(each)}
    if unknown:
        raise BadOrder(f"unknown scope {min(unknown)!r}; known scopes: {', '.join(Scope)}")
    try:
        user = check_user(READ.text(details, "user"))
        projects = (
            None if projects is None else [*map(check_project, READ.names(details, "projects"))]
        )
    except ValueError as error:
        raise BadOrder(str(error)) from None
    token = UserToken(
        federation=registry.federation,
        issuer=registry.site,
        id=secrets.token_hex(8),
        user=user,
        projects=None if projects is None else frozenset(projects),
        scopes=frozenset(map(str, scopes)),
        sites=frozenset(READ.names(details, "sites") or [registry.site]),
        issued_s=utc_s,
        expires_s=utc_s + _span(details, "expires_s", TOKEN_VALID_S),
    )
    try:
        text = write_token(token, registry.signing_key)
        registry.tokens.add(token, utc_s)
    except (ValueError, RegisterFull) as error:
        raise BadOrder(str(error)) from None
    registry.save()  # it can be revoked by its id from now on
    return {
        "token": text,
        "id": token.id,
        "user": token.user,
        "scopes": sorted(token.scopes),
        "sites": sorted(token.sites),
        "projects": None if token.projects is None else sorted(token.projects),
        "expires_s": token.expires_s,
    }


async def _revoke(registry: Registry, details: Details) -> Any:
    """Revoke tokens of ours: {token}, its text or its id, or {user} → {id, user, tokens}.

    `tokens` are the ids that are declared to other sites. All tokens of a user that were made until
    now are refused here, also those that are not registered.
    """
    utc_s = registry.clock()
    if "user" in details:
        if "token" in details:
            raise BadOrder("revoke a token or a user, not both at once")
        user = READ.text(details, "user")
        found = {each.id: each.expires_at_s for each in registry.tokens.of_user(user, utc_s)}
        said = registry.book.revoke(found, registry.signing_key, utc_s)
        registry.tokens.cut_off(user, utc_s)
        return _revoked(registry, said, {"id": "", "user": user, "tokens": [*found]})
    text = READ.text(details, "token", CHARS_MAX)
    if not text.startswith(PREFIX):
        known = registry.tokens.find(text)
        if known is None:
            raise BadOrder(
                f"no token with the id {text[:60]!a} found here, and nothing was revoked: `gridfed "
                "tokens list --all` shows the ids. A token that is not in that list is revoked by "
                "its text, or with all others of its user by --user"
            )
        if known.state(utc_s) == "expired":
            raise BadOrder(f"token {text} of {known.user} has expired already")
        said = registry.book.revoke({text: known.expires_at_s}, registry.signing_key, utc_s)
        return _revoked(registry, said, {"id": text, "user": known.user, "tokens": [text]})
    token = check_token(text, registry.book, utc_s)
    if token.issuer != registry.site:
        raise BadOrder(f"site {token.issuer!r} issued this token: it can be revoked only there")
    said = registry.book.revoke({token.id: token.expires_s}, registry.signing_key, utc_s)
    return _revoked(registry, said, {"id": token.id, "user": token.user, "tokens": [token.id]})


def _revoked(registry: Registry, said: Signed[Revocations], answer: dict[str, Any]) -> Any:
    """Write a revocation down, and return the answer."""
    registry.tokens.revoke(answer["tokens"], registry.clock())
    registry.save(("revocations", said.raw))
    return answer


async def _tokens(registry: Registry, details: Details) -> Any:
    """List the tokens that this site issued: {user, all} → rows, those made last first.

    Without `all` only those that are valid. The text of a token is kept nowhere.
    """
    user, utc_s = details.get("user"), registry.clock()
    if user is not None and type(user) is not str:
        raise BadOrder("user must be a name")
    shows_all = READ.flag(details, "all")
    found = []
    for each in registry.tokens:
        state = each.state(utc_s)
        if each.id in registry.book.revoked:
            state = "revoked"
        if user in (None, each.user) and (shows_all or state == "valid"):
            found.append({**asdict(each), "state": state})
    return found[:TOKENS_SHOWN_MAX]


async def _rotate(registry: Registry, details: Details) -> Any:
    """Start a key rotation: {compromised, force} → its stage, and members that lack the keys."""
    compromised = READ.flag(details, "compromised")
    force = READ.flag(details, "force")
    hosts = {each.removeprefix("tls+tcp://").rpartition(":")[0] for each in registry.addresses}
    names = sorted(host.strip("[]") for host in hosts)
    awaited = registry.rotate(names, compromised=compromised, force=force)
    if compromised:  # no token that was signed before is valid any more
        utc_s = registry.clock()
        valid = [each.id for each in registry.tokens if each.state(utc_s) == "valid"]
        registry.tokens.revoke(valid, utc_s)
        registry.save()
    return {
        "site": registry.site,
        "stage": registry.rotation.value,
        "fingerprint": registry.book.own.fingerprint,
        "awaited": awaited,
    }


async def _known(registry: Registry, details: Details) -> Any:
    """List the trust book: {from, forget} → ourselves and every site that we know.

    With `from`, only the sites known from that member alone, without a decision here. With
    `forget`, these are forgotten, and not accepted from that member again.
    """
    book = registry.book
    source, forget = details.get("from"), READ.flag(details, "forget")
    if source is None and forget:
        raise BadOrder("forget needs `from`, the member whose reports are forgotten")
    if source is not None and (type(source) is not str or source not in book.hearsay.sources):
        said = ", ".join(each or '""' for each in book.hearsay.sources) or "none"
        raise BadOrder(
            f"{source!r} has reported no site that is known only by hearsay; members with "
            f"such reports: {said}"
        )
    own = _view(registry, registry.site, book.own)
    own["level"] = TrustLevel.LEFT.value if registry.has_left else "self"
    if source is None:
        sites = sorted({*book.members, *book.hearsay.sites})
        views = [own, *(_view(registry, site, _member(registry, site)) for site in sites)]
    else:
        told = book.hearsay.told_by(source)
        views = [_view(registry, site, _member(registry, site)) for site in told]
        if forget:
            book.hearsay.forget(source)
            registry.save()
    return {
        "federation": registry.federation,
        "rotation": registry.rotation.value,
        "awaited": registry.awaited,
        "sites": views,
    }


VERBS: Final[dict[str, Callable[[Registry, Details], Awaitable[Any]]]] = {
    "invite": _invite,
    "join": _join,
    "approve": _approve,
    "leave": _leave,
    "expel": _expel,
    "trust": _trust,
    "token": _token,
    "tokens": _tokens,
    "revoke": _revoke,
    "rotate": _rotate,
    "known": _known,
}


def _view(registry: Registry, site: str, member: TrustedMember) -> dict[str, Any]:
    """Return a site in the form shown to people."""
    level, card = registry.level(site), member.card.content
    shared = registry.book.rules
    return {
        "site": site,
        "level": level.value if level else "unknown",
        "has_expelled_us": site in registry.expelled_by,
        "fingerprint": member.fingerprint,
        "awaits": member.awaits,
        "addresses": list(card.addresses),
        "contact": card.contact,
        "serial": card.serial,
        "rules": [permissions.to_plain(rule) for rule in sorted(member.rules, key=repr)],
        "rules_of_all": [permissions.to_plain(each) for each in sorted(shared, key=repr)],
        "pickles": member.pickles,
        "users": member.users,
        "evidence": len(member.evidence),
        "from": registry.book.hearsay.sources_of(site),
    }


# --- details -------------------------------------------------------------------------------------


def _line(value: object) -> object:
    """Return a line that may be shown to people; BadOrder."""
    try:
        return strict.line(REASON_CHARS_MAX)(value)
    except ValueError as error:
        raise BadOrder(f"the reason {error}") from None


def _not_found(registry: Registry, site: str) -> str:
    """Return the refusal of a site that is not in the trust book, with the one that is meant."""
    return f"site {site!r} not found in the trust book{suggest(site, registry.book.members)}"


def _member(registry: Registry, site: str) -> TrustedMember:
    member = registry.book.find(site)
    if member is None:
        raise BookError(_not_found(registry, site))
    return member


def _site(details: Details) -> str:
    try:
        return str(site_id(details.get("site")))
    except ValueError as error:
        raise BadOrder(f"invalid site name: it {error}") from None


def _rules(plain: object, verb: Verb) -> list[permissions.PermissionRule]:
    if not isinstance(plain, list) or len(plain) > RULES_MAX:
        raise BadOrder(f"rules must be a list of at most {RULES_MAX}")
    try:
        rules = [permissions.from_plain(each) for each in plain]
    except ValueError as error:
        raise BadOrder(f"invalid rule: {error}") from None
    if any(rule.verb is not verb for rule in rules):
        raise BadOrder(f"a rule under {verb} is for the other direction")
    return rules


def _span(details: Details, key: str, default_s: float) -> float:
    value = details.get(key, default_s)
    if type(value) not in (int, float) or not 0 < value <= VALID_MAX_S:
        raise BadOrder(f"{key} must be above zero, and at most {VALID_MAX_S / 86400:g} days")
    return float(value)
