"""Slots in containers, by podman or docker. Builds their commands, and queries the runtime.

A container is as confined as possible: a read-only root, no network, no capabilities, no new
privileges, limits of memory, cores and processes, and a small /tmp in memory. Of this host it sees
only the slot's own code and a socket (gateway.worker.isolation.handover).

Its first process (gateway.worker.slot.container_init) ends it when the slot or the agent ends, and
its runtime removes it. Its label names its agent, so that a starting agent can remove the leftovers
of a host failure. An image may be hostile: the extras that it declares (volumes, health checks) are
left out, and a first process that is not ours is killed through the runtime.
"""

import os
import resource
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from federation.words import duration_text
from gateway.config.environments import EnvironmentRules
from gateway.worker.isolation.identities import container_user
from gateway.worker.isolation.strays import lives

LABEL: Final = "gridfed.agent"
PROBE: Final = "probe"  # labels short-lived probes, instead of an agent
KIT: Final = "/gridfed/kit"
SOCKETS: Final = "/gridfed/sockets"
SOCKET_NAME: Final = "slot"
FILES_MAX: Final = 1024  # open at a time, in one process
PROCESSES_MAX: Final = 16_384  # podman has 32,768 at most
ASK_S: Final = 60.0
PULL_S: Final = 1800.0
MEMORY_OVERHEAD_BYTES: Final = 16 << 20  # for the container's first process
SAID_CHARS_MAX: Final = 400
# The OCI runtimes below podman: its own choice, and the ones that also support hybrid cgroups.
_BELOW: Final = ("", "runc", "crun")
# said by podman for a plain user on version 1
_UNLIMITED: Final = b"Resource limits are not supported"


class ContainerUnavailable(Exception):
    """An image can't be run here; the text says why, and gives advice."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A program that runs containers, with its options on this host."""

    program: str
    below: str = ""  # the OCI runtime to use; empty: the program's own choice
    is_limiting: bool = True  # whether it can limit memory, cores and processes

    @property
    def command(self) -> tuple[str, ...]:
        """The program and its global options."""
        if self.program == "podman" and self.below:
            return (self.program, "--runtime", self.below)
        return (self.program,)

    def __str__(self) -> str:
        return f"{self.program} by {self.below}" if self.below else self.program


@dataclass(frozen=True, slots=True)
class ContainerShape:
    """The parameters of a container.

    `cores` are the only ones that it may use, in the syntax of cgroups; empty for all. `site` is
    the site whose work it runs; empty for ours.
    """

    name: str
    owner: str  # the value of its label
    kit: Path
    sockets: Path
    memory_bytes: int
    cores: str = ""
    site: str = ""


def run_command(
    runtime: Runtime, image: str, rules: EnvironmentRules, shape: ContainerShape
) -> tuple[str, ...]:
    """Return the command that runs a slot in a container."""
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
    variables["PYTHONNOUSERSITE"] = "1"
    for name, value in variables.items():
        command += ["--env", f"{name}={value}"]
    # Without -P, which older Pythons refuse with an error that is not ours; this folder is new and
    # empty.
    command += ["--workdir", "/tmp", "--entrypoint", rules.image_python]  # noqa: S108
    command += [image, "-s", "-m", "gateway.worker.slot.container_init", f"{SOCKETS}/{SOCKET_NAME}"]
    return (*command, str(shape.memory_bytes))


def _user(site: str) -> str:
    """Return its user ids, where root runs containers: no account, and distinct for each site."""
    number = container_user(site)
    return f"{number}:{number}"


def _podmans_own(rules: EnvironmentRules) -> list[str]:
    """Return the options that disable podman's extras, which docker does not have.

    These are volumes on this host's disk, as the image names them; our proxy variables, which may
    hold a password; and, without a network, this host's table of other hosts.
    """
    command = ["--read-only-tmpfs=false", "--image-volume", "ignore", "--http-proxy=false"]
    return command + (["--no-hosts"] if rules.network == "none" else [])


def ulimits() -> list[str]:
    """Return limits no higher than ours, as raising them would need a capability.

    The defaults of the runtimes may be higher. The limit of processes counts those of one user over
    all containers: a slot's own is --pids-limit.
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


def explain_end(code: int, said: str, image: str, rules: EnvironmentRules) -> str:
    """Explain why a container never became a slot, by its runtime's exit code and last words."""
    if code == 127 or "executable file not found" in said:
        return (
            f"image {image} has no {rules.image_python}: install Python in the image, or "
            "set image_python in [pool.environments] to its path"
        )
    if code == 126:
        return f"image {image}: {rules.image_python} can't be run"
    if "SyntaxError" in said or "No module named" in said:
        return f"image {image}: {rules.image_python} can't run a slot, which needs Python 3.11"
    return f"image {image} does not start (exit code {code})"


