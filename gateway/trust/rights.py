"""The rights of clients: who may send which request, and whose rows the answer has. Pure.

One table has all questions and orders. A verb requires one of its scopes, and some verbs also
require the gateway's own socket. Its rows are

    NOBODYS   of no user: the site, its pools, its grids
    OWN       of users: an asker sees their own, unless they may see all
    SITE      of the site's dealings with other sites: for askers that may see all

All rows are seen by the operator (a client on the gateway's own socket, without a token), and by
holders of a token with the scope `audit`. A token that names projects shows these projects only. A
shared secret is one trust domain, in which names are not proved: its holders are shown their own
rows, and those of all users on request.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from federation.reasons import Reason
from federation.signed.tokens import Scope, UserToken
from federation.transport import Origin
from federation.words import clean
from policies.parties import Owner, Party, PartyKind

ALL_USERS: Final = "all_users"  # the detail of a question that asks for the rows of all users


class RowScope(Enum):
    """The owner of the rows that a verb shows or changes."""

    NOBODYS = auto()
    OWN = auto()
    SITE = auto()


@dataclass(frozen=True, slots=True)
class Right:
    """The requirements of a verb, and the owner of its rows.

    Attributes:
        rows: see RowScope.
        scopes: a token must have one of these; none: every client may ask.
        at_home: whether it also requires the gateway's own socket.
        takes_all_users: whether it is a list that can be asked for the rows of all users.
    """

    rows: RowScope
    scopes: tuple[Scope, ...] = ()
    at_home: bool = False
    takes_all_users: bool = False


_ADMIN: Final = (Scope.ADMIN,)
_CONTROL: Final = (Scope.CANCEL, Scope.SUBMIT, Scope.ADMIN)
_BILL: Final = (Scope.REPORT, Scope.AUDIT)
_ORDER: Final = Right(RowScope.SITE, _ADMIN, at_home=True)

RIGHTS: Final[Mapping[str, Right]] = {
    **dict.fromkeys(("status", "sites", "pools", "scale"), Right(RowScope.NOBODYS)),
    **dict.fromkeys(("jobs", "reservations"), Right(RowScope.OWN, takes_all_users=True)),
    **dict.fromkeys(("workers", "shares"), Right(RowScope.OWN, takes_all_users=True)),
    "large_arguments": Right(RowScope.NOBODYS, (Scope.SUBMIT,)),
    **dict.fromkeys(("object_host", "hold_objects"), Right(RowScope.OWN, (Scope.SUBMIT,))),
    "object": Right(RowScope.OWN),
    "drop_object": Right(RowScope.OWN, _CONTROL),
    "objects": Right(RowScope.OWN, takes_all_users=True),
    **dict.fromkeys(("job", "running", "results", "logs", "explain"), Right(RowScope.OWN)),
    **dict.fromkeys(("forget", "unreserve"), Right(RowScope.OWN, (Scope.CANCEL, Scope.SUBMIT))),
    **dict.fromkeys(("hold", "release", "prioritise"), Right(RowScope.OWN, _CONTROL)),
    "reserve": Right(RowScope.OWN, (Scope.SUBMIT,)),
    **dict.fromkeys(("report", "budgets"), Right(RowScope.OWN, _BILL, takes_all_users=True)),
    **dict.fromkeys(("page", "statement", "margin", "deals"), Right(RowScope.SITE, (Scope.AUDIT,))),
    **dict.fromkeys(("deliveries", "disputes"), Right(RowScope.SITE, (Scope.AUDIT,))),
    **dict.fromkeys(("payments", "alerts"), Right(RowScope.SITE, (Scope.AUDIT,))),
    **dict.fromkeys(
        ("drain", "drain_host", "drains", "consequences"), Right(RowScope.SITE, _ADMIN)
    ),
    **dict.fromkeys(("rules", "rule_history"), Right(RowScope.SITE, (Scope.AUDIT,))),
    **dict.fromkeys(("change_rules", "cancel_change"), _ORDER),
    **dict.fromkeys(("reload", "can", "probe_pool", "test_alert", "write_off"), _ORDER),
    **dict.fromkeys(("reconcile", "dispute", "answer_dispute", "settle", "undo_payment"), _ORDER),
    **dict.fromkeys(("invite", "join", "approve", "leave", "expel", "trust"), _ORDER),
    **dict.fromkeys(("token", "tokens", "revoke", "rotate", "known"), _ORDER),
}

_OTHERS: Final = frozenset({"user", "group", "site"})  # details of `can` that are about others


def right_to(verb: str, details: Mapping[str, Any] | None = None) -> Right:
    """Return the requirements of a verb; the strictest for a verb that is not in the table.

    `can` without a user, a group and a site is about its asker alone: every client may ask that.
    """
    if verb == "can" and details is not None and not _OTHERS & details.keys():
        return Right(RowScope.OWN)
    return RIGHTS.get(verb, _ORDER)


class Denied(Exception):
    """A request that a peer may not make; `code` is a Reason."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Asker:
    """A client that makes a request, and the rows that it may see.

    Attributes:
        handle: of the peer.
        user: the client's user name at this site.
        is_operator: whether it may change the rows of all users; see the function of this name.
        may_see_all: whether it may see the rows of all users.
        sees_all: whether this answer shows the rows of all users.
        projects: only rows of these are shown; None: of all.
        may_submit: whether its token, if it has one, permits jobs.
    """

    handle: int
    user: str
    is_operator: bool = False
    may_see_all: bool = False
    sees_all: bool = False
    projects: frozenset[str] | None = None
    may_submit: bool = True

    def sees(self, user: str, project: str, site: str = "") -> bool:
        """Whether a row of this user and project is shown; `site` is the one that sent the work."""
        is_covered = self.projects is None or project in self.projects
        return is_covered and (self.sees_all or (user == self.user and not site))

    def may_see(self, user: str, project: str, site: str = "") -> bool:
        """Whether one row, asked for by name, is shown: that needs no request for all users."""
        is_covered = self.projects is None or project in self.projects
        return is_covered and (self.may_see_all or (user == self.user and not site))

    @property
    def needs_audit(self) -> str:
        """What keeps an operator from the rows of others, for errors; empty: nothing, or no
        operator, who must not learn which rows there are."""
        if not self.is_operator or self.may_see_all:
            return ""
        return "jobs of other users are shown to a token with the scope audit"

    def uncovered(self, project: str) -> tuple[str, str] | None:
        """Why the asker's token permits no job of a project, as code and sentence; or None."""
        if not self.may_submit:
            return Reason.SCOPE_MISSING, "this token lacks the scope for jobs: submit"
        if self.projects is None or project in self.projects:
            return None
        known = ", ".join(sorted(self.projects))
        text = f"this token does not cover project {project!r:.80}: it covers {known}"
        return Reason.PROJECT_NOT_ALLOWED, text

    def owns(self, user: str, project: str) -> bool:
        """Whether the asker may read a row whole and change it: their own, of their projects."""
        return user == self.user and (self.projects is None or project in self.projects)

    def concerns(self, party: Party, asker: Owner) -> bool:
        """Whether a rule about a party is shown: it applies to the asker, with their groups."""
        if self.projects is not None and party.kind is PartyKind.PROJECT:
            return party.name in self.projects
        if self.sees_all:
            return self.projects is None
        # A user whose token names no project may work for any.
        is_project = party.kind is PartyKind.PROJECT
        return is_project or party.includes(asker)


