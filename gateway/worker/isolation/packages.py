"""Python packages that a job brings: installed once on a host, and cached by their content.

They go into a virtual environment of this worker's own Python, filled by uv where available, else
by pip, from the owner's sources; of a uv.lock the versions and hashes apply, and none of its
addresses. It is made beside its place and put there by one atomic rename, so an environment that
exists is complete. The least recently used are removed when there are too many.
"""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path
from typing import Final

from federation.messages.environments import REQUIREMENTS, UV, Environment, requirement_lines
from federation.words import duration_text
from gateway.base.interpreter import run_module
from gateway.config.environments import EnvironmentRules
from gateway.worker.isolation.strays import remove_folder

SAID_CHARS_MAX: Final = 1_500
FOLDER: Final = "packages"
MAKING: Final = ".making-"  # the leftovers of a killed agent are removed with the oldest
REQUIREMENTS_FILE: Final = "requirements.txt"
DAY_S: Final = 86_400.0  # longer than build_s can be
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
_KEPT: Final = ("HOME", "PATH", "LANG", "LC_ALL", "TMPDIR", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
_SET_UP: Final = ("PIP_", "UV_", "SSL_")  # the owner's settings of pip and uv


class PackagesUnavailable(Exception):
    """Packages are unavailable here; the text says why."""


def kinds(rules: EnvironmentRules) -> tuple[str, ...]:
    """Return the kinds of files that can be installed here."""
    if not rules.packages:
        return ()
    return (REQUIREMENTS, UV) if find_uv() else (REQUIREMENTS,)


def find_uv() -> str:
    """Return the path of uv, beside this Python or on the path; empty without one."""
    beside = Path(sys.executable).parent / "uv"
    return str(beside) if beside.exists() else shutil.which("uv") or ""


def cache_folder(rules: EnvironmentRules) -> Path:
    """Return the folder of the cached environments."""
    if rules.cache:
        return Path(rules.cache) / FOLDER
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "gridfed" / FOLDER


def provide(environment: Environment, rules: EnvironmentRules) -> Path:
    """Return the folder of an environment with these packages. Raises PackagesUnavailable."""
    _check(environment, rules)
    cache = cache_folder(rules)
    place = cache / f"{PYTHON}-{environment.digest[:32]}"
    if not place.exists():
        cache.mkdir(parents=True, exist_ok=True, mode=0o755)
        _make(environment, rules, cache, place)
    os.utime(place)
    _forget_oldest(cache, rules.kept_max, place)
    return place


def _check(environment: Environment, rules: EnvironmentRules) -> None:
    if environment.packages not in kinds(rules):
        why = (
            "uv is not installed"
            if rules.packages
            else "packages is not true in [pool.environments]"
        )
        raise PackagesUnavailable(f"{environment.packages} can't be installed here: {why}")
    if environment.python != PYTHON:
        raise PackagesUnavailable(
            f"the packages are for Python {environment.python}, this worker has {PYTHON}"
        )


def _make(environment: Environment, rules: EnvironmentRules, cache: Path, place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache, prefix=MAKING) as name:
        made = Path(name)
        uv, wanted = find_uv(), made / REQUIREMENTS_FILE
        for file, body in environment.files:
            (made / file).write_bytes(body)
        if environment.packages == UV:
            _run(export_command(made, uv), rules, made)
        try:
            wanted.write_text("\n".join(requirement_lines(wanted.read_text())))
        except ValueError as error:
            raise PackagesUnavailable(f"{environment.packages}: {error}") from None
        target = made / "venv"
        for command in commands(rules, wanted, target, uv):
            _run(command, rules, made)
        _let_all_read(target)
        try:
            target.rename(place)
        except OSError:
            if not place.exists():  # else another agent of this host was faster
                raise


def _let_all_read(folder: Path) -> None:
    """Make a folder readable to all: slots of other sites' work run as users without rights.

    The umask of this worker, or of the one that filled uv's cache, may have been stricter. The rest
    of the cache stays as it is: only this folder is shown to a slot.
    """
    for path in chain((folder,), folder.rglob("*")):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (0o555 if path.is_dir() or mode & stat.S_IXUSR else 0o444))


def export_command(folder: Path, uv: str) -> list[str]:
    """Return the command that exports a uv.lock as requirements, with their hashes."""
    command = [uv, "export", "--frozen", "--no-emit-project", "--no-dev", "--no-header", "--quiet"]
    command += ["--no-annotate", "--no-python-downloads", "--directory", str(folder)]
    return [*command, "--output-file", str(folder / REQUIREMENTS_FILE)]


def commands(rules: EnvironmentRules, wanted: Path, target: Path, uv: str) -> list[list[str]]:
    """Return the commands that make a virtual environment of a requirements file.

    It may be moved: only scripts that we don't call contain its path.
    """
    if uv:
        make = [uv, "venv", "--quiet", "--python", sys.executable, "--no-python-downloads"]
        fill = [uv, "pip", "install", "--quiet", "--no-config", "--python", str(target)]
        fill += ["--requirements", str(wanted)] + (["--no-build"] if rules.wheels_only else [])
        return [[*make, str(target)], [*fill, *_source(rules, "--default-index")]]
    fill = run_module("pip", python=str(target / "bin" / "python"))
    fill += ["install", "--quiet", "--no-input"]
    fill += ["--disable-pip-version-check", "--requirement", str(wanted)]
    fill += ["--only-binary", ":all:"] if rules.wheels_only else []
    return [[*run_module("venv"), str(target)], [*fill, *_source(rules, "--index-url")]]


def _source(rules: EnvironmentRules, index_option: str) -> list[str]:
    found = [index_option, rules.index] if rules.index else []
    if rules.links:
        found += ["--find-links", rules.links] + ([] if rules.index else ["--no-index"])
    return found


def _run(command: list[str], rules: EnvironmentRules, folder: Path) -> None:
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {n: v for n, v in os.environ.items() if n.startswith(_SET_UP)}
    environment |= {"UV_LINK_MODE": "copy"}
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=rules.build_s)
        except subprocess.TimeoutExpired:
            # With its children: they would run on, in a folder that is removed.
            os.killpg(process.pid, signal.SIGKILL)
            raise PackagesUnavailable(
                f"the installation timed out after {duration_text(rules.build_s)} (build_s)"
            ) from None
    if process.returncode:
        said = (stderr + stdout).decode(errors="replace").strip()
        raise PackagesUnavailable(
            f"the installation failed (wheels_only is {str(rules.wheels_only).lower()}): "
            f"{said[-SAID_CHARS_MAX:]}"
        )


def _forget_oldest(cache: Path, kept_max: int, needed: Path) -> None:
    """Keep at most `kept_max` environments, even if a slot has loaded from a removed one.

    Modules that Python has imported stay; others will be missing. So only environments that were
    not used for a day are removed, whatever `kept_max` says.
    """
    now_s = needed.stat().st_mtime
    found = sorted((each.stat().st_mtime, each) for each in cache.iterdir() if each != needed)
    left = [each for _, each in found if each.name.startswith(MAKING)]
    kept = [each for _, each in found if not each.name.startswith(MAKING)]
    used_s = {each: when_s for when_s, each in found}
    for each in (*left, *kept[: max(0, len(kept) + 1 - kept_max)]):
        if now_s - used_s[each] > DAY_S:
            remove_folder(each)
