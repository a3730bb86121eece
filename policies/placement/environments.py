"""Matching a job's environment with the environments that a worker offers, by its tags. Pure.

A worker whose owner lets jobs name images carries `environment:image:PATTERN` for each pattern. A
worker that installs Python packages carries `environment:packages:requirements` and, with uv,
`environment:packages:uv`. Adverts carry tags, so other sites know, and older ones pass them on.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from federation.messages.environments import REQUIREMENTS, UV, check_image

IMAGE: Final = "image:"
PACKAGES: Final = "packages:"
TAG: Final = "environment:"
SANDBOX_TAG: Final = "sandbox:"
Tags = Mapping[str, object]
DIGEST_CHARS: Final = 64
SHOWN_MAX: Final = 5


def wanted(wish: object) -> str:
    """Parse a wish, "image:localhost/quant:1" or "packages:uv"; "" for none. Raise ValueError.

    An unknown wish is an error: a restriction must not be ignored.
    """
    match wish:
        case None:
            return ""
        case {"image": name, **rest} if not rest:
            check_image(name)
            return f"{IMAGE}{name}"
        case {"packages": str(kind), "digest": str(digest), **rest} if not rest:
            if kind in (REQUIREMENTS, UV) and len(digest) == DIGEST_CHARS and digest.isalnum():
                return f"{PACKAGES}{kind}:{digest}"
    raise ValueError(f"unknown environment setting {wish!r:.80}")


def wish_plain(environment: str) -> dict[str, str]:
    """Convert the result of `wanted` back to a wish, to send it on."""
    if environment.startswith(IMAGE):
        return {"image": environment.removeprefix(IMAGE)}
    kind, _, digest = environment.removeprefix(PACKAGES).partition(":")
    return {"packages": kind, "digest": digest}


def kind_of(environment: str) -> str:
    """Return the kind to match: jobs that differ only in packages need the same of a worker."""
    if environment.startswith(PACKAGES):
        return environment.rpartition(":")[0]
    return environment


def has_own_python(environment: str) -> bool:
    """Whether it has a Python of its own, independent of the worker's."""
    return environment.startswith(IMAGE)


def tags_of(images: Iterable[str], packages: Iterable[str]) -> dict[str, bool]:
    """Return the tags of a worker that offers these images and package kinds."""
    found = {f"{TAG}{IMAGE}{pattern}": True for pattern in images}
    return found | {f"{TAG}{PACKAGES}{kind}": True for kind in packages}


def tag_of(environment: str) -> dict[str, bool]:
    """Return the tag for exactly this environment, as in a contract for a job; none for ""."""
    return {f"{TAG}{kind_of(environment)}": True} if environment else {}


def is_sandbox(tag: str) -> bool:
    """Whether it is the tag of a worker that takes other sites' work."""
    return tag.startswith(SANDBOX_TAG)


def offers(environment: str, tags: Tags) -> bool:
    """Whether a worker with these tags offers it."""
    if not environment.startswith(IMAGE):
        return f"{TAG}{environment}" in tags
    name = environment.removeprefix(IMAGE)
    return any(matches(name, pattern) for pattern in image_patterns(tags))


def image_patterns(tags: Tags) -> list[str]:
    """Return the image patterns in tags."""
    head = f"{TAG}{IMAGE}"
    return [tag.removeprefix(head) for tag in tags if tag.startswith(head)]


def matches(image: str, pattern: str) -> bool:
    """Whether a pattern matches an image, part by part between slashes.

    `*` matches anything within a part, so that no other registry can match; a last part of `**`
    matches all remaining parts.
    """
    parts, wanted = image.split("/"), pattern.split("/")
    if wanted[-1] == "**":
        wanted[-1:] = ["*"] * max(1, len(parts) - len(wanted) + 1)
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def describe(environment: str, tags: Tags) -> str:
    """Explain for people why it is not offered, with the environments that are."""
    if environment.startswith(IMAGE):
        patterns = sorted(image_patterns(tags))
        more = ", …" if len(patterns) > SHOWN_MAX else ""
        known = f"only {', '.join(patterns[:SHOWN_MAX])}{more}" if patterns else "nor any other"
        return f"does not allow image {environment.removeprefix(IMAGE)}, {known}"
    return f"does not install Python packages from {environment.removeprefix(PACKAGES)}"
