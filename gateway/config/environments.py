"""The owner's rules for the environments of jobs, and how far they are isolated.

[pool.environments]                     # also a file of its own, for `gridfed worker`
images = ["localhost/quant:*"]          # that jobs may name; * stands for anything but a slash
runtimes = ["podman", "docker"]         # in order of preference
pull = "never"                          # "missing", "always": from a registry
network = "none"                        # "host"; of images, and of work in the sandbox
cpus = 1.0                              # cores of a slot in a container or sandbox
pids_max = 256                          # processes and threads of such a slot
tmp_bytes = 268435456                   # of a slot's own /tmp
image_python = "python3"                # the interpreter in images
packages = false                        # whether jobs may bring Python packages
wheels_only = true                      # nothing is built, so none of their code runs meanwhile
index = ""                              # source of packages; empty: the settings of pip and uv
links = ""                              # a folder of wheels; with no index, the only source
build_s = 600                           # time limit of a build
cache = ""                              # of environments; empty: ~/.cache/gridfed
kept_max = 20                           # environments in the cache
sandbox = "auto"                        # of others' work: "bubblewrap", "user", "image";
                                        # "auto": the first of the first two that works here
sandbox_image = ""                      # the image for others' work that names none
accept_risk = ""                        # with sandbox = "none": the words that accept others' work
                                        # all the same; without them it is refused
[pool.environments.build]               # images that are built from a folder if they are missing
"localhost/quant:1" = "/srv/images/quant"
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from federation.messages.environments import IMAGE_CHARS_MAX, REQUIREMENTS, UV, check_image
from gateway.base.values import (
    SettingError,
    check_known,
    choice,
    count,
    flag,
    number,
    size,
    text_of,
)
from policies.placement.environments import SANDBOX_TAG, tags_of

IMAGES_MAX: Final = 16
BUILDS_MAX: Final = 16
PULLS: Final = ("never", "missing", "always")
CGROUPS: Final = ("auto", "off", "required")
NETWORKS: Final = ("none", "host")
AUTO: Final = "auto"
ANY_USER: Final = "auto"  # one that the worker finds on its host
OWN_USER: Final = "none"  # the worker's own
SANDBOXES: Final = (AUTO, "none", "user", "bubblewrap", "image")
RISK: Final = "tasks of others can act as this site"
TAKES_NONE: Final = (
    'it takes no work of other sites, because sandbox is "none": choose a sandbox in '
    f'[pool.environments], or accept the risk there: accept_risk = "{RISK}"'
)
RUNTIMES: Final = ("podman", "docker")
TEXT_CHARS_MAX: Final = 500
_PATTERN: Final = re.compile(r"[a-z0-9*][A-Za-z0-9._/:@*-]*")
# With bounds: 0.05 of a core starts Python in a minute; below 16 processes it has no threads.
GPUS_MAX: Final = 1024
CPUS_MIN: Final = 0.05
CPUS_MAX: Final = 1024.0
PIDS_MIN: Final = 16
PIDS_MAX: Final = 1 << 20
_NUMBERS: Final[Mapping[str, tuple[float, float]]] = {
    "cpus": (CPUS_MIN, CPUS_MAX),
    "build_s": (1.0, 86_400.0),
}
_COUNTS: Final[Mapping[str, tuple[int, int]]] = {
    "pids_max": (PIDS_MIN, PIDS_MAX),
    "kept_max": (1, 10_000),
}
_TMP_BYTES: Final = (1 << 20, 1 << 40)
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "pull": PULLS,
    "network": NETWORKS,
    "sandbox": SANDBOXES,
}


@dataclass(frozen=True, slots=True)
class Confines:
    """The limits of all slots of a local pool, in any environment; 0 is no limit.

    `cgroups` are used where available ("auto"), never ("off"), or must be available ("required").
    """

    cpus: float = 0.0
    pids_max: int = 0
    cgroups: str = "auto"
    pin: bool = False  # each slot to cores of its own
    user: str = "none"  # the user that slots run as: see gateway.worker.isolation.users


FREE: Final = Confines()


@dataclass(frozen=True, slots=True)
class EnvironmentRules:
    """The rules described above; every field is a key."""

    images: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = RUNTIMES
    pull: str = "never"
    network: str = "none"
    cpus: float = 1.0
    pids_max: int = 256
    tmp_bytes: int = 256 << 20
    image_python: str = "python3"
    packages: bool = False
    wheels_only: bool = True
    index: str = ""
    links: str = ""
    build_s: float = 600.0
    cache: str = ""
    kept_max: int = 20
    sandbox: str = "none"
    sandbox_image: str = ""
    accept_risk: str = ""
    build: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_images(self) -> bool:
        """Whether slots may be containers."""
        return bool(self.images) or self.sandbox == "image"

    @property
    def keeps_apart(self) -> bool:
        """Whether other sites' work must be sandboxed."""
        return self.sandbox != "none"

    @property
    def takes_others(self) -> bool:
        """Whether other sites' work may run: sandboxed, or because the owner accepted the risk."""
        return self.keeps_apart or bool(self.accept_risk)

    @property
    def promised(self) -> dict[str, bool]:
        """The tags of a worker where everything works that these rules ask for."""
        found = tags_of(self.images, (REQUIREMENTS, UV) if self.packages else ())
        is_known = self.takes_others and self.sandbox != AUTO
        return found | ({f"{SANDBOX_TAG}{self.sandbox}": True} if is_known else {})

    def to_json(self) -> str:
        """Return the rules in the format of `rules_from_json`, for an agent."""
        plain = asdict(self)
        if not self.accept_risk:
            del plain["accept_risk"]  # older workers do not know it
        return json.dumps(plain)


