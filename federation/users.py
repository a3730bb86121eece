"""Names of users, as a hello and a token may say them. Pure.

Users of another site are known here as `ada@paris`, and rules name parties as `group:quants`: a
user of ours can't be called so, or they would be taken for somebody else.
"""

import getpass
import os
import re
from typing import Final

# Of the name of a site. It is here, as a client knows users and needs no cryptography.
SITE_PATTERN: Final = "[a-z0-9-]{3,40}"
USER_CHARS_MAX: Final = 200
_PARTY: Final = re.compile(r"(user|group|project|site):", re.ASCII)
_OF_A_SITE: Final = re.compile(rf"@({SITE_PATTERN})\Z", re.ASCII)


def check_user(name: str) -> str:
    """The name of a user of ours; ValueError says what is wrong with it.

    An address with a domain (ada@bank.example) is a name; what could be a site behind the last @
    is none, nor is a name that reads as a party of a rule.
    """
    if not name:
        raise ValueError("a user needs a name: it is empty")
    if len(name) > USER_CHARS_MAX:
        raise ValueError(f"a user's name may have {USER_CHARS_MAX} characters: it has {len(name)}")
    if not name.isprintable() or name != name.strip():
        raise ValueError(f"the user's name {name[:60]!r} has characters that are not seen")
    if _PARTY.match(name):
        raise ValueError(f"{name[:60]!r} is no user's name: it begins as a party of a rule does")
    if _OF_A_SITE.search(name):
        raise ValueError(
            f"{name[:60]!r} is no user's name here: users of other sites are called so, and come "
            "by their site's token"
        )
    return name


def site_of(user: str) -> str:
    """The site that vouches for a user, of one who is known here as `ada@paris`; empty: ours."""
    found = _OF_A_SITE.search(user)
    return found[1] if found else ""


def login() -> str:
    """What this process's user is called on this host; a user without a name, by number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"
