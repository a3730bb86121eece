"""Detects other distributions that own one of our generic import names, before it does harm."""

import functools
import importlib.metadata
from typing import Final

from federation.errors import GridError

DISTRIBUTION: Final = "gridfed"
PACKAGES: Final = ("federation", "gateway", "policies")


class NameCollision(GridError):
    """Another distribution has installed a package of one of our names over ours."""


def find_collisions() -> list[str]:
    """Return a sentence for each of our packages that another distribution owns as well."""
    owners: dict[str, set[str]] = {name: set() for name in PACKAGES}
    for package in PACKAGES:
        for _ in importlib.metadata.distributions(name=package):
            owners[package].add(package)
    for found in importlib.metadata.distributions():
        top_level = (found.read_text("top_level.txt") or "").split()
        for package in owners.keys() & top_level:
            # Only now: parsing the metadata of each took most of a client's start-up time.
            name = (found.metadata["Name"] or "").lower()
            if name != DISTRIBUTION:
                owners[package].add(name)
    return [
        f"package {package!r} also belongs to {', '.join(sorted(names))}"
        for package, names in owners.items()
        if names
    ]


@functools.cache
def check_owners() -> None:
    """Refuse to run when another distribution owns one of our packages; looks once a process."""
    collisions = find_collisions()
    if collisions:
        raise NameCollision(
            f"{'; '.join(collisions)}. The distributions overwrite each other's files: "
            f"uninstall the other one and reinstall {DISTRIBUTION}, or install each in an "
            "environment of its own."
        )
