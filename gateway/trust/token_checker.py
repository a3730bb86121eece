"""Authentication of clients and workers by tokens: their users, scopes and lifetimes. Pure.

A site that has keys accepts its own tokens, and those of sites whose users it welcomes. A token
takes precedence over the hello: the user is the token's. A peer with the shared secret has no
pass, and may do all that clients and workers may, unless the site requires tokens.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from federation.clocks import UtcS
from federation.errors import ProtocolError, SessionRefused
from federation.messages.messages import (
    Ask,
    Cancel,
    Challenge,
    CloseJob,
    Hello,
    OpenJob,
    PutFunction,
    Tasks,
)
from federation.reasons import Reason
from federation.sessions.handshake import Credentials, Prover, SharedSecret
from federation.signed.identity import Trust, TrustRefusal, Untrusted
from federation.signed.tokens import Scope, UserToken, check_token
from federation.transport import Origin
from federation.users import check_user
from federation.wishes import USUAL_PROJECT
from gateway.scheduler.model.terms import Warrant
from gateway.trust.rights import Denied

NO_TOKEN: Final = "token"  # noqa: S105 - the code of a refusal
NO_SCOPE: Final = "scope"
EXPOSED: Final = "exposed"
# Any of these scopes admits a client; its messages are checked one by one.
_CLIENT: Final = (Scope.SUBMIT, Scope.CANCEL, Scope.REPORT, Scope.AUDIT, Scope.ADMIN)
_SCOPES: Final[dict[type, tuple[Scope, ...]]] = {
    PutFunction: (Scope.SUBMIT,),
    OpenJob: (Scope.SUBMIT,),
    Tasks: (Scope.SUBMIT,),
    CloseJob: (Scope.SUBMIT,),
    # The scopes submit and admin also permit cancelling; the broker checks the job's owner.
    Cancel: (Scope.CANCEL, Scope.SUBMIT, Scope.ADMIN),
}
# Questions in the name of a project, with the project meant if they name none.
_OF_A_PROJECT: Final = {
    "reserve": "",
    "explain": None,
    "object_host": USUAL_PROJECT,
    "object": USUAL_PROJECT,
}


@dataclass(frozen=True, slots=True)
class ShownToken:
    """The permissions of a peer's token."""

    text: str
    token: UserToken

    @property
    def warrant(self) -> Warrant:
        """The warrant of the jobs that its holder opens."""
        return Warrant(self.token.issuer, self.token.id, self.token.expires_s)

    def complete(self, message: Any) -> Any:
        """Return a message of its holder with defaults filled in: none."""
        return message

    def check(self, message: Any) -> None:
        """Raise Denied when a client's message exceeds the token.

        The desk checks the scopes of a question, by gateway.trust.rights.
        """
        wanted = _SCOPES.get(type(message), ())
        if wanted and not any(self.token.allows(each) for each in wanted):
            names = " or ".join(wanted)
            raise Denied(
                Reason.SCOPE_MISSING, f"this token lacks the scope for this request: {names}"
            )
        if isinstance(message, OpenJob):
            self.check_project(message.project)
        elif isinstance(message, Ask) and message.verb in _OF_A_PROJECT:
            self.check_project(message.details.get("project", _OF_A_PROJECT[message.verb]))

    def check_project(self, project: Any) -> None:
        """Raise Denied when a token that names projects does not name this one."""
        projects = self.token.projects
        if projects is not None and isinstance(project, str) and project not in projects:
            known = ", ".join(sorted(projects))
            raise Denied(
                Reason.PROJECT_NOT_ALLOWED,
                f"this token does not cover project {project!r:.80}: it covers {known}",
            )


class TokenChecker:
    """Checks tokens against our site's current trust book.

    Args:
        trust: returns our current trust book, which may be replaced later.
        utc_s: the time of day.
        is_cut_off: whether a token of ours is refused because its user's tokens were revoked.
        used: (id, host): notes that a session with a token of ours began or ended now.
    """

    def __init__(
        self,
        trust: Callable[[], Trust],
        utc_s: Callable[[], UtcS],
        is_cut_off: Callable[[UserToken], bool] = lambda _token: False,
        used: Callable[[str, str], None] = lambda _token, _host: None,
    ) -> None:
        self._trust = trust
        self._utc_s = utc_s
        self._is_cut_off = is_cut_off
        self._used = used

    def read(self, text: str) -> ShownToken:
        """Read and verify a token; SessionRefused names the reason."""
        try:
            token = check_token(text, self._trust(), self._utc_s())
            check_user(token.user)
            if token.issuer == self._trust().site and self._is_cut_off(token):
                raise Untrusted(TrustRefusal.REVOKED, _of_a_revoked_user(token))
            return ShownToken(text, token)
        except ValueError as error:
            raise SessionRefused(f"invalid token: {error}", "name") from None
        except Untrusted as error:
            raise SessionRefused(f"invalid token: {error.details}", error.refusal) from None
        except ProtocolError as error:
            raise SessionRefused(f"not a token: {error}", TrustRefusal.ALTERED) from None

    def welcomes(self, site: str) -> bool:
        """Whether users of another site are admitted here."""
        return self._trust().welcomes(site)

    def is_revoked(self, issuer: str, token: str) -> bool:
        """Whether a token of a site, by its id, was revoked."""
        return token in self._trust().revoked_by(issuer)

    def note_use(self, found: ShownToken, host: str) -> None:
        """Note that a session with an accepted token began or ended now, at a host."""
        if found.token.issuer == self._trust().site:
            self._used(found.token.id, host)

    def find_end(self, found: ShownToken) -> SessionRefused | None:
        """Return why an accepted token is no longer valid; fast, as it is called often."""
        trust, token = self._trust(), found.token
        if token.expires_s <= self._utc_s():
            return SessionRefused(f"token {token.id} has expired", TrustRefusal.EXPIRED)
        if self.is_revoked(token.issuer, token.id):
            return SessionRefused(f"token {token.id} is revoked", TrustRefusal.REVOKED)
        if token.issuer == trust.site and self._is_cut_off(token):
            return SessionRefused(_of_a_revoked_user(token), TrustRefusal.REVOKED)
        if token.issuer != trust.site and not trust.welcomes(token.issuer):
            reason = f"users of site {token.issuer!r} are no longer admitted here"
            return SessionRefused(reason, TrustRefusal.UNKNOWN_SITE)
        return None

    def user(self, found: ShownToken) -> str:
        """Return the holder's name here; a foreign user's name includes the user's site."""
        token = found.token
        is_own = token.issuer == self._trust().site
        return token.user if is_own else f"{token.user}@{token.issuer}"


