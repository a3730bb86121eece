"""Orders about keys and trust in words, for the log: the act, and the site, token or user. Pure.

The details of an order that is refused may hold anything: each is written within a bound.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from federation.words import duration_text

VALUE_CHARS_MAX: Final = 200
_RULES: Final = ("may_send", "may_run", "may_read", "never_send", "never_run", "never_read")


def order_words(verb: str, details: Mapping[str, Any], found: Any = None) -> str:
    """Return an order as a noun with its object, without secrets; empty when it changes nothing.

    Args:
        verb: the order.
        details: as it was given.
        found: its answer, of which the ids of tokens are told; None: it was refused.
    """
    site = written(details.get("site", ""))
    match verb:
        case "tokens":
            return ""
        case "known":
            source = written(details.get("from", ""))
            return f"forget the sites that {source} has reported" if details.get("forget") else ""
        case "invite":
            approve = ", the site that joins is approved at once" if details.get("approve") else ""
            return f"invitation{_validity(details)}{approve}"
        case "join":
            return "join a federation with an invitation"
        case "approve":
            shown = details.get("fingerprint")
            return f"approval of site {site}, fingerprint {written(shown)}" if shown else ""
        case "leave":
            return "leave the federation"
        case "expel":
            reason = written(details.get("reason") or "no reason given")
            return f"{'end of the ' * bool(details.get('keep'))}expulsion of site {site}: {reason}"
        case "trust":
            whose = "all sites" if details.get("site") == "*" else f"site {site}"
            return f"rules for {whose}: {'; '.join(_rules(details)) or 'unchanged'}"
        case "token":
            return f"{_token(details)}{_ids(found)}"
        case "revoke":
            user = written(details.get("user", ""))
            return (
                f"revocation of {f'all tokens of user {user}' if user else 'a token'}{_ids(found)}"
            )
        case "rotate":
            why = ": the old ones are compromised" if details.get("compromised") else ""
            return f"rotation of the keys{why}"
    return verb


def written(value: object) -> str:
    """Write a value of a detail: a list with commas, within a bound."""
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(written(each) for each in list(value)[:20])[:VALUE_CHARS_MAX]
    return str(value)[:VALUE_CHARS_MAX]


def _validity(details: Mapping[str, Any]) -> str:
    lasts_s = details.get("expires_s")
    if not isinstance(lasts_s, int | float):
        return ""
    return f", valid for {duration_text(float(lasts_s))}"


def _token(details: Mapping[str, Any]) -> str:
    parts = [
        f"{key} {written(details[key])}"
        for key in ("scopes", "projects", "sites")
        if details.get(key)
    ]
    about = f": {'; '.join(parts)}" if parts else ""
    return f"token for user {written(details.get('user', ''))}{about}{_validity(details)}"


def _ids(found: Any) -> str:
    """Return the ids of the tokens in an answer."""
    if not isinstance(found, dict):
        return ""
    ids = ", ".join(filter(None, found.get("tokens") or [found.get("id", "")]))
    return f" (token {ids})" if ids else ""


def _rules(details: Mapping[str, Any]) -> Iterator[str]:
    """Yield the kinds of rules that are set, and the flags, as `gridfed trust` takes them."""
    for key in _RULES:
        given = details.get(key)
        if given is not None:
            rules = given if isinstance(given, list) else [given]
            texts = " or ".join(map(_rule, rules[:20])) or "none"
            yield f"{key.replace('_', ' ')} {texts}"
    for key, what in (("pickles", "results"), ("users", "users")):
        if details.get(key) is not None:
            yield f"its {what} are {'' if details[key] is True else 'not '}trusted"


def _rule(rule: object) -> str:
    if not isinstance(rule, dict):
        return written(rule)
    limits = {key: each for key, each in rule.items() if key not in ("rule", "verb")}
    return ", ".join(f"{written(key)}={written(each)}" for key, each in limits.items()) or "all"
