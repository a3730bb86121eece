"""Python packages that a job brings: made once on a host, and kept by their content.

A virtual environment of this worker's own Python, filled by uv where it is, else by pip, from
where the owner says. It is made beside its place and put there whole by one rename, so who finds
it may use it; those used longest ago go when there are too many.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from federation.environments import REQUIREMENTS, UV, Environment, lock_indexes
from gateway.worker.rules import Rules

SAID_CHARS_MAX: Final = 1_500
FOLDER: Final = "packages"
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
_KEPT: Final = ("HOME", "PATH", "LANG", "LC_ALL", "TMPDIR", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
_SET_UP: Final = ("PIP_", "UV_", "SSL_")  # how the owner has set pip and uv up


class PackagesUnavailable(Exception):
    """Packages can't be had here; the text says why."""


def kinds(rules: Rules) -> tuple[str, ...]:
    """The kinds of files that can be installed here."""
    if not rules.packages:
        return ()
    return (REQUIREMENTS, UV) if find_uv() else (REQUIREMENTS,)


def find_uv() -> str:
    """Where uv is; empty when it isn't: beside this Python, or on the path."""
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if beside.exists() else shutil.which("uv") or ""


def cache_folder(rules: Rules) -> Path:
    """Where environments are kept."""
    if rules.cache:
        return Path(rules.cache) / FOLDER
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "gridfed" / FOLDER


def provide(environment: Environment, rules: Rules) -> Path:
    """The folder of a virtual environment with these packages. Raises PackagesUnavailable."""
    _check(environment, rules)
    cache = cache_folder(rules)
    place = cache / f"{PYTHON}-{environment.digest[:32]}"
    if not place.exists():
        cache.mkdir(parents=True, exist_ok=True, mode=0o755)
        _make(environment, rules, cache, place)
    os.utime(place)
    _forget_oldest(cache, rules.kept_max, place)
    return place


def _check(environment: Environment, rules: Rules) -> None:
    if environment.packages not in kinds(rules):
        why = "there is no uv" if rules.packages else "packages is not true in [pool.environments]"
        raise PackagesUnavailable(f"nothing is installed by {environment.packages} here: {why}")
    if environment.python != PYTHON:
        raise PackagesUnavailable(
            f"its packages are for Python {environment.python}, this worker has {PYTHON}"
        )
    if environment.packages == UV and (rules.index or rules.links):
        others = lock_indexes(environment) - {rules.index, rules.links}
        if others:
            raise PackagesUnavailable(
                f"its uv.lock takes packages from {min(others)}; here they are from "
                f"{rules.index or rules.links} alone: lock it against that"
            )


def _make(environment: Environment, rules: Rules, cache: Path, place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache, prefix=".making-") as name:
        made = Path(name)
        for file, body in environment.files:
            (made / file).write_bytes(body)
        target = made / "venv"
        for command in commands(environment, rules, made, target, find_uv()):
            _run(command, rules, made)
        target.chmod(0o755)
        try:
            target.rename(place)
        except OSError:
            if not place.exists():  # else another agent of this host was sooner
                raise


def commands(
    environment: Environment, rules: Rules, folder: Path, target: Path, uv: str
) -> list[list[str]]:
    """What makes a virtual environment of the files in a folder.

    Nothing in it knows its own place but scripts that we don't call, so it may be moved.
    """
    if uv:
        make = [uv, "venv", "--quiet", "--python", sys.executable, "--no-python-downloads"]
        source = _uv_source(rules)
        if environment.packages == UV:
            fill = [uv, "sync", "--frozen", "--no-install-project", "--no-dev", "--quiet"]
            fill += ["--directory", str(folder), "--no-python-downloads"]
        else:
            fill = [uv, "pip", "install", "--quiet", "--no-config", "--python", str(target)]
            fill += ["--requirements", str(folder / "requirements.txt")]
        fill += ["--no-build"] if rules.wheels_only else []
        return [[*make, str(target)], [*fill, *source]]
    fill = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
    fill += ["--disable-pip-version-check", "--requirement", str(folder / "requirements.txt")]
    fill += ["--only-binary", ":all:"] if rules.wheels_only else []
    return [[sys.executable, "-m", "venv", str(target)], [*fill, *_pip_source(rules)]]


def _uv_source(rules: Rules) -> list[str]:
    found = ["--default-index", rules.index] if rules.index else []
    if rules.links:
        found += ["--find-links", rules.links] + ([] if rules.index else ["--no-index"])
    return found


def _pip_source(rules: Rules) -> list[str]:
    found = ["--index-url", rules.index] if rules.index else []
    if rules.links:
        found += ["--find-links", rules.links] + ([] if rules.index else ["--no-index"])
    return found


def _run(command: list[str], rules: Rules, folder: Path) -> None:
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {n: v for n, v in os.environ.items() if n.startswith(_SET_UP)}
    environment |= {"UV_PROJECT_ENVIRONMENT": str(folder / "venv"), "UV_LINK_MODE": "copy"}
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=rules.build_s,
            cwd=folder,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise PackagesUnavailable(
            f"they were not installed within build_s, {rules.build_s:g} s"
        ) from None
    if done.returncode:
        said = (done.stderr + done.stdout).decode(errors="replace").strip()
        raise PackagesUnavailable(
            f"they can't be installed (wheels_only is {str(rules.wheels_only).lower()}): "
            f"{said[-SAID_CHARS_MAX:]}"
        )


def _forget_oldest(cache: Path, kept_max: int, needed: Path) -> None:
    """Keep so many environments; one that a slot has loaded from may go all the same.

    What Python has imported stays; what it has not will be missed. So only what was not used for
    a day goes, whatever `kept_max` says.
    """
    now_s = needed.stat().st_mtime
    found = sorted(
        (each.stat().st_mtime, each)
        for each in cache.iterdir()
        if each != needed and not each.name.startswith(".making-")
    )
    for used_s, each in found[: max(0, len(found) + 1 - kept_max)]:
        if now_s - used_s > 86_400:
            shutil.rmtree(each, ignore_errors=True)
