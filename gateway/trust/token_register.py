"""The tokens that this site has issued: whose they are, until when, and when they were last used.

A token is checked by its signature alone. The register is there for people: to see which tokens
there are, and to revoke one whose text is not at hand. It holds no token's text, and is a file of
its own beside the trust book (`tokens.json`): a site without the file goes on, with the tokens that
it makes from then on.

To revoke a user is to refuse every token of that user that was made before, also those that were
made by an older version, which kept no register.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from federation.clocks import UtcS
from federation.signed.tokens import UserToken
from gateway.trust.book_file import TrustFileError
from gateway.trust.keys import read_private

TOKENS_FILE: Final = "tokens.json"
VERSION: Final = 1
BYTES_MAX: Final = 64 << 20
KEPT_S: Final = 30 * 86_400.0  # how long an expired token stays in the list
KEPT_MAX: Final = 10_000  # tokens; of more, those that expired first are dropped
CUT_OFF_KEPT_S: Final = 2 * 366 * 86_400.0  # longer than any token is valid
USE_STEP_S: Final = 60.0  # uses of a token closer together than this are one


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token of this site, without its text.

    Attributes:
        id: 16 hexadecimal digits.
        projects: that it covers; None: all.
        made_at_s, expires_at_s: UTC.
        revoked_at_s: UTC; None: it was not revoked.
        used_at_s: when a session with it last began or ended, UTC; None: not since it was made.
        used_from: the host of that session; empty: this host.
    """

    id: str
    user: str
    scopes: tuple[str, ...]
    projects: tuple[str, ...] | None
    sites: tuple[str, ...]
    made_at_s: UtcS
    expires_at_s: UtcS
    revoked_at_s: UtcS | None = None
    used_at_s: UtcS | None = None
    used_from: str = ""

    def state(self, utc_s: UtcS) -> str:
        """Return `valid`, `revoked` or `expired`."""
        if self.revoked_at_s is not None:
            return "revoked"
        return "valid" if utc_s < self.expires_at_s else "expired"


class RegisterFull(Exception):
    """KEPT_MAX tokens are valid: none more can be registered."""


class TokenRegister:
    """The issued tokens, and the users whose earlier tokens are refused.

    `changes` counts the changes, for the owner of the file.
    """

    def __init__(self) -> None:
        self._tokens: dict[str, IssuedToken] = {}
        self._cut_off: dict[str, UtcS] = {}  # users, and the time up to which tokens are refused
        self.changes = 0

    def __iter__(self) -> Iterator[IssuedToken]:
        """Yield the tokens, those made last first."""
        return iter(sorted(self._tokens.values(), key=lambda each: (-each.made_at_s, each.id)))

    def find(self, token: str) -> IssuedToken | None:
        """Return a token by its id."""
        return self._tokens.get(token)

    def of_user(self, user: str, utc_s: UtcS) -> list[IssuedToken]:
        """Return the valid tokens of a user."""
        return [each for each in self if each.user == user and each.state(utc_s) == "valid"]

    def add(self, token: UserToken, utc_s: UtcS) -> None:
        """Register a token that is issued now. Raises RegisterFull."""
        self._prune(utc_s)
        if len(self._tokens) >= KEPT_MAX:
            ended = [each for each in self._tokens.values() if each.state(utc_s) != "valid"]
            if not ended:
                raise RegisterFull(
                    f"{KEPT_MAX:,} tokens of this site are valid already: let some expire, or "
                    "revoke those that nobody needs (`gridfed tokens list`)"
                )
            del self._tokens[min(ended, key=lambda each: each.expires_at_s).id]
        self._tokens[token.id] = IssuedToken(
            token.id,
            token.user,
            tuple(sorted(token.scopes)),
            None if token.projects is None else tuple(sorted(token.projects)),
            tuple(sorted(token.sites)),
            token.issued_s,
            token.expires_s,
        )
        self.changes += 1

    def revoke(self, tokens: Iterable[str], utc_s: UtcS) -> None:
        """Note that tokens, by their ids, are revoked; ids that are not registered are ignored."""
        for each in tokens:
            found = self._tokens.get(each)
            if found is not None and found.revoked_at_s is None:
                self._tokens[each] = replace(found, revoked_at_s=utc_s)
                self.changes += 1

    def cut_off(self, user: str, utc_s: UtcS) -> None:
        """Refuse every token of a user that was made until now."""
        self._cut_off[user] = utc_s
        self.changes += 1

    def is_cut_off(self, token: UserToken) -> bool:
        """Whether a token of this site is refused because its user's tokens were revoked."""
        until_s = self._cut_off.get(token.user)
        return until_s is not None and token.issued_s <= until_s

    def used(self, token: str, host: str, utc_s: UtcS) -> None:
        """Note that a session with a token began or ended now; `host`: empty for this one."""
        found = self._tokens.get(token)
        if found is None:
            return
        before_s = found.used_at_s
        if before_s is None or utc_s - before_s >= USE_STEP_S or found.used_from != host:
            self._tokens[token] = replace(found, used_at_s=utc_s, used_from=host)
            self.changes += 1

    def _prune(self, utc_s: UtcS) -> None:
        kept = {
            name: each for name, each in self._tokens.items() if utc_s < each.expires_at_s + KEPT_S
        }
        self._tokens = kept
        self._cut_off = {
            user: at_s for user, at_s in self._cut_off.items() if utc_s < at_s + CUT_OFF_KEPT_S
        }

    def to_plain(self) -> dict[str, Any]:
        """Return it as data for JSON."""
        return {
            "version": VERSION,
            "tokens": {each.id: asdict(each) for each in self._tokens.values()},
            "cut_off": dict(self._cut_off),
        }


def from_plain(plain: Any) -> TokenRegister:
    """Read `to_plain`'s data; ValueError, KeyError, TypeError or AttributeError if it is none."""
    if plain["version"] != VERSION:
        raise ValueError(
            f"version {plain['version']!r} is not {VERSION}: a newer gridfed wrote the file"
        )
    register = TokenRegister()
    for name, each in plain["tokens"].items():
        projects = each["projects"]
        register._tokens[str(name)] = IssuedToken(
            str(name),
            str(each["user"]),
            tuple(map(str, each["scopes"])),
            None if projects is None else tuple(map(str, projects)),
            tuple(map(str, each["sites"])),
            UtcS(float(each["made_at_s"])),
            UtcS(float(each["expires_at_s"])),
            _moment(each["revoked_at_s"]),
            _moment(each["used_at_s"]),
            str(each["used_from"]),
        )
    register._cut_off = {str(user): UtcS(float(at_s)) for user, at_s in plain["cut_off"].items()}
    return register


def _moment(value: Any) -> UtcS | None:
    return None if value is None else UtcS(float(value))


def load(folder: Path) -> TokenRegister:
    """Read the register of a folder of keys; an empty one if the file is missing.

    Raises:
        KeyFileError: others can read the file.
        TrustFileError: it is damaged, or of a newer version.
    """
    path = folder / TOKENS_FILE
    if not path.exists():
        return TokenRegister()
    try:
        return from_plain(json.loads(read_private(path, BYTES_MAX)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TrustFileError(
            f"{path}: {type(error).__name__}: {error}; without the file the gateway starts, with "
            "no list of the tokens made before"
        ) from None
