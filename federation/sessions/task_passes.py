"""Passes: keys by which a slot's task, or a worker that the gateway started, connects.

A task may be a client of the grid itself, as the user of its job, while that job has not ended. The
pass's key goes from the gateway to the worker with the work, and from there into the task's
environment, in place of a token. It is never sent as it is: both ends prove that they have it, as
with a shared secret (federation.sessions.handshake).

The key is sealed on its way to the worker, by the token or secret with which that worker has
connected, so that an eavesdropper on a plain connection does not learn it.
"""

import hmac
from dataclasses import dataclass
from typing import Final

from federation.sessions.handshake import SharedSecret

PREFIX: Final = "gfp1_"
KEY_BYTES: Final = 32
WORKER: Final = "worker"  # the subject of a worker that the gateway starts itself
_JOB: Final = "job:"  # begins the subject of a job, however its client has named it
_POOL: Final = "pool:"  # begins the subject of the workers of a pool that the gateway has started
# Keys in a hello: the subject of a pass, and a worker's declaration that it hands passes on.
ABOUT: Final = "pass"
HANDS_ON: Final = "passes"


@dataclass(frozen=True, slots=True)
class TaskPass:
    """The key of one subject: a job, a pool, or WORKER."""

    subject: str
    key: bytes

    def __str__(self) -> str:
        return f"{PREFIX}{self.key.hex()}_{self.subject}"

    def __repr__(self) -> str:
        return f"TaskPass({self.subject!r})"

    @property
    def credentials(self) -> SharedSecret:
        """The credentials with which its holder proves that it has the key."""
        return SharedSecret(self.key.hex())


def subject_of(job: str) -> str:
    """Return the subject of a job, by its id."""
    return f"{_JOB}{job}"


def job_of(subject: str) -> str:
    """Return the job of a subject; empty for none."""
    return subject.removeprefix(_JOB) if subject.startswith(_JOB) else ""


def pass_of_pool(secret: str, pool: str) -> TaskPass:
    """Return the pass for the workers that a site's gateway starts for a pool.

    They may outlive the gateway, so the pass is derived from the site's shared secret, which it
    does not reveal, and is valid for as long as that secret.
    """
    subject = f"{_POOL}{pool}"
    return TaskPass(subject, hmac.digest(secret.encode(), subject.encode(), "sha256"))


def pool_of(subject: str) -> str:
    """Return the pool of a subject; empty for none."""
    return subject.removeprefix(_POOL) if subject.startswith(_POOL) else ""


def is_pass(text: str) -> bool:
    """Whether text given as a token is a pass."""
    return text.startswith(PREFIX)


def read_pass(text: str) -> TaskPass | None:
    """Read a pass from its text; None if it is none."""
    if not is_pass(text):
        return None
    key, _, subject = text.removeprefix(PREFIX).partition("_")
    try:
        raw = bytes.fromhex(key)
    except ValueError:
        return None
    return TaskPass(subject, raw) if len(raw) == KEY_BYTES and subject else None


def seal(key: bytes, shown: str, subject: str) -> bytes:
    """Seal a key for a worker that has connected with the token or secret `shown`.

    Sealing a sealed key opens it.
    """
    mask = hmac.digest(shown.encode(), b"gridfed task pass\0" + subject.encode(), "sha256")
    return bytes(one ^ other for one, other in zip(key, mask, strict=True))
