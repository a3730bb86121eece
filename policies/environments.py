"""Whether a worker offers what a job wants to run in: by tags that it carries. Pure.

A worker whose owner lets jobs name images carries `environment:image:PATTERN` for each pattern;
one that installs Python packages `environment:packages:requirements` and, with uv,
`environment:packages:uv`. Adverts carry tags, so other sites know, and older ones pass them on.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from federation.environments import REQUIREMENTS, UV, check_image

IMAGE: Final = "image:"
PACKAGES: Final = "packages:"
TAG: Final = "environment:"
SANDBOX_TAG: Final = "sandbox:"
Tags = Mapping[str, object]
DIGEST_CHARS: Final = 64
SHOWN_MAX: Final = 5


def wanted(wish: object) -> str:
    """What a job wants, "image:localhost/quant:1" or "packages:uv"; "" for nothing. ValueError.

    An unknown wish is an error: what restricts must not be ignored.
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
    raise ValueError(f"this gateway knows no environment {wish!r:.80}")


def wish_plain(environment: str) -> dict[str, str]:
    """What `wanted` made of a wish, as it travels on."""
    if environment.startswith(IMAGE):
        return {"image": environment.removeprefix(IMAGE)}
    kind, _, digest = environment.removeprefix(PACKAGES).partition(":")
    return {"packages": kind, "digest": digest}


def kind_of(environment: str) -> str:
    """What is looked for: jobs that differ in packages alone ask for the same of a worker."""
    if environment.startswith(PACKAGES):
        return environment.rpartition(":")[0]
    return environment


def has_own_python(environment: str) -> bool:
    """Whether it brings a Python of its own, whatever the worker's is."""
    return environment.startswith(IMAGE)


def tags_of(images: Iterable[str], packages: Iterable[str]) -> dict[str, bool]:
    """The tags of a worker that lets jobs name such images, and installs such packages."""
    found = {f"{TAG}{IMAGE}{pattern}": True for pattern in images}
    return found | {f"{TAG}{PACKAGES}{kind}": True for kind in packages}


def tag_of(environment: str) -> dict[str, bool]:
    """The tag of who offers just this, as a contract for a job does; none for no environment."""
    return {f"{TAG}{kind_of(environment)}": True} if environment else {}


def is_sandbox(tag: str) -> bool:
    """Whether it is the tag of who takes other sites' work."""
    return tag.startswith(SANDBOX_TAG)


def offers(environment: str, tags: Tags) -> bool:
    """Whether a worker with these tags offers it."""
    if not environment.startswith(IMAGE):
        return f"{TAG}{environment}" in tags
    name = environment.removeprefix(IMAGE)
    return any(matches(name, pattern) for pattern in image_patterns(tags))


def image_patterns(tags: Tags) -> list[str]:
    """The patterns of images that tags name."""
    head = f"{TAG}{IMAGE}"
    return [tag.removeprefix(head) for tag in tags if tag.startswith(head)]


def matches(image: str, pattern: str) -> bool:
    """Whether an image is one that a pattern means, part by part between slashes.

    `*` stands for anything within a part, so that no other registry can be meant; a last part of
    `**` for all parts that may follow.
    """
    parts, wanted = image.split("/"), pattern.split("/")
    if wanted[-1] == "**":
        wanted[-1:] = ["*"] * max(1, len(parts) - len(wanted) + 1)
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def describe(environment: str, tags: Tags) -> str:
    """Why it is not offered, for people: what is."""
    if environment.startswith(IMAGE):
        patterns = sorted(image_patterns(tags))
        more = ", …" if len(patterns) > SHOWN_MAX else ""
        known = f"only {', '.join(patterns[:SHOWN_MAX])}{more}" if patterns else "none at all"
        return f"runs no image {environment.removeprefix(IMAGE)}, {known}"
    return f"installs no Python packages by {environment.removeprefix(PACKAGES)}"