def _of_a_revoked_user(token: UserToken) -> str:
    return f"token {token.id} is revoked, as are all earlier tokens of {token.user}"


class TokenCredentials:
    """Credentials of a site that accepts tokens; see federation.sessions.handshake.Credentials.

    A token is sufficient proof, because clients send it only over TLS or by a socket of this host.
    Without a token the shared secret counts, unless tokens are `required`.
    """

    roles: Final = SharedSecret.roles

    def __init__(self, token_checker: TokenChecker, secret: str, *, required: bool) -> None:
        self._token_checker = token_checker
        self._secret = SharedSecret(secret)
        self._required = required

    def hear(self, hello: Hello) -> Hello:
        """Admit the user that a token names, in the roles that it covers."""
        text = hello.about.get("token")
        if text is None:
            if self._required:
                raise SessionRefused(
                    "this gateway requires a token: ask its operator for one "
                    "(`gridfed token`), and set GRIDFED_TOKEN, Client(token=…) or --token-file",
                    NO_TOKEN,
                )
            return self._secret.hear(hello)
        if type(text) is not str:
            raise SessionRefused("the hello's token is not text", TrustRefusal.ALTERED)
        found = self._token_checker.read(text)
        is_worker = hello.role == "worker"
        if not (found.token.may_work_in() if is_worker else any(map(found.token.allows, _CLIENT))):
            names = Scope.WORK if is_worker else " or ".join(_CLIENT)
            raise SessionRefused(f"a {hello.role} needs a token with the scope {names}", NO_SCOPE)
        return replace(hello, user=self._token_checker.user(found))

    def prove(self, prover: Prover, hello: Hello, challenge: Challenge) -> bytes:
        """Prove that we know the secret; a peer with a token need not know it, but may."""
        return self._secret.prove(prover, hello, challenge)

    def check(self, prover: Prover, hello: Hello, challenge: Challenge, proof: bytes) -> None:
        """Check the secret of a peer without a token."""
        if "token" not in hello.about:
            self._secret.check(prover, hello, challenge, proof)


class AtHome:
    """Credentials of the own user and root at the gateway's own socket, if tokens are required.

    The kernel has identified them, so they need neither a token nor the secret; a proof of one that
    they give must be right, as it is meant for this gateway.
    """

    roles: Final = SharedSecret.roles

    def __init__(self, others: Credentials) -> None:
        self._others = others

    def hear(self, hello: Hello) -> Hello:
        """Delegate to the other credentials."""
        return self._others.hear(hello)

    def prove(self, prover: Prover, hello: Hello, challenge: Challenge) -> bytes:
        """Prove that we know the secret, to a client that does."""
        return self._others.prove(prover, hello, challenge)

    def check(self, prover: Prover, hello: Hello, challenge: Challenge, proof: bytes) -> None:
        """Check the proof of the secret, if the peer gives one."""
        if proof:
            self._others.check(prover, hello, challenge, proof)


class InTheClear:
    """Credentials for connections that can be read on the way: tokens are refused there.

    A token sent there is exposed, so `exposed` is called with each token that would have been
    accepted.

    Args:
        others: the credentials that apply otherwise.
        token_checker: our token_checker.
        exposed: receives the token, and the host that sent it.
        origin: the origin of the connection.
    """

    roles: Final = SharedSecret.roles

    def __init__(
        self,
        others: Credentials,
        token_checker: TokenChecker,
        exposed: Callable[[UserToken, str], None],
        origin: Origin,
    ) -> None:
        self._others = others
        self._token_checker = token_checker
        self._exposed = exposed
        self._origin = origin

    def hear(self, hello: Hello) -> Hello:
        """Refuse a hello with a token."""
        text = hello.about.get("token")
        if text is None:
            return self._others.hear(hello)
        name = ""
        if type(text) is str:
            with contextlib.suppress(SessionRefused):  # an invalid token is worthless anywhere
                token = self._token_checker.read(text).token
                self._exposed(token, self._origin.host)
                name = f" {token.id}"
        raise SessionRefused(
            f"the token{name} was sent over plain tcp:// from another host, where others can "
            "read it: have it revoked, and connect by tls+tcp:// with a new one",
            EXPOSED,
        )

    def prove(self, prover: Prover, hello: Hello, challenge: Challenge) -> bytes:
        """Delegate to the other credentials."""
        return self._others.prove(prover, hello, challenge)

    def check(self, prover: Prover, hello: Hello, challenge: Challenge, proof: bytes) -> None:
        """Delegate to the other credentials."""
        self._others.check(prover, hello, challenge, proof)