def is_operator(peer: Any, token: UserToken | None) -> bool:
    """Whether a client may change the jobs and reservations of all users.

    It may by the gateway's own socket, or by a token of the scope admin. A token that is shown
    counts also at the gateway's own socket: it then grants no more than elsewhere.
    """
    if token is None:
        return bool(peer.is_local)
    return token.projects is None and token.allows(Scope.ADMIN)


def title_of(peer: Any, token: UserToken | None) -> str:
    """Return who a client is and by what it was admitted, for the log: `root (uid 0, …)`."""
    origin: Origin = peer.origin
    if token is not None:
        how = f"token {token.id}" if token.id else "the pass of a task"
    elif peer.is_local:
        how = "the gateway's own socket"
    else:
        how = "no token"
    where = f"from {origin.host}" if origin.host else f"uid {origin.uid}"
    is_known = origin.host or origin.uid is not None
    return f"{clean(peer.user)} ({f'{where}, ' if is_known else ''}{how})"


def asker_of(peer: Any, token: UserToken | None, right: Right, details: Mapping[str, Any]) -> Asker:
    """Return the asker of a request, with the rows that they may see; Denied without the right.

    Args:
        peer: of the listener.
        token: the client's; None for the operator, and for holders of the secret.
        right: the requirements of the request.
        details: of the request.
    """
    if right.scopes and token is not None and not any(map(token.allows, right.scopes)):
        names = " or ".join(right.scopes)
        where = " (and then at the gateway's own socket only)" if right.at_home else ""
        raise Denied(
            Reason.SCOPE_MISSING, f"this token lacks the scope for this request: {names}{where}"
        )
    projects = token.projects if token is not None else None
    may_see_all = token is None or token.allows(Scope.AUDIT)
    wants_all = details.get(ALL_USERS, False)
    if not isinstance(wants_all, bool):
        raise Denied(Reason.BAD_REQUEST, f"{ALL_USERS} must be true or false")
    if wants_all and not may_see_all:
        raise Denied(
            Reason.SCOPE_MISSING,
            "this token covers its own user's rows: all users' rows need the scope audit",
        )
    if right.rows is RowScope.SITE and Scope.ADMIN not in right.scopes and projects is not None:
        raise Denied(
            Reason.PROJECT_NOT_ALLOWED,
            (
                "this request covers the whole site, but this token only "
                f"{', '.join(sorted(projects))}"
            ),
        )
    sees_all = may_see_all and (wants_all or token is not None or peer.is_local)
    may_order = is_operator(peer, token)
    may_submit = token is None or token.allows(Scope.SUBMIT)
    return Asker(peer.handle, peer.user, may_order, may_see_all, sees_all, projects, may_submit)