def check_confines(confines: Confines) -> None:
    """Check the limits of slots. Raises SettingError."""
    if confines.cpus:
        number("cpus", confines.cpus, CPUS_MIN, CPUS_MAX)
    if confines.pids_max:
        count("pids_max", confines.pids_max, PIDS_MIN, PIDS_MAX)
    choice("cgroups", confines.cgroups, CGROUPS)
    flag("pin", confines.pin)


def check_user(user: Any) -> None:
    """Check the name of a user. Raises SettingError."""
    if not isinstance(user, str) or re.fullmatch(r"[a-z_][a-z0-9_-]{0,31}", user) is None:
        raise SettingError('user must be "auto", "none", or the name of a user of this host')


def gpus_tagged(tags: Any) -> int:
    """Return the GPUs that a pool's tag counts; a plain tag counts none."""
    amount = tags.get("gpu", 0) if isinstance(tags, Mapping) else 0
    return int(amount) if type(amount) in (int, float) and 0 <= amount <= 1e12 else 0


def read_gpus(given: Any, tags: Any) -> tuple[str, ...]:
    """Return the names of a pool's GPUs. Raises SettingError."""
    if not isinstance(given, list | tuple) or not all(
        isinstance(each, str) and each.isprintable() and "," not in each and 0 < len(each) <= 100
        for each in given
    ):
        raise SettingError('gpus must be a list of device names, as in CUDA_VISIBLE_DEVICES: ["0"]')
    tagged = gpus_tagged(tags)
    if tagged > GPUS_MAX:
        raise SettingError(f"the tag gpu is {tagged}: a host has at most {GPUS_MAX}")
    if given and len(given) != tagged:
        raise SettingError(
            f"gpus has {len(given)} devices, but the tag gpu is {tagged}: they must agree"
        )
    return tuple(given)


