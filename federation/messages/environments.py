"""The environments that a job may ask for: a container image, or Python packages. Pure.

A *wish* decides where the job may run: {"image": "localhost/quant:1"}, or the kind of file that
lists its packages. The description from which the worker makes the environment travels in front of
the function, under the function's digest. It therefore travels once, like any function, and
gateways need not know of it.
"""

import hashlib
import re
import tomllib
from dataclasses import dataclass
from typing import Any, Final

from federation.errors import ProtocolError
from federation.messages.wire import pack, unpack
from federation.words import size_text

# No pickle begins like this: pickles begin with byte 0x80.
MARK: Final = b"gridfed environment\n"
FILES_BYTES_MAX: Final = 1 << 20
IMAGE_CHARS_MAX: Final = 150
LINES_MAX: Final = 5_000
PYTHON_CHARS_MAX: Final = 16
REQUIREMENTS: Final = "requirements"
UV: Final = "uv"
# The files of each kind, by their names where the packages are installed.
FILES: Final = {REQUIREMENTS: ("requirements.txt",), UV: ("pyproject.toml", "uv.lock")}
_PART: Final = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
# A registry, parts, a tag, a digest: no path, and no other of podman's ways to get an image.
_IMAGE: Final = re.compile(
    rf"(?:[a-z0-9]+(?:[.-]+[a-z0-9]+)*(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
# With a tag behind these words podman reads a file, or an image of another program.
NO_IMAGES: Final = frozenset(
    {
        *("containers-storage", "dir", "docker-archive", "docker-daemon", "oci", "oci-archive"),
        *("ostree", "sif", "tarball"),
    }
)
# name[extra,…], versions, a marker: PEP 508 without a URL in place of the versions. No "$" either:
# pip expands variables of its own, and its error messages show their values. No repetition
# backtracks, so that matching takes time linear in the line's length.
_ARCHIVE: Final = re.compile(
    r"\.(whl|zip|tar|tgz|tbz2?|txz|tlz|tzst|tar\.[a-z0-9]+)\s*(\[[^\]]*\])?\Z",
    re.ASCII | re.IGNORECASE,
)
_REQUIREMENT: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*+ ?+(\[[A-Za-z0-9._, -]*+\])?+"
    r"[()<>=!~,.*+A-Za-z0-9_ -]*+(;[^@#$]*+)?+"
)
_HASH: Final = re.compile(r"--hash=sha(256|384|512):[0-9a-f]{64,128}")
# The most parts of a TOML key: parsing one takes time at least quadratic in their number.
KEY_PARTS_MAX: Final = 32
_LONG_KEY: Final = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+)"""
    rf"{{{KEY_PARTS_MAX}}}"
)


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of a job's tasks, besides what every slot has.

    Attributes:
        image: a container image; empty without one.
        packages: the kind of `files`, which list the Python packages: REQUIREMENTS or UV; empty
            without any.
        files: name and content of each file, in the order of FILES.
        python: the minor version that the job was made with, "3.11": another can't run it.
    """

    image: str = ""
    packages: str = ""
    files: tuple[tuple[str, bytes], ...] = ()
    python: str = ""

    @property
    def digest(self) -> str:
        """A digest that identifies the set of packages; empty without any."""
        if not self.packages:
            return ""
        found = hashlib.sha256(pack([self.packages, self.python]))
        for name, body in self.files:
            found.update(pack([name, body]))
        return found.hexdigest()

    @property
    def wish(self) -> dict[str, Any]:
        """The part of it that decides where the job may run."""
        if self.image:
            return {"image": self.image}
        return {"packages": self.packages, "digest": self.digest}

    def __str__(self) -> str:
        return f"image {self.image}" if self.image else f"Python packages by {self.packages}"


def check_image(name: object) -> None:
    """Raise ValueError unless the value is the name of an image."""
    if (
        type(name) is not str
        or len(name) > IMAGE_CHARS_MAX
        or _IMAGE.fullmatch(name) is None
        or name.partition(":")[0] in NO_IMAGES
    ):
        raise ValueError(
            f"image {name!r:.80} is not a valid image name: use a form such as "
            f"localhost/quant:1, with at most {IMAGE_CHARS_MAX} characters"
        )


