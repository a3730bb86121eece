"""The credentials by which a gateway admits sessions, by the way on which they come."""

from collections.abc import Callable
from typing import Final

from federation.sessions.handshake import Credentials, SharedSecret
from federation.signed.tokens import UserToken
from federation.transport import Origin
from gateway.config.site import SiteConfig
from gateway.trust.task_passes import PassCredentials, TaskPasses
from gateway.trust.token_checker import AtHome, InTheClear, TokenChecker, TokenCredentials

EXPOSED_MAX: Final = 1_000  # tokens that the log names as exposed


class ListenerCredentials:
    """The credentials of a listening port. Tasks come everywhere with the passes of their jobs.

    Args:
        task_passes: checks the passes of tasks.
        token_checker: reads tokens; None in no federation.
        say: takes lines for the operator.
    """

    def __init__(
        self,
        config: SiteConfig,
        task_passes: TaskPasses,
        token_checker: TokenChecker | None,
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._task_passes = task_passes
        self._token_checker = token_checker
        self._say = say
        self._exposed: set[str] = set()  # ids of tokens that were shown in the clear

    @property
    def usual(self) -> Credentials:
        """The credentials where no others are named."""
        return self._with_passes(self._known(required=self._config.token_required))

    def in_the_clear(self, origin: Origin) -> Credentials:
        """Return the credentials of a session that others may read; keys are needed for it."""
        assert self._token_checker is not None
        return InTheClear(self.usual, self._token_checker, self._note_exposed, origin)

    def _note_exposed(self, token: UserToken, host: str) -> None:
        """Log, once, a token that others may have read, so that it can be revoked."""
        if token.id in self._exposed or len(self._exposed) >= EXPOSED_MAX:
            return
        self._exposed.add(token.id)
        self._say(
            f"token {token.id} of {token.user} arrived over plain tcp:// from {host} and was "
            "refused; others may have read it: revoke it with gridfed token --revoke "
            f"{token.id}"
        )

    @property
    def at_home(self) -> Credentials:
        """The credentials for the gateway's own user at its own socket.

        Where tokens are required the secret admits no client, so none has reason to know it.
        """
        known = self._known(required=False)
        return self._with_passes(AtHome(known) if self._config.token_required else known)

    @property
    def nearby(self) -> Credentials:
        """The credentials for tasks and other users that dial a socket of this host.

        An empty secret would admit every process that reaches the socket, which is meant for the
        gateway's own user. A token is required then.
        """
        has_secret, has_keys = bool(self._config.rules.secret), self._token_checker is not None
        if not has_secret and not has_keys:
            return self._with_passes(None)
        return self._with_passes(
            self._known(required=self._config.token_required or not has_secret)
        )

    def _known(self, *, required: bool) -> Credentials:
        secret = self._config.rules.secret
        if self._token_checker is None:
            return SharedSecret(secret)
        return TokenCredentials(self._token_checker, secret, required=required)

    def _with_passes(self, others: Credentials | None) -> Credentials:
        return PassCredentials(self._task_passes, others)