def read_rules(table: Any) -> EnvironmentRules:
    """Return the rules of a table. Raises SettingError that names the wrong key."""
    if not isinstance(table, dict):
        raise SettingError("must be a table")
    check_known(table, EnvironmentRules.__slots__)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in _NUMBERS:
            values[key] = float(number(key, value, *_NUMBERS[key]))
        elif key in _COUNTS:
            values[key] = count(key, value, *_COUNTS[key])
        elif key == "tmp_bytes":
            values[key] = size(key, value, *_TMP_BYTES)
        elif key in _CHOICES:
            values[key] = choice(key, value, _CHOICES[key])
        elif key in ("packages", "wheels_only"):
            values[key] = flag(key, value)
        elif key == "images":
            values[key] = _patterns(key, value)
        elif key == "runtimes":
            values[key] = tuple(choice(key, each, RUNTIMES) for each in _texts(key, value, 2))
        elif key == "build":
            values[key] = _builds(value)
        else:
            values[key] = text_of(key, value, TEXT_CHARS_MAX)
    # Building packages would run other sites' code outside of the sandbox.
    is_building = values.get("packages") and not values.get("wheels_only", True)
    values.setdefault("sandbox", "none" if is_building else AUTO)
    rules = EnvironmentRules(**values)
    _check(rules)
    return rules


def rules_from_json(text: str) -> EnvironmentRules:
    """Return the rules that a local pool hands to its agent."""
    plain = json.loads(text)
    for key in ("images", "runtimes"):
        plain[key] = tuple(plain[key])
    return EnvironmentRules(**plain)


def _check(rules: EnvironmentRules) -> None:
    if rules.sandbox == "image":
        if not rules.sandbox_image:
            raise SettingError('sandbox = "image" needs a sandbox_image, for work without an image')
        _image("sandbox_image", rules.sandbox_image)
    elif rules.sandbox_image:
        raise SettingError('sandbox_image needs sandbox = "image"')
    if rules.accept_risk and rules.sandbox != "none":
        raise SettingError('accept_risk needs sandbox = "none"')
    if rules.accept_risk not in ("", RISK):
        raise SettingError(f'accept_risk must be the words "{RISK}", which state the accepted risk')
    if rules.sandbox != "none" and rules.packages and not rules.wheels_only:
        raise SettingError(
            "wheels_only must not be false with a sandbox: other sites' packages would be "
            "built outside of it"
        )
    if not rules.image_python:
        raise SettingError("image_python must name the interpreter in images, as in python3")
    if rules.has_images and not rules.runtimes:
        raise SettingError("runtimes must name the container runtimes: podman or docker")
    for image, folder in rules.build.items():
        _image("build", image)
        if not Path(folder).is_absolute():
            raise SettingError(f"build: {folder!r:.80} must be an absolute path")
    _check_sources(rules)


def _check_sources(rules: EnvironmentRules) -> None:
    for key in ("links", "cache"):
        path = getattr(rules, key)
        if path and not Path(path).is_absolute():
            raise SettingError(f"{key} is {path!r:.80}: it must be an absolute path")
    if rules.index and not rules.index.startswith(("https://", "http://", "file:///")):
        raise SettingError(f"index is {rules.index!r:.80}: it must be an address, as in https://…")
    if "@" in rules.index.partition("://")[2].partition("/")[0]:
        raise SettingError(
            "index contains a user or a password, which other users of this host could read "
            "from a command line: leave it empty, and set UV_DEFAULT_INDEX and PIP_INDEX_URL, "
            "or a netrc"
        )


def _image(key: str, name: str) -> None:
    try:
        check_image(name)
    except ValueError as error:
        raise SettingError(f"{key}: {error}") from None


def _texts(key: str, value: Any, most: int) -> list[str]:
    if not isinstance(value, list) or len(value) > most:
        raise SettingError(f"{key} must be a list of at most {most}")
    return value


def _patterns(key: str, value: Any) -> tuple[str, ...]:
    found = []
    for each in _texts(key, value, IMAGES_MAX):
        text = text_of(key, each, TEXT_CHARS_MAX)
        if len(text) > IMAGE_CHARS_MAX or _PATTERN.fullmatch(text) is None:
            raise SettingError(f"{key}: {text!r:.80} is not an image name, as in localhost/quant:*")
        found.append(text)
    return tuple(found)


def _builds(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > BUILDS_MAX:
        raise SettingError(f"build must be a table of at most {BUILDS_MAX} images")
    return {
        text_of("build", name, TEXT_CHARS_MAX): text_of("build", folder, TEXT_CHARS_MAX)
        for name, folder in value.items()
    }
