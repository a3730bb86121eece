"""Passes for tasks that are clients, and for workers that this gateway starts itself.

A task's pass is derived from its job's id and a key that lives as long as this gateway does. It is
valid while the job has not ended here, and while the token that the job was opened with, through
any number of tasks, is valid; no pass needs to be stored or revoked. Its holder is the job's user,
in the job's project, and may submit and cancel. The pass of a pool's workers lets them join that
pool, in each run of the gateway. federation.sessions.task_passes describes how it travels.
"""

import hmac
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from federation.clocks import UtcS
from federation.errors import SessionRefused
from federation.messages.messages import Ask, Challenge, Hello, LetGo, OpenJob
from federation.objects.labels import UNLABELLED, DataLabel, read_label
from federation.reasons import Reason
from federation.sessions.handshake import Credentials, Prover, SharedSecret
from federation.sessions.task_passes import (
    ABOUT,
    HANDS_ON,
    KEY_BYTES,
    WORKER,
    TaskPass,
    job_of,
    pass_of_pool,
    pool_of,
    seal,
    subject_of,
)
from federation.signed.tokens import Scope, UserToken
from federation.wishes import USUAL_PROJECT
from gateway.scheduler.model.jobs import Job
from gateway.scheduler.model.terms import NO_WARRANT, JobSpec, Warrant
from gateway.trust.rights import Denied
from gateway.trust.token_checker import NO_SCOPE, NO_TOKEN, ShownToken

ABOUT_OBJECTS: Final = frozenset({"object_host", "object"})  # questions about a project's objects
NO_PASS: Final = "pass"  # noqa: S105 - the code of a refusal


@dataclass(frozen=True, slots=True)
class JobPass(ShownToken):
    """The rights of a task's pass.

    Attributes:
        project: its job's, the default for messages of the task.
        site: the only site where its jobs may run; empty: wherever they are best placed.
        own: the warrant of its own job.
        label: the label of its job's data now, which holds for all that its tasks put and open.
    """

    project: str = ""
    site: str = ""
    own: Warrant = NO_WARRANT
    label: Callable[[], DataLabel] = field(default=lambda: UNLABELLED, compare=False)

    @property
    def warrant(self) -> Warrant:
        """The warrant of its own job: jobs that its tasks open are valid for no longer."""
        return self.own

    def complete(self, message: Any) -> Any:
        """Fill in a holder's message from the pass."""
        if isinstance(message, LetGo) and message.project == USUAL_PROJECT:
            return replace(message, project=self.project)
        if isinstance(message, Ask) and message.verb in ABOUT_OBJECTS:
            if message.details.get("project", USUAL_PROJECT) == USUAL_PROJECT:
                details = {**message.details, "project": self.project}
                return replace(message, details=details)
            return message
        if not isinstance(message, OpenJob):
            return message
        if message.project == USUAL_PROJECT:
            message = replace(message, project=self.project)
        if self.site:
            message = replace(message, wishes={**message.wishes, "sites": [self.site]})
        return self._labelled(message)

    def _labelled(self, message: OpenJob) -> OpenJob:
        """Let the label of the pass's job hold for a job that one of its tasks opens."""
        label = self.label()
        if not label:
            return message
        try:
            label = read_label(message.wishes.get("label") or ()).within(label)
        except (TypeError, ValueError):
            return message  # it is refused for that
        return replace(message, wishes={**message.wishes, "label": list(label.words)})

    def check(self, message: Any) -> None:
        """Raise Denied when a message is beyond the pass: it is for jobs, while its own lasts."""
        if isinstance(message, Ask) and message.verb in ("reserve", "unreserve"):
            raise Denied(
                Reason.SCOPE_MISSING, "a task's pass is only for jobs: it can't reserve slots"
            )
        ShownToken.check(self, message)


