"""The trust book on disk: a JSON file, which operators can read and back up; hearsay beside it.

A file and not the ledger's tables: it is needed before there is a database (`gridfed init`,
`join`), changes when a person decides something or a card is renewed, and is a megabyte or two for
a thousand sites. JSON because the standard library both writes and reads it. Signed declarations
are in it as they were signed, in base64; fingerprints, addresses and contacts are there for the
reader, and are taken from the card when the file is read.

Hearsay has a file of its own: it is large, and changes when other sites like. Removing it loses
nothing that other members will not repeat.

The first file holds the secrets of open invitations: it is for its owner alone, like the keys
beside it.
"""

import base64
import json
from pathlib import Path
from typing import Any, Final

from federation.clocks import UtcS
from federation.errors import GridError, ProtocolError
from federation.signed.declarations import (
    Expulsion,
    Farewell,
    Revocations,
    Signed,
    parse,
    read_card,
)
from gateway.config.federation import Follow
from gateway.trust import permissions
from gateway.trust.book import TrustBook
from gateway.trust.hearsay import PER_SOURCE_MAX, TOLD_MAX, Hearsay
from gateway.trust.invitations import Invitations, Issued
from gateway.trust.keys import read_private, write_private
from gateway.trust.permissions import PermissionRule
from gateway.trust.standing import TrustedMember, TrustLevel

VERSION: Final = 1
BYTES_MAX: Final = 256 << 20


class TrustFileError(GridError):
    """A trust file that can't be used; the text says which and what is wrong with it."""


def save(path: Path, book: TrustBook, invitations: Invitations) -> None:
    """Replace the file by the book's present content; it is on disk when this returns."""
    save_plain(path, to_plain(book, invitations))


def save_plain(path: Path, plain: dict[str, Any]) -> None:
    """Replace a file by plain data that does not change any more; in any thread."""
    write_private(path, _text_of(plain).encode() + b"\n")


def load(path: Path, follow: Follow = Follow.TWO) -> tuple[TrustBook, Invitations]:
    """Read a trust file.

    Raises:
        KeyFileError: it is missing, or others can read it.
        TrustFileError: it is damaged, or of a newer version.
    """
    try:
        return from_plain(json.loads(read_private(path, BYTES_MAX)), follow)
    except (ValueError, KeyError, TypeError, AttributeError, ProtocolError) as error:
        raise TrustFileError(f"{path}: {type(error).__name__}: {error}") from None


def line_of(book: TrustBook, invitations: Invitations, site: str, rule: PermissionRule) -> int:
    """Return the line of the saved file where a rule for a site begins: its own, or all sites'.

    Raises ValueError: there is no such rule.
    """
    plain = to_plain(book, invitations)
    holder = plain
    if rule not in book.rules:
        holder = plain["sites"][site]
    mark = "\0rule\0"
    holder["rules"][holder["rules"].index(permissions.to_plain(rule))] = mark
    text = _text_of(plain)
    return text[: text.index(json.dumps(mark))].count("\n") + 1


def _text_of(plain: dict[str, Any]) -> str:
    return json.dumps(plain, indent=1, ensure_ascii=False)


def to_plain(book: TrustBook, invitations: Invitations) -> dict[str, Any]:
    """Return book and invitations as data for JSON."""
    return {
        "version": VERSION,
        "site": book.site,
        "federation": book.federation,
        "own": _member(book.own),
        "rules": _rules(book.rules),
        "revoked": book.revoked,
        "sites": {site: _member(each) for site, each in sorted(book.members.items())},
        "expulsions": [_base64(each.raw) for each in book.expulsions],
        "invitations": {
            each: {
                "secret": _base64(issued.secret),
                "expires_s": issued.expires_s,
                "approve": issued.approve,
                "used_by": issued.used_by,
                "used_key": _base64(issued.used_key),
            }
            for each, issued in invitations
        },
    }


def from_plain(plain: Any, follow: Follow) -> tuple[TrustBook, Invitations]:
    """Read `to_plain`'s data; ValueError, KeyError, TypeError, AttributeError or ProtocolError."""
    if plain["version"] != VERSION:
        raise ValueError(
            f"version {plain['version']!r} is not {VERSION}: a newer gridfed wrote the file"
        )
    own = _read_member(plain["own"])
    book = TrustBook(own.card, follow)
    book.own = own
    book.rules = _read_rules(plain["rules"])
    book.revoked = {str(each): UtcS(until_s) for each, until_s in plain["revoked"].items()}
    for site, each in plain["sites"].items():
        if _is_hearsay(each):  # of an earlier version, which kept it here
            if len(book.hearsay) < PER_SOURCE_MAX:
                book.hearsay.put("", TrustedMember(read_card(_from_base64(each["card"]))))
            continue
        member = _read_member(each)
        if member.card.content.site != site:
            raise ValueError(f"the card of {site!r} names site {member.card.content.site!r}")
        book.members[site] = member
    for each in plain["expulsions"]:
        book.expulsions.put(parse(Expulsion, _from_base64(each)))
    invitations = Invitations()
    for name, each in plain["invitations"].items():
        invitations.issued[name] = Issued(
            secret=_from_base64(each["secret"]),
            expires_s=UtcS(each["expires_s"]),
            approve=bool(each["approve"]),
            used_by=str(each["used_by"]),
            used_key=_from_base64(each["used_key"]),
        )
    return book, invitations


