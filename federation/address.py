"""Where the nearest gateway is: an argument, the environment, or this user's own."""

import os
from pathlib import Path
from typing import Final

GATEWAY_VARIABLE: Final = "GRIDFED_GATEWAY"


def default_address() -> str:
    """The address of this user's own gateway on this host: a socket only he can reach."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(base) / "gridfed" if base else Path.home() / ".gridfed"
    return f"ipc://{folder / 'gateway.sock'}"


def expand(address: str) -> str:
    """The address with `~` in a socket's path as the home that it stands for."""
    if not address.startswith("ipc://~"):
        return address
    return f"ipc://{os.path.expanduser(address.removeprefix('ipc://'))}"


def resolve(address: str | None) -> tuple[str, str]:
    """The address to dial, and where it came from, in words."""
    if address:
        return expand(address), "given"
    named = os.environ.get(GATEWAY_VARIABLE)
    if named:
        return expand(named), f"from ${GATEWAY_VARIABLE}"
    return default_address(), "the default"
