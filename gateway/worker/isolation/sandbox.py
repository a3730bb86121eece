"""Bubblewrap: a light sandbox that hides most of this host from other sites' work. Builders.

The slot gets a process, user, host and network namespace of its own; it can read the system's
programs and libraries and the worker's Python, and nothing else: no home folders, no keys, no
sockets. Its /tmp is its own, and is removed with it. It dies with the agent.

A user namespace only renames the user. Where we are root, `nobody` in a namespace of ours is still
root to the kernel: it may write files of root, kernel.core_pattern for one, and so run anything on
this host. So root makes no user namespace, and the slot really changes its user, with the two
capabilities that this takes and that it loses by it. The new id belongs to no account, and to no
other site's work (gateway.worker.isolation.identities). A filter of system calls keeps tasks from
making user namespaces of their own (gateway.worker.isolation.seccomp).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from gateway.base.interpreter import run_code, run_module
from gateway.worker.isolation.identities import sandbox_user
from gateway.worker.isolation.launch import FILTER_PLACE, SLOT, SlotLaunch
from gateway.worker.isolation.seccomp import no_user_namespaces
from gateway.worker.isolation.users import SETPRIV, become

PROGRAM: Final = "bwrap"
NOBODY: Final = "65534"
PROBE_S: Final = 10.0
# The parts of /etc that Python and its packages read: libraries, zones, certificates; no accounts,
# no keys.
ETC: Final = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "alternatives", "ssl/certs")
ETC_NETWORK: Final = ("resolv.conf", "hosts", "nsswitch.conf", "gai.conf")
ROOTS: Final = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
SHARED_BYTES: Final = 64 << 20  # of its /dev/shm
# Never GRIDFED_SECRET: it lets its holder in under any identity.
VARIABLES: Final = ("LANG", "LC_ALL", "TZ")
VARIABLES_NETWORK: Final = ("GRIDFED_GATEWAY",)


class SandboxUnavailable(Exception):
    """There is no sandbox on this host; the text gives advice."""


def shell(
    kit: Path, readable: Iterable[Path], *, network: str, tmp_bytes: int, site: str = ""
) -> tuple[str, ...]:
    """Return the command in front of a slot's own.

    Args:
        kit: the slot's own code.
        readable: other readable folders: of packages, or a Python.
        network: "host", or "none".
        tmp_bytes: of its /tmp.
        site: the site whose work it runs.
    """
    command = [PROGRAM, *_namespaces(network), "--die-with-parent", "--new-session"]
    command += ["--seccomp", FILTER_PLACE] if no_user_namespaces() else []
    command += ["--hostname", "sandbox", "--proc", "/proc", "--dev", "/dev"]
    command += ["--perms", "1777", "--size", str(SHARED_BYTES), "--tmpfs", "/dev/shm"]  # noqa: S108
    command += ["--perms", "1777", "--size", str(tmp_bytes), "--tmpfs", "/tmp"]  # noqa: S108
    command += ["--chdir", "/tmp"]  # noqa: S108
    for name in ROOTS:
        path = Path("/", name)
        if path.is_symlink():
            command += ["--symlink", os.readlink(path), str(path)]
        elif path.exists():
            command += ["--ro-bind", str(path), str(path)]
    bound = list(dict.fromkeys((*python_folders(), *readable, kit)))
    etc = [Path("/etc", each) for each in (*ETC, *(ETC_NETWORK if network == "host" else ()))]
    # Parent folders made by bubblewrap itself would be readable for root alone.
    ways = {way for path in (*bound, *etc) for way in path.parents if way != Path("/")}
    for way in sorted(ways):
        command += ["--dir", str(way)]
    for path in etc:
        command += ["--ro-bind-try", str(path), str(path)]
    for path in bound:
        command += ["--ro-bind", str(path), str(path)]
    # Otherwise it could write there without bounds.
    command += ["--remount-ro", "/dev", "--remount-ro", "/"]
    return (*command, *_becoming(site))


def _namespaces(network: str) -> list[str]:
    kinds = ["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
    kinds += ["--unshare-net"] if network != "host" else []
    if _is_root():
        return [*kinds, "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [*kinds, "--unshare-user", "--uid", NOBODY, "--gid", NOBODY, "--cap-drop", "ALL"]


def _becoming(site: str) -> list[str]:
    number = sandbox_user(site)
    return [*become(number, number)] if _is_root() else []


def _is_root() -> bool:
    return os.geteuid() == 0


def python_folders() -> list[Path]:
    """Return the folders of this Python and its packages, except those below /usr."""
    folders = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix)}
    # A virtual environment's interpreter is a link to the one that it was made from.
    folders.add(Path(sys.executable).resolve().parent.parent)
    return sorted(each for each in folders if not each.is_relative_to("/usr"))


def variables(environment: Mapping[str, str], kit: Path, network: str) -> dict[str, str]:
    """Return the few variables of a sandboxed slot; our gateway's address only with a network."""
    names = (*VARIABLES, *(VARIABLES_NETWORK if network == "host" else ()))
    kept = {name: environment[name] for name in names if name in environment}
    own = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "PYTHONPATH": str(kit)}  # noqa: S108
    return {**kept, **own, "PYTHONNOUSERSITE": "1"}


def launch(
    command: tuple[str, ...],
    environment: Mapping[str, str],
    memory_bytes: int,
    python: Path | None = None,
) -> SlotLaunch:
    """Return the launch of a slot behind a `shell`, in this Python or another."""
    inner = run_module(SLOT, python=str(python or ""), is_ours=False)
    return SlotLaunch(
        (*command, *inner), environment, memory_bytes, is_child=False, filter=no_user_namespaces()
    )


def probe(kit: Path) -> None:
    """Check that a sandbox works here. Raises SandboxUnavailable."""
    for folder in python_folders():
        if Path.home().resolve().is_relative_to(folder.resolve()):
            raise SandboxUnavailable(
                f"this worker's Python is installed in {folder}, so a sandbox would expose "
                "that whole folder, with home directories and keys: run the worker from a "
                "virtual environment, or with another Python"
            )
    if shutil.which(PROGRAM) is None:
        raise SandboxUnavailable(
            "bwrap is not installed on this host: install the package bubblewrap"
        )
    if _is_root() and not Path(SETPRIV).exists():
        raise SandboxUnavailable(
            f"{SETPRIV} is not installed on this host: install the package util-linux"
        )
    shut_in = shell(kit, (), network="none", tmp_bytes=1 << 20)
    command = SlotLaunch(
        (*shut_in, *run_code("pass", is_ours=False)), {}, filter=no_user_namespaces()
    )
    try:
        done = _try(command)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxUnavailable(f"bubblewrap does not start here: {error}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-300:]
        raise SandboxUnavailable(
            f"bubblewrap does not start here ({said or done.returncode}): it needs user "
            "namespaces, or root and a Python that all users can read"
        )


def _try(launch: SlotLaunch) -> "subprocess.CompletedProcess[bytes]":
    """Run a command other than a slot, to test whether it starts."""
    filter_fd = launch.open_filter()
    try:
        return subprocess.run(
            launch.words(filter_fd),
            check=False,
            capture_output=True,
            timeout=PROBE_S,
            stdin=subprocess.DEVNULL,
            pass_fds=() if filter_fd is None else (filter_fd,),
        )
    finally:
        if filter_fd is not None:
            os.close(filter_fd)