def _is_hearsay(plain: Any) -> bool:
    """Whether a member in the file is one about which nothing was decided here."""
    is_decided = plain["level"] != TrustLevel.KNOWN or plain["level_serial"]
    said = ("rules", "pickles", "users", "evidence")
    return not is_decided and not any(plain[each] for each in said)


# --- hearsay -------------------------------------------------------------------------------------


def hearsay_to_plain(hearsay: Hearsay) -> dict[str, Any]:
    """Return the cards that other members have passed on, as data for JSON; for `save_plain`."""
    told: dict[str, dict[str, Any]] = {}
    for source, site, member in hearsay.items():
        told.setdefault(source, {})[site] = {
            "fingerprint": member.fingerprint,
            "contact": member.card.content.contact,
            "card": _base64(member.card.raw),
        }
    forgotten = {source: hearsay.forgotten(source) for source in hearsay.muted}
    return {"version": VERSION, "told": told, "forgotten": forgotten}


def load_hearsay(path: Path, book: TrustBook) -> None:
    """Read the hearsay file into a book; do nothing if there is none.

    Raises:
        KeyFileError: others can read it.
        TrustFileError: it is damaged.
    """
    if not path.exists():
        return
    try:
        plain = json.loads(read_private(path, BYTES_MAX))
        for source, told in plain["told"].items():
            for site, each in list(told.items())[:PER_SOURCE_MAX]:
                card = read_card(_from_base64(each["card"]))
                is_known = site == book.site or site in book.members
                if card.content.site == site and not is_known and len(book.hearsay) < TOLD_MAX:
                    book.hearsay.put(str(source), TrustedMember(card))
        for source, sites in plain["forgotten"].items():
            book.hearsay.note_forgotten(str(source), map(str, sites))
    except (ValueError, KeyError, TypeError, AttributeError, ProtocolError) as error:
        raise TrustFileError(
            f"{path}: {type(error).__name__}: {error}: remove the file; the other members "
            "report its content again"
        ) from None


# --- members -------------------------------------------------------------------------------------


def _member(member: TrustedMember) -> dict[str, Any]:
    return {
        "level": member.decided.value,
        "level_serial": member.decided_serial,
        "fingerprint": member.fingerprint,
        "addresses": list(member.card.content.addresses),
        "contact": member.card.content.contact,
        "rules": _rules(member.rules),
        "pickles": member.pickles,
        "users": member.users,
        "card": _base64(member.card.raw),
        "lineage": [_base64(each.raw) for each in member.lineage],
        "farewell": _signed(member.farewell),
        "revocations": _signed(member.revocations),
        "evidence": [_base64(each) for each in member.evidence],
        "acknowledged": [_base64(each) for each in sorted(member.acknowledged)],
        "awaits": member.awaits,
    }


def _read_member(plain: Any) -> TrustedMember:
    farewell, revocations = plain["farewell"], plain["revocations"]
    return TrustedMember(
        card=read_card(_from_base64(plain["card"])),
        decided=TrustLevel(plain["level"]),
        decided_serial=int(plain["level_serial"]),
        rules=_read_rules(plain["rules"]),
        pickles=bool(plain["pickles"]),
        users=bool(plain["users"]),
        lineage=[read_card(_from_base64(each)) for each in plain["lineage"]],
        farewell=parse(Farewell, _from_base64(farewell)) if farewell else None,
        revocations=parse(Revocations, _from_base64(revocations)) if revocations else None,
        evidence=[_from_base64(each) for each in plain["evidence"]],
        acknowledged=frozenset(_from_base64(each) for each in plain.get("acknowledged", ())),
        awaits=str(plain.get("awaits", "")),
    )


def _rules(rules: frozenset[PermissionRule]) -> list[dict[str, Any]]:
    return sorted((permissions.to_plain(each) for each in rules), key=repr)


def _read_rules(plain: Any) -> frozenset[PermissionRule]:
    return frozenset(permissions.from_plain(each) for each in plain)


def _signed(declaration: Signed[Any] | None) -> str:
    return _base64(declaration.raw) if declaration else ""


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
