"""What a job may ask to run in: a container image, or Python packages. As it travels. Pure.

Where it may run is decided by a *wish* ({"image": "localhost/quant:1"}, or which kind of file says
what packages it needs). What the worker makes of it travels in front of the function, under the
function's digest: so it goes where functions go, once, and no gateway has to know of it.
"""

import hashlib
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from federation.errors import ProtocolError
from federation.wire import pack, unpack

# No pickle begins so: theirs is byte 0x80.
MARK: Final = b"gridfed environment\n"
FILES_BYTES_MAX: Final = 1 << 20
IMAGE_CHARS_MAX: Final = 150
LINES_MAX: Final = 5_000
PYTHON_CHARS_MAX: Final = 16
REQUIREMENTS: Final = "requirements"
UV: Final = "uv"
# The files of each kind, as they are called where the packages are installed.
FILES: Final = {REQUIREMENTS: ("requirements.txt",), UV: ("pyproject.toml", "uv.lock")}
_PART: Final = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
# A registry, parts, a tag, a digest: no path, and no other way of podman's to bring an image.
_IMAGE: Final = re.compile(
    rf"(?:[a-z0-9]+(?:[.-]+[a-z0-9]+)*(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
# With a tag behind these words podman reads a file, or what another program has.
NO_IMAGES: Final = frozenset(
    {
        *("containers-storage", "dir", "docker-archive", "docker-daemon", "oci", "oci-archive"),
        *("ostree", "sif", "tarball"),
    }
)
# name[extra,…], versions, a marker: PEP 508 without the URL that it may have instead of versions.
# Nor "$": pip puts variables of its own in their place, and its complaints show what they hold.
# No repetition gives back what it took, so that a line takes no longer than it is long.
_ARCHIVE: Final = re.compile(
    r"\.(whl|zip|tar|tgz|tbz2?|txz|tlz|tzst|tar\.[a-z0-9]+)\s*(\[[^\]]*\])?\Z",
    re.ASCII | re.IGNORECASE,
)
_REQUIREMENT: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*+ ?+(\[[A-Za-z0-9._, -]*+\])?+"
    r"[()<>=!~,.*+A-Za-z0-9_ -]*+(;[^@#$]*+)?+"
)
_HASH: Final = re.compile(r"--hash=sha(256|384|512):[0-9a-f]{64,128}")
# A key of TOML with so many parts: reading it takes the square of their number, or longer.
KEY_PARTS_MAX: Final = 32
_LONG_KEY: Final = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+)"""
    rf"{{{KEY_PARTS_MAX}}}"
)


@dataclass(frozen=True, slots=True)
class Environment:
    """What a job's tasks run in, beside what every slot has.

    Attributes:
        image: a container image; empty without one.
        packages: how `files` say which Python packages: REQUIREMENTS or UV; empty without any.
        files: name and content of each, in the order of FILES.
        python: the minor version that the job was made with, "3.11": another can't run it.
    """

    image: str = ""
    packages: str = ""
    files: tuple[tuple[str, bytes], ...] = ()
    python: str = ""

    @property
    def digest(self) -> str:
        """What tells one set of packages from another; empty without any."""
        if not self.packages:
            return ""
        found = hashlib.sha256(pack([self.packages, self.python]))
        for name, body in self.files:
            found.update(pack([name, body]))
        return found.hexdigest()

    @property
    def wish(self) -> dict[str, Any]:
        """What of it decides where the job may run."""
        if self.image:
            return {"image": self.image}
        return {"packages": self.packages, "digest": self.digest}

    def __str__(self) -> str:
        return f"image {self.image}" if self.image else f"Python packages by {self.packages}"


def read_environment(value: object, python: str) -> Environment:
    """An environment as a user names it: the text of an image's name, or the Path of a file.

    The file is read now: `uv.lock`, with the pyproject.toml beside it, or a requirements file.

    Raises:
        TypeError, ValueError: it is none, and why.
        OSError: the file can't be read.
    """
    if isinstance(value, str):
        if value.endswith((".txt", ".lock", ".toml")):
            raise ValueError(f"environment is {value!r:.80}: for a file write Path({value!r:.80})")
        check_image(value)
        return Environment(image=value, python=python)
    if not isinstance(value, os.PathLike):
        raise TypeError(
            f"environment is {value!r:.80}; it must be the name of an image, or the Path of a "
            "uv.lock or of a requirements file"
        )
    path = Path(value)
    packages = UV if path.name == "uv.lock" else REQUIREMENTS
    beside = [path] if packages == REQUIREMENTS else [path.with_name(name) for name in FILES[UV]]
    files = zip(FILES[packages], map(_read, beside), strict=True)
    found = Environment(packages=packages, files=tuple(files), python=python)
    check(found)
    return found


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILES_BYTES_MAX + 1)


def check_image(name: object) -> None:
    """Refuse what is no image's name: ValueError."""
    if (
        type(name) is not str
        or len(name) > IMAGE_CHARS_MAX
        or _IMAGE.fullmatch(name) is None
        or name.partition(":")[0] in NO_IMAGES
    ):
        raise ValueError(
            f"image {name!r:.80} is none: write it as in localhost/quant:1, in up to "
            f"{IMAGE_CHARS_MAX} characters"
        )