class TaskPasses:
    """Gives passes, and reads them.

    Args:
        site: the name of this site.
        secret: the shared secret; empty without one, and then pools have no passes.
        pools: the pools whose workers are started elsewhere.
        random_bytes: randomness; used when the first pass is wanted.
        jobs: the jobs that have not ended, by id.
        welcomes: whether users of another site may come here.
        is_revoked: (issuer, id) → whether a token was revoked.
        utc_s: the time of day.
    """

    def __init__(
        self,
        site: str,
        secret: str,
        random_bytes: Callable[[int], bytes],
        jobs: Mapping[str, Job],
        welcomes: Callable[[str], bool],
        is_revoked: Callable[[str, str], bool],
        utc_s: Callable[[], UtcS],
        pools: Set[str] = frozenset(),
    ) -> None:
        self._pools = pools if secret else frozenset()
        self._site = site
        self._secret = secret
        self._random_bytes = random_bytes
        self._jobs = jobs
        self._welcomes = welcomes
        self._is_revoked = is_revoked
        self._utc_s = utc_s
        self._key = b""

    def give(self, subject: str) -> TaskPass:
        """Return the pass of a subject."""
        if pool := pool_of(subject):
            return pass_of_pool(self._secret, pool)
        self._key = self._key or self._random_bytes(KEY_BYTES)
        return TaskPass(subject, hmac.digest(self._key, subject.encode(), "sha256"))

    def sealed_for(self, about: Mapping[str, Any], job: str) -> bytes:
        """Return the sealed key of a job's pass for a worker; empty where none is due.

        `about` is the worker's own description. A pass is due where the worker hands passes on, and
        the job's user may come in here.
        """
        subject = subject_of(job)
        if about.get(HANDS_ON) is not True or self._objection(subject):
            return b""
        shown = about.get("token", self._secret)
        if ABOUT in about:
            shown = str(self.give(about[ABOUT]))
        return seal(self.give(subject).key, shown, subject)

    def check_pool(self, pool: str, hello: Hello) -> None:
        """Raise SessionRefused unless a pool's pass is valid, and shown by its own worker."""
        if pool not in self._pools or hello.about.get("pool") != pool:
            raise SessionRefused("this pass is for workers of another pool, or of none", NO_PASS)

    def read(self, subject: str) -> JobPass:
        """Return the present rights of a job's pass. Raises SessionRefused."""
        objection = self._objection(subject)
        if objection:
            raise SessionRefused(objection, NO_PASS)
        name = job_of(subject)
        job = self._jobs[name]
        spec = job.spec
        scopes = frozenset({Scope.SUBMIT.value, Scope.CANCEL.value})
        token = UserToken(
            *("", self._site, "", spec.user),  # of another site's job it names that site: ada@paris
            *(frozenset({spec.project}), scopes, frozenset({self._site})),
            issued_s=UtcS(0.0),
            expires_s=UtcS(0.0),
        )
        warrant = _warrant_of(spec)
        site = self._site if warrant.stays else ""
        return JobPass(
            *("", token, spec.project, site, warrant),
            lambda: self._jobs.get(name, job).spec.wishes.label,
        )

    def find_end(self, subject: str) -> SessionRefused | None:
        """Return why a pass that was accepted earlier is no longer valid."""
        objection = self._objection(subject)
        return SessionRefused(objection, NO_PASS) if objection else None

    def _objection(self, subject: str) -> str:
        job = self._jobs.get(job_of(subject))
        if job is None:
            return "this task's pass is invalid here: its job has ended, or is at another site"
        spec = job.spec
        origin, warrant = spec.path[0] if spec.path else spec.origin, _warrant_of(spec)
        if origin and not self._welcomes(origin):
            return (
                f"a task of site {origin!r} can't be a client here: users of that site are "
                "not admitted"
            )
        if warrant.expires_s <= self._utc_s():
            return "this task's pass has expired, as has the token or grant of its job"
        if warrant.token and self._is_revoked(warrant.issuer, warrant.token):
            return f"this task's pass is invalid: token {warrant.token} is revoked"
        return ""


def _warrant_of(spec: JobSpec) -> Warrant:
    """Return a job's warrant; that of another site's job ends with its grant and stays here."""
    if not spec.path:
        return spec.warrant
    expires_s = UtcS(inf) if spec.given is None else spec.given.grant_terms.expires_s
    return Warrant(expires_s=expires_s, stays=True)


class PassCredentials:
    """Credentials of a port that accepts passes, beside others; see federation.sessions.handshake.

    Args:
        passes: this gateway's.
        others: the credentials of peers without a pass; None where there may be none.
    """

    roles: Final = SharedSecret.roles

    def __init__(self, passes: TaskPasses, others: Credentials | None) -> None:
        self._passes = passes
        self._others = others

    def hear(self, hello: Hello) -> Hello:
        """Admit a peer by its pass, in the one role of the pass."""
        subject = hello.about.get(ABOUT)
        if subject is None:
            if self._others is None:
                raise SessionRefused(
                    "this gateway has neither keys nor a secret, so its socket admits only "
                    "its own user and no slots: a task connects with the pass in its "
                    "$GRIDFED_TOKEN",
                    NO_TOKEN,
                )
            return self._others.hear(hello)
        if type(subject) is not str or "token" in hello.about:
            raise SessionRefused("the hello's pass is invalid", NO_PASS)
        pool = pool_of(subject)
        wanted = "worker" if subject == WORKER or pool else "client"
        if hello.role != wanted:
            raise SessionRefused(f"this pass is for a {wanted}, not a {hello.role}", NO_SCOPE)
        if pool:
            self._passes.check_pool(pool, hello)
        if wanted == "worker":
            return hello
        return replace(hello, user=self._passes.read(subject).token.user)

    def prove(self, prover: Prover, hello: Hello, challenge: Challenge) -> bytes:
        """Prove that this gateway has the key, or give the proof of the other credentials."""
        return self._of(hello).prove(prover, hello, challenge)

    def check(self, prover: Prover, hello: Hello, challenge: Challenge, proof: bytes) -> None:
        """Check the key, or the proof for the other credentials."""
        try:
            self._of(hello).check(prover, hello, challenge, proof)
        except SessionRefused:
            if ABOUT not in hello.about:
                raise
            raise SessionRefused("this pass was not issued by this gateway", NO_PASS) from None

    def _of(self, hello: Hello) -> Credentials:
        if ABOUT in hello.about:
            return self._passes.give(hello.about[ABOUT]).credentials
        assert self._others is not None, "hear has refused it"
        return self._others
