"""Slots in containers: podman or docker, whichever is here and works. Builders, and what they ask.

A container is as shut as it can be: its root is read-only, it has no network, no capabilities and
no new privileges, so much memory, so many cores and processes, and a small /tmp in memory. All it
sees of this host is the slot's own code and a socket (gateway.worker.handover).

It is ended by its first process (gateway.worker.container_init) when the slot or the agent ends,
and its runtime removes it. Its label says whose it is, so that an agent which starts can remove
what a host's failure left behind. An image may be hostile: what it brings of its own accord (places
to write to, commands for its health) is left out, and a first process that is none of ours is ended
through the runtime.
"""

import os
import resource
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gateway.worker.identities import container_user
from gateway.worker.rules import Rules
from gateway.worker.strays import lives

LABEL: Final = "gridfed.agent"
PROBE: Final = "probe"  # instead of an agent, of what ends by itself at once
KIT: Final = "/gridfed/kit"
SOCKETS: Final = "/gridfed/sockets"
SOCKET_NAME: Final = "slot"
FILES_MAX: Final = 1024  # open at a time, in one process
PROCESSES_MAX: Final = 16_384  # podman has 32,768 at most
ASK_S: Final = 60.0
PULL_S: Final = 1800.0
MEMORY_OVERHEAD_BYTES: Final = 16 << 20  # of the container's first process
SAID_CHARS_MAX: Final = 400
# What runs containers below podman: its own choice, and the one that also knows hybrid cgroups.
_BELOW: Final = ("", "runc", "crun")
_UNLIMITED: Final = b"Resource limits are not supported"  # podman's words, of a user's on version 1


class ContainerUnavailable(Exception):
    """An image can't be run here; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A program that runs containers, as it was found to work here."""

    program: str
    below: str = ""  # what it is told to run them by; empty: what it takes itself
    is_limiting: bool = True  # whether it can hold them to memory, cores and processes

    @property
    def command(self) -> tuple[str, ...]:
        """The program, and what it is told whatever it does."""
        if self.program == "podman" and self.below:
            return (self.program, "--runtime", self.below)
        return (self.program,)

    def __str__(self) -> str:
        return f"{self.program} by {self.below}" if self.below else self.program


@dataclass(frozen=True, slots=True)
class Shape:
    """What a container is given.

    `cores` are the only ones that it may use, as cgroups write them; empty for all. `site` is whose
    work it is for; empty for ours.
    """

    name: str
    owner: str  # of the label
    kit: Path
    sockets: Path
    memory_bytes: int
    cores: str = ""
    site: str = ""


