"""The user that slots run as, where the worker may choose: as root only.

A slot with another user than the worker's can neither read the files of the worker and the gateway,
nor signal them, nor read their memory. It can still read files that all users of the host may read.
"""

import os
import pwd
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.base.interpreter import run_code
from gateway.config.environments import ANY_USER, OWN_USER

# The account that "auto" takes, if the host has it; else the one that every host has.
ACCOUNT: Final = "gridfed-slots"
NOBODY: Final = "nobody"
SETPRIV: Final = "/usr/bin/setpriv"
HOME: Final = "/tmp"  # noqa: S108 - if the account's own is unusable
PROBE_S: Final = 20.0
# Variables of the worker's user that are useless to another.
_OWN: Final = ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TMPDIR")


class UserUnavailable(Exception):
    """Slots can't run as that user; the text says why, and gives advice."""


@dataclass(frozen=True, slots=True)
class SlotUser:
    """A user of this host that slots run as."""

    name: str
    uid: int
    gid: int
    home: str

    @property
    def shell(self) -> tuple[str, ...]:
        """The command in front of a slot's own: it switches to that user for good."""
        return become(self.uid, self.gid, "--no-new-privs")

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return a worker's variables, adapted to that user.

        Every task can write to the home folder. So no Python that a task starts imports what an
        earlier task left in the user site there; for the slot itself, see gateway.base.interpreter.
        """
        kept = {name: value for name, value in environment.items() if name not in _OWN}
        own = {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}
        return {**kept, **own, "PYTHONNOUSERSITE": "1"}


def become(uid: int, gid: int, *more: str) -> tuple[str, ...]:
    """Return a command prefix that switches to a user, without other groups or capabilities."""
    who = (f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--inh-caps=-all")
    return (SETPRIV, *who, *more, "--")


def find_user(wanted: str) -> SlotUser | None:
    """Return the user of slots for a name, ANY_USER or OWN_USER; None for the worker's own.

    Raises:
        UserUnavailable: slots can't run as that user here.
    """
    if wanted == OWN_USER:
        return None
    if os.geteuid() != 0:
        raise UserUnavailable("only root may run slots as another user")
    if not Path(SETPRIV).exists():
        raise UserUnavailable(
            f"{SETPRIV} is not installed on this host: install the package util-linux"
        )
    user = _account(wanted)
    if user.uid == 0:
        raise UserUnavailable(f"user {user.name} is root: slots must run as an unprivileged user")
    _probe(user)
    return user


def _account(wanted: str) -> SlotUser:
    for name in (ACCOUNT, NOBODY) if wanted == ANY_USER else (wanted,):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        home = found.pw_dir if _is_owners(found.pw_dir, found.pw_uid) else HOME
        return SlotUser(name, found.pw_uid, found.pw_gid, home)
    raise UserUnavailable(
        f"user {wanted if wanted != ANY_USER else NOBODY} does not exist on this host"
    )


def _is_owners(folder: str, uid: int) -> bool:
    try:
        return Path(folder).stat().st_uid == uid
    except OSError:
        return False


def _probe(user: SlotUser) -> None:
    """Check that such a slot can start: it must read the worker's Python and our code."""
    # A Python whose libraries can't be read may find another one's: those are not ours.
    code = "import sys, gateway.worker.slot.slot; print(sys.version, sys.base_prefix, sys.prefix)"
    ours = " ".join((sys.version, sys.base_prefix, sys.prefix))
    command = [*user.shell, *run_code(code, is_ours=False)]
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            timeout=PROBE_S,
            stdin=subprocess.DEVNULL,
            env=user.variables(os.environ),
            cwd=user.home,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserUnavailable(f"slots can't start as user {user.name}: {error}") from None
    if done.returncode or done.stdout.decode(errors="replace").strip() != ours:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()[-200:]
        raise UserUnavailable(
            f"user {user.name} can't run {sys.executable} in the same way ({said}): install "
            "gridfed where all users can read it, for example in /opt"
        )