def check(environment: Environment) -> None:
    """Raise ValueError, with the reason, for an environment that no worker would make.

    Packages are named, with versions. The worker's owner decides where they come from, so options,
    addresses and paths are always refused.
    """
    if len(environment.python) > PYTHON_CHARS_MAX:
        raise ValueError("the Python version of the environment is invalid")
    if environment.image:
        check_image(environment.image)
        if environment.packages or environment.files:
            raise ValueError("an environment must be an image or a file, not both")
        return
    if environment.packages not in FILES:
        raise ValueError(f"unknown kind of file {environment.packages!r:.40}")
    if tuple(name for name, _ in environment.files) != FILES[environment.packages]:
        raise ValueError(
            f"{environment.packages} needs {' and '.join(FILES[environment.packages])}"
        )
    if sum(len(body) for _, body in environment.files) > FILES_BYTES_MAX:
        raise ValueError(
            f"the files of the environment exceed the limit of {size_text(FILES_BYTES_MAX)}"
        )
    for name, body in environment.files:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{name} is not UTF-8 text") from None
        requirement_lines(text) if name.endswith(".txt") else _check_toml(name, text)


def requirement_lines(text: str) -> list[str]:
    """Return the packages of a requirements file, one a line, without remarks. ValueError.

    Install from these lines, not from the file: pip reads an encoding from the file's remarks.
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
        # For pip, the first word that begins with a dash ends the requirement and begins options,
        # wherever it stands: in a marker, or in quotes.
        has_option = " -" in named
        is_package = _REQUIREMENT.fullmatch(named) is not None and not has_option
        # For pip and uv, a name like that of a file is a file in the folder where they run.
        is_package = is_package and _ARCHIVE.search(named.partition(";")[0].rstrip()) is None
        if not is_package or not all(map(_HASH.fullmatch, options)):
            raise ValueError(
                f"requirements.txt: {content!r:.80} is not a package with a version: "
                "options, addresses and paths are not allowed; the worker's owner "
                "configures the package index"
            )
        found.append(content)
    return found


def _check_toml(name: str, text: str) -> None:
    if _LONG_KEY.search(text) is not None:
        raise ValueError(f"{name} has a key of more than {KEY_PARTS_MAX} parts")
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"{name} is not valid TOML: {error}") from None
    if name == "uv.lock":
        for package in _lock_packages(document):
            source = package.get("source")
            if not isinstance(source, dict) or not source.keys() & {"registry", "virtual"}:
                raise ValueError(
                    f"uv.lock: package {package.get('name')!r:.60} comes from "
                    f"{source!r:.80}: only packages of an index are allowed (and the "
                    "project itself, as a virtual package: [tool.uv] package = false)"
                )
        return
    tool = document.get("tool", {})
    settings = tool.get("uv", {}) if isinstance(tool, dict) else None
    if not isinstance(settings, dict) or settings.keys() - {"package"}:
        raise ValueError("pyproject.toml: only `package` is allowed in [tool.uv], no sources")


def _lock_packages(document: dict[str, Any]) -> list[dict[str, Any]]:
    packages = document.get("package", [])
    if not isinstance(packages, list) or not all(isinstance(each, dict) for each in packages):
        raise ValueError("uv.lock: packages must be written as [[package]]")
    return packages


# --- in front of a function ----------------------------------------------------------------------


def wrap(function: bytes, environment: Environment) -> bytes:
    """Put the environment in front of a function's bytes."""
    head = [environment.image, environment.packages, environment.python]
    files = [list(each) for each in environment.files]
    return MARK + pack([*head, files, function])


def unwrap(body: bytes) -> tuple[Environment | None, bytes]:
    """Return a function's environment, if it has one, and the function alone; ProtocolError."""
    if not body.startswith(MARK):
        return None, body
    plain = unpack(body[len(MARK) :], len(body))
    match plain:
        case [str(image), str(packages), str(python), list(files), bytes(function)]:
            pass
        case _:
            raise ProtocolError("the environment of the function is invalid")
    try:
        environment = Environment(image, packages, tuple(map(_read_file, files)), python)
        check(environment)
    except ValueError as error:
        raise ProtocolError(f"the environment of the function is invalid: {error}") from None
    return environment, function


def _read_file(row: object) -> tuple[str, bytes]:
    match row:
        case [str(name), bytes(content)]:
            return name, content
        case _:
            raise ValueError("a file must be a name and its content")