def run_command(runtime: Runtime, image: str, rules: Rules, shape: Shape) -> tuple[str, ...]:
    """The command that runs a slot in a container."""
    command = [*runtime.command, "run", "--rm", "--name", shape.name]
    command += ["--label", f"{LABEL}={shape.owner}", "--pull", "never", "--log-driver", "none"]
    command += ["--network", rules.network, "--read-only", "--cap-drop", "all"]
    command += ["--security-opt", "no-new-privileges", "--user", _user(shape.site)]
    command += ["--no-healthcheck"]
    command += _podmans_own(rules) if runtime.program == "podman" else []
    if shape.memory_bytes:
        limit = str(shape.memory_bytes + MEMORY_OVERHEAD_BYTES)
        command += ["--memory", limit, "--memory-swap", limit]
    command += ["--cpus", f"{rules.cpus:g}", "--pids-limit", str(rules.pids_max)]
    command += ["--cpuset-cpus", shape.cores] if shape.cores else []
    command += ["--ulimit", "core=0:0", *ulimits()]
    command += ["--tmpfs", f"/tmp:rw,nosuid,nodev,mode=1777,size={rules.tmp_bytes}"]  # noqa: S108
    command += ["--volume", f"{shape.kit}:{KIT}:ro", "--volume", f"{shape.sockets}:{SOCKETS}:ro"]
    variables = {"PYTHONPATH": KIT, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp"}  # noqa: S108
    for name, value in variables.items():
        command += ["--env", f"{name}={value}"]
    # Without -P, which older Pythons refuse in other words than ours; this folder is new and empty.
    command += ["--workdir", "/tmp", "--entrypoint", rules.image_python]  # noqa: S108
    command += [image, "-s", "-m", "gateway.worker.container_init", f"{SOCKETS}/{SOCKET_NAME}"]
    return (*command, str(shape.memory_bytes))


def _user(site: str) -> str:
    """Who it is to the kernel too, where root runs containers: no account, no other site's work."""
    number = container_user(site)
    return f"{number}:{number}"


def _podmans_own(rules: Rules) -> list[str]:
    """What podman gives a container by itself, and docker does not: it is taken away.

    Places to write to on this host's disk, as the image names them; our variables for proxies,
    which may hold a password; and, where there is no network, this host's table of others.
    """
    command = ["--read-only-tmpfs=false", "--image-volume", "ignore", "--http-proxy=false"]
    return command + (["--no-hosts"] if rules.network == "none" else [])


def ulimits() -> list[str]:
    """Limits no higher than ours: those of the runtimes may be, and take a right of their own.

    Of processes it is one user's, over all containers: a slot's own limit is --pids-limit.
    """
    found = []
    for name, key, most in (
        ("nofile", resource.RLIMIT_NOFILE, FILES_MAX),
        ("nproc", resource.RLIMIT_NPROC, PROCESSES_MAX),
    ):
        ours = resource.getrlimit(key)[1]
        limit = most if ours == resource.RLIM_INFINITY else min(most, ours)
        found += ["--ulimit", f"{name}={limit}:{limit}"]
    return found


def explain_end(code: int, said: str, image: str, rules: Rules) -> str:
    """Why a container never became a slot, by its runtime's exit code and last words."""
    if code == 127 or "executable file not found" in said:
        return (
            f"image {image} has no {rules.image_python}: put a Python into it, or name the one "
            "that it has as image_python in [pool.environments]"
        )
    if code == 126:
        return f"image {image}: its {rules.image_python} can't be run"
    if "SyntaxError" in said or "No module named" in said:
        return f"image {image}: its {rules.image_python} can't run a slot; it needs Python 3.11"
    return f"image {image} does not start (exit code {code})"


# --- asking --------------------------------------------------------------------------------------


def find_runtime(rules: Rules) -> Runtime:
    """A runtime that works here: the first of those wanted. Raises ContainerUnavailable.

    Tried by `info` alone, which needs no image: whether it runs containers is seen when there is
    one (`probe_below`).
    """
    tried = []
    for program in rules.runtimes:
        if shutil.which(program) is None:
            tried.append(f"no {program}")
            continue
        done = _ask((program, "info"))
        if done.returncode == 0:
            return Runtime(program)
        tried.append(f"{program} does not work: {_last_words(done)}")
    raise ContainerUnavailable(f"nothing here runs containers: {'; '.join(tried)}")


def works(runtime: Runtime, image: str, rules: Rules) -> "subprocess.CompletedProcess[bytes]":
    """Run nothing in an image, and see."""
    command = [*runtime.command, "run", "--rm", "--pull", "never", "--network", "none"]
    command += ["--read-only", "--log-driver", "none", "--label", f"{LABEL}={PROBE}"]
    command += ["--cap-drop", "all", "--user", _user(""), "--memory", str(256 << 20)]
    command += [*ulimits(), "--entrypoint", rules.image_python, image, "-c", "pass"]
    return _ask(command)


def probe_below(runtime: Runtime, image: str, rules: Rules) -> Runtime:
    """The runtime with what it needs below it on this host. Raises ContainerUnavailable.

    crun, which podman prefers, runs nothing where cgroups are hybrid; runc does.
    """
    done = None
    for below in _BELOW if runtime.program == "podman" else ("",):
        if below and shutil.which(below) is None:
            continue
        candidate = Runtime(runtime.program, below)
        done = works(candidate, image, rules)
        is_refused = b"OCI runtime error" in done.stderr or done.returncode == 125
        if not is_refused:
            # It runs containers, whatever it is that this image lacks.
            return replace(candidate, is_limiting=_UNLIMITED not in done.stderr)
    assert done is not None, "its own choice is always tried"
    raise ContainerUnavailable(
        f"{runtime.program} runs no container here: {_last_words(done)} (on hybrid cgroups it "
        "needs runc; as a plain user it needs subordinate ids)"
    )


def provide(runtime: Runtime, image: str, rules: Rules) -> None:
    """Have an image here, by the owner's policy. Raises ContainerUnavailable with what to do."""
    is_here = _ask((*runtime.command, "image", "inspect", image)).returncode == 0
    if rules.pull == "always" or (
        rules.pull == "missing" and not is_here and image not in rules.build
    ):
        done = _ask((*runtime.command, "pull", image), PULL_S)
        if done.returncode:
            raise ContainerUnavailable(f"it can't be pulled: {_last_words(done)}")
    elif not is_here and image in rules.build:
        _build(runtime, image, rules.build[image])
    elif not is_here:
        raise ContainerUnavailable(
            f"it is not on this host, and pull is {rules.pull!r}: import it there "
            f"({runtime.program} load, or import), or let it be built or pulled"
        )


def _build(runtime: Runtime, image: str, folder: str) -> None:
    if not Path(folder).is_dir():
        raise ContainerUnavailable(f"it is to be built from {folder}, which is no folder")
    command = [*runtime.command, "build", "--tag", image, "--network", "none"]
    # podman hands what is below it to `run` alone.
    command += ["--runtime", runtime.below] if runtime.below else []
    done = _ask((*command, folder), PULL_S)
    if done.returncode:
        raise ContainerUnavailable(f"it can't be built from {folder}: {_last_words(done)}")


def remove_strays(runtime: Runtime) -> int:
    """Remove containers of agents that are gone; how many there were.

    An agent's label holds its process and when that began, so that another process of the same
    number is not taken for it.
    """
    command = runtime.command
    found = _ask((*command, "ps", "--all", "--quiet", "--filter", f"label={LABEL}"))
    names = found.stdout.decode(errors="replace").split()
    # Not by a format of `ps`: what podman and docker call a label there differs.
    show = '{{.Id}} {{index .Config.Labels "' + LABEL + '"}}'
    told = _ask((*command, "container", "inspect", "--format", show, *names)) if names else found
    strays = []
    for line in told.stdout.decode(errors="replace").splitlines():
        name, _, owner = line.partition(" ")
        if owner and owner != PROBE and not lives(owner):
            strays.append(name)
    if strays:
        _ask((*runtime.command, "rm", "--force", *strays))
    return len(strays)


def _ask(command: Sequence[str], timeout_s: float = ASK_S) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(
            command,
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    except subprocess.TimeoutExpired:
        raise ContainerUnavailable(
            f"{' '.join(command[:4])} … did not end in {timeout_s:g} s"
        ) from None


def _last_words(done: "subprocess.CompletedProcess[bytes]") -> str:
    said = done.stderr.decode(errors="replace").strip()
    return said[-SAID_CHARS_MAX:] or f"exit code {done.returncode}"