# --- queries -------------------------------------------------------------------------------------


def find_runtime(rules: EnvironmentRules) -> Runtime:
    """Return the first wanted runtime that works here. Raises ContainerUnavailable.

    It is tried with `info` only, which needs no image: `probe_below` checks whether it runs
    containers, once there is an image.
    """
    tried = []
    for program in rules.runtimes:
        if shutil.which(program) is None:
            tried.append(f"{program} is not installed")
            continue
        done = _ask((program, "info"))
        if done.returncode == 0:
            return Runtime(program)
        tried.append(f"{program} does not work: {_last_words(done)}")
    raise ContainerUnavailable(f"no container runtime works on this host: {'; '.join(tried)}")


def works(
    runtime: Runtime, image: str, rules: EnvironmentRules
) -> "subprocess.CompletedProcess[bytes]":
    """Run an empty command in an image; return the outcome."""
    command = [*runtime.command, "run", "--rm", "--pull", "never", "--network", "none"]
    command += ["--read-only", "--log-driver", "none", "--label", f"{LABEL}={PROBE}"]
    command += ["--cap-drop", "all", "--user", _user(""), "--memory", str(256 << 20)]
    command += [*ulimits(), "--entrypoint", rules.image_python, image, "-c", "pass"]
    return _ask(command)


def probe_below(runtime: Runtime, image: str, rules: EnvironmentRules) -> Runtime:
    """Return the runtime with an OCI runtime that works on this host. Raises ContainerUnavailable.

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
            # It runs containers, even if this image lacks something.
            return replace(candidate, is_limiting=_UNLIMITED not in done.stderr)
    assert done is not None, "the runtime's own choice must be among those tried"
    raise ContainerUnavailable(
        f"{runtime.program} can't run a container here: {_last_words(done)} (hybrid cgroups "
        "need runc; an unprivileged user needs subordinate ids)"
    )


def provide(runtime: Runtime, image: str, rules: EnvironmentRules) -> None:
    """Provide an image by the owner's policy. Raises ContainerUnavailable with advice."""
    is_here = _ask((*runtime.command, "image", "inspect", image)).returncode == 0
    if rules.pull == "always" or (
        rules.pull == "missing" and not is_here and image not in rules.build
    ):
        done = _ask((*runtime.command, "pull", image), PULL_S)
        if done.returncode:
            raise ContainerUnavailable(f"the pull failed: {_last_words(done)}")
    elif not is_here and image in rules.build:
        _build(runtime, image, rules.build[image])
    elif not is_here:
        raise ContainerUnavailable(
            f"the image is not on this host, and pull is {rules.pull!r}: import it "
            f"({runtime.program} load, or import), or allow a build or a pull"
        )


def _build(runtime: Runtime, image: str, folder: str) -> None:
    if not Path(folder).is_dir():
        raise ContainerUnavailable(f"the build folder {folder} does not exist")
    command = [*runtime.command, "build", "--tag", image, "--network", "none"]
    # podman passes its OCI runtime only to `run`.
    command += ["--runtime", runtime.below] if runtime.below else []
    done = _ask((*command, folder), PULL_S)
    if done.returncode:
        raise ContainerUnavailable(f"the build from {folder} failed: {_last_words(done)}")


def remove_strays(runtime: Runtime) -> int:
    """Remove containers of dead agents; return their number.

    An agent's label holds its process id and start time, so that a later process with the same
    number is not mistaken for it.
    """
    command = runtime.command
    found = _ask((*command, "ps", "--all", "--quiet", "--filter", f"label={LABEL}"))
    names = found.stdout.decode(errors="replace").split()
    # Not by a format of `ps`: podman and docker name labels differently there.
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
            f"{' '.join(command[:4])} … timed out after {duration_text(timeout_s)}"
        ) from None


def _last_words(done: "subprocess.CompletedProcess[bytes]") -> str:
    said = done.stderr.decode(errors="replace").strip()
    return said[-SAID_CHARS_MAX:] or f"exit code {done.returncode}"