def check(environment: Environment) -> None:
    """Refuse an environment that nobody would make: ValueError says what is wrong with it.

    Packages are named, with versions; where they are taken from is for the worker's owner to say,
    so options, addresses and paths are refused, whoever asks.
    """
    if len(environment.python) > PYTHON_CHARS_MAX:
        raise ValueError("its Python version is none")
    if environment.image:
        check_image(environment.image)
        if environment.packages or environment.files:
            raise ValueError("an environment is an image or a file, not both")
        return
    if environment.packages not in FILES:
        raise ValueError(f"there is no kind of file {environment.packages!r:.40}")
    if tuple(name for name, _ in environment.files) != FILES[environment.packages]:
        raise ValueError(
            f"{environment.packages} takes {' and '.join(FILES[environment.packages])}"
        )
    if sum(len(body) for _, body in environment.files) > FILES_BYTES_MAX:
        raise ValueError(f"its files are over the limit of {FILES_BYTES_MAX:,} bytes")
    for name, body in environment.files:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{name} is no text in UTF-8") from None
        requirement_lines(text) if name.endswith(".txt") else _check_toml(name, text)


def requirement_lines(text: str) -> list[str]:
    """The packages of a requirements file, one a line, without remarks. ValueError.

    Install from these and not from the file: in a remark pip reads how the rest is encoded.
    """
    found = []
    lines = text.replace("\\\r\n", " ").replace("\\\n", " ").splitlines()
    if len(lines) > LINES_MAX:
        raise ValueError(f"requirements.txt has more than {LINES_MAX} lines")
    for line in lines:
        content = " ".join(line.partition(" #")[0].split())
        if not content or content.startswith("#"):
            continue
        named, *options = re.split(" (?=--)", content)
        # For pip the first word that begins with a dash ends the requirement and begins options,
        # wherever it stands: in a marker, or in quotes.
        has_option = " -" in named
        is_package = _REQUIREMENT.fullmatch(named) is not None and not has_option
        # What is called like a file is one to pip and uv, in the folder where they run.
        is_package = is_package and _ARCHIVE.search(named.partition(";")[0].rstrip()) is None
        if not is_package or not all(map(_HASH.fullmatch, options)):
            raise ValueError(
                f"requirements.txt: {content!r:.80} is not a package with a version: options, "
                "addresses and paths are not taken; the worker's owner says where packages are from"
            )
        found.append(content)
    return found


def _check_toml(name: str, text: str) -> None:
    if _LONG_KEY.search(text) is not None:
        raise ValueError(f"{name} has a key of more than {KEY_PARTS_MAX} parts")
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"{name} is no TOML: {error}") from None
    if name == "uv.lock":
        for package in _lock_packages(document):
            source = package.get("source")
            if not isinstance(source, dict) or not source.keys() & {"registry", "virtual"}:
                raise ValueError(
                    f"uv.lock: package {package.get('name')!r:.60} is from {source!r:.80}: only "
                    "packages of an index are taken (and the project itself, as a virtual one: "
                    "[tool.uv] package = false)"
                )
        return
    tool = document.get("tool", {})
    settings = tool.get("uv", {}) if isinstance(tool, dict) else None
    if not isinstance(settings, dict) or settings.keys() - {"package"}:
        raise ValueError("pyproject.toml: of [tool.uv] only `package` is taken, no sources")


def _lock_packages(document: dict[str, Any]) -> list[dict[str, Any]]:
    packages = document.get("package", [])
    if not isinstance(packages, list) or not all(isinstance(each, dict) for each in packages):
        raise ValueError("uv.lock: its packages are written as [[package]]")
    return packages


# --- in front of a function ----------------------------------------------------------------------


def wrap(function: bytes, environment: Environment) -> bytes:
    """A function's bytes with the environment that it is to run in."""
    head = [environment.image, environment.packages, environment.python]
    files = [list(each) for each in environment.files]
    return MARK + pack([*head, files, function])


def unwrap(body: bytes) -> tuple[Environment | None, bytes]:
    """The environment of a function, if it has one, and the function alone; ProtocolError."""
    if not body.startswith(MARK):
        return None, body
    plain = unpack(body[len(MARK) :], len(body))
    match plain:
        case [str(image), str(packages), str(python), list(files), bytes(function)]:
            pass
        case _:
            raise ProtocolError("a function with an environment that is none")
    try:
        environment = Environment(image, packages, tuple(map(_read_file, files)), python)
        check(environment)
    except ValueError as error:
        raise ProtocolError(f"a function with an environment that is none: {error}") from None
    return environment, function


def _read_file(row: object) -> tuple[str, bytes]:
    match row:
        case [str(name), bytes(content)]:
            return name, content
        case _:
            raise ValueError("a file is a name and a content")
