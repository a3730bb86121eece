"""Names of users and projects that a hello, a token and a job may contain. Pure.

Users of another site are known here as `ada@paris`, and rules name parties as `group:quants`. A
user of this site can't have such a name, or would be mistaken for another party.
"""

import re
from typing import Final

# The pattern of a site's name. It is here because a client knows users and needs no cryptography.
SITE_PATTERN: Final = "[a-z0-9-]{3,40}"
USER_CHARS_MAX: Final = 200
_PARTY: Final = re.compile(r"(user|group|project|site):", re.ASCII)
_OF_A_SITE: Final = re.compile(rf"@({SITE_PATTERN})\Z", re.ASCII)


def check_user(name: str) -> str:
    """Return the valid name of a user of this site; ValueError has the reason otherwise.

    An address with a domain (ada@bank.example) is a name. A name is invalid if the part behind the
    last @ could be a site, or if it reads as a party of a rule.
    """
    _check_text("user", name)
    if _PARTY.match(name):
        raise ValueError(
            f"{name[:60]!r} is not a valid user name: it begins like a party of a rule"
        )
    if _OF_A_SITE.search(name):
        raise ValueError(
            f"{name[:60]!r} is not a valid user name here: the form NAME@SITE is for users "
            "of other sites, who connect with a token of their site"
        )
    return name


def check_project(name: str) -> str:
    """Return the valid name of a project; ValueError has the reason otherwise."""
    _check_text("project", name)
    return name


def _check_text(what: str, name: str) -> None:
    """Refuse text that would be shown as another name than it is."""
    if not name:
        raise ValueError(f"the {what} name is empty")
    if len(name) > USER_CHARS_MAX:
        raise ValueError(
            f"the {what} name has {len(name)} characters, the limit is {USER_CHARS_MAX}"
        )
    if not name.isprintable() or name != name.strip():
        raise ValueError(
            f"the {what} name {name[:60]!a} has invisible characters, or blanks at an end"
        )


def site_of(user: str) -> str:
    """Return the site that vouches for a user known here as `ada@paris`; empty: this site."""
    found = _OF_A_SITE.search(user)
    return found[1] if found else ""
