"""The table [pool.scale]: how a pool grows and shrinks if a grid starts its workers.

    [pool.scale]
    max = 400                   # slots at most
    min = 0                     # slots that are always there
    pilot_slots = 4             # of one pilot: a job of a batch system, an instance of a cloud
    waste = 0.1                 # what starting and idling may cost, as a part of the work
    start = "30s"               # how long a start takes, until it was measured
    idle = "60s"                # a pilot without work is stopped after that; else after a start
    step = "1h"                 # time is billed in such steps; else by the second
    walltime = "8h"             # a pilot is started for so long; else as long as the grid lets it
    starts_per_minute = 100     # of pilots
    stops_per_minute = 100
    hourly_cost = "40 USD"      # what all of it may cost in an hour
    markup = 1.2                # the pool's price follows the grid's own, times this
    dial = "tls+tcp://gw.example:7461"   # the gateway's address for pilots; else the first usable
    dial_for = "5m"             # a pilot that can't reach the gateway ends after that
    look = "5s"                 # how often the grid is asked for the state of this pool's pilots
    python = "3.11"             # the minor version that pilots run; else the gateway's
    token_file = "..."          # a token of scope `work` for pilots, where the site demands one
    ca_file = "/etc/gridfed/gw.pem"      # on their hosts: the CA that pilots trust, for tls+tcp
    dry_run = false             # start and stop nothing, and say so

A pool of such a kind needs this table with `max`. policies.placement.autoscaling explains each key.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from federation.address import AddressError, check_address
from federation.money import parse_money
from gateway.base.values import (
    SettingError,
    check_known,
    count,
    flag,
    guarded,
    length_s,
    share,
    text_of,
)
from policies.placement.autoscaling import ScalingRules

SLOTS_MAX: Final = 1_000_000
PILOT_SLOTS_MAX: Final = 4_096
WASTE: Final = (0.001, 10.0)
MARKUP: Final = (0.01, 100.0)
KEYS: Final = frozenset(
    {"max", "min", "pilot_slots", "waste", "start", "idle", "step", "walltime"}
    | {"starts_per_minute", "stops_per_minute", "hourly_cost", "markup", "dial", "dial_for", "look"}
    | {"python", "token_file", "ca_file", "dry_run"}
)
# Keys of the pilots and of the way to them; the gateway reads them at its start alone.
OF_PILOTS: Final = frozenset({"start", "dial", "dial_for", "python", "token_file", "ca_file"})
OF_RULES: Final = KEYS - OF_PILOTS  # settings that an owner changes while the site runs
_LENGTHS: Final[Mapping[str, tuple[str, str]]] = {
    "start": ("1s", "1h"),
    "idle": ("0s", "1d"),
    "step": ("0s", "1d"),
    "walltime": ("1m", "30d"),
    "dial_for": ("10s", "1d"),
    "look": ("1s", "10m"),
}
_PYTHON: Final = re.compile(r"3\.[0-9]{1,2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ScaleConfig:
    """How a pool grows and shrinks.

    Attributes:
        rules: for the autoscaler.
        start_s: how long a start takes, until it was measured.
        walltime_s: that a pilot is started for; None: as long as the grid lets it.
        dial, dial_for_s: the gateway's address for pilots, and how long they try it; empty: an
            address that they can reach.
        look_s: how often the grid is asked.
        python: the minor version that pilots run; empty: the gateway's.
        currency: of the cost limit of an hour; empty: no limit.
        markup: the pool's price is the grid's charge, times this; None: it is as written.
    """

    rules: ScalingRules
    start_s: float = 30.0
    walltime_s: float | None = None
    dial: str = ""
    dial_for_s: float = 300.0
    look_s: float = 5.0
    python: str = ""
    token_file: str = ""
    ca_file: str = ""
    currency: str = ""
    dry_run: bool = False
    markup: float | None = None


def read_scale(table: Mapping[str, Any]) -> ScaleConfig:
    """Read [pool.scale]. Raises SettingError, with the key in its text."""
    check_known(table, KEYS)
    if "max" not in table:
        raise SettingError("max is missing: set the maximum number of slots")
    lengths = {key: length_s(key, table[key], *_LENGTHS[key]) for key in _LENGTHS if key in table}
    most = count("max", table["max"], 1, SLOTS_MAX)
    pilot_slots = count("pilot_slots", table.get("pilot_slots", 1), 1, PILOT_SLOTS_MAX)
    if pilot_slots > most:
        raise SettingError(
            f"max is {most}: it must be at least the {pilot_slots} slots of a pilot (pilot_slots)"
        )
    hourly = _hourly(table)
    rules = ScalingRules(
        slots_max=most,
        slots_min=count("min", table.get("min", 0), 0, most),
        pilot_slots=pilot_slots,
        waste=float(share("waste", table.get("waste", 0.1), *WASTE)),
        idle_s=lengths.get("idle"),
        step_s=lengths.get("step", 0.0),
        starts_max=count("starts_per_minute", table.get("starts_per_minute", 100), 1, SLOTS_MAX),
        stops_max=count("stops_per_minute", table.get("stops_per_minute", 100), 1, SLOTS_MAX),
        hourly_nanos=hourly[0] if hourly else None,
    )
    return ScaleConfig(
        rules,
        start_s=lengths.get("start", 30.0),
        walltime_s=lengths.get("walltime"),
        dial=_address(table),
        dial_for_s=lengths.get("dial_for", 300.0),
        look_s=lengths.get("look", 5.0),
        python=_python(table),
        token_file=text_of("token_file", table.get("token_file", "")),
        ca_file=text_of("ca_file", table.get("ca_file", "")),
        currency=hourly[1] if hourly else "",
        dry_run=flag("dry_run", table.get("dry_run", False)),
        markup=float(share("markup", table["markup"], *MARKUP)) if "markup" in table else None,
    )


def _hourly(table: Mapping[str, Any]) -> tuple[int, str] | None:
    if "hourly_cost" not in table:
        return None
    text = text_of("hourly_cost", table.get("hourly_cost", ""))
    nanos, currency = guarded("hourly_cost", lambda: parse_money(text))
    if nanos <= 0:
        raise SettingError(f"hourly_cost is {text}: it must be above zero")
    return nanos, currency


def _address(table: Mapping[str, Any]) -> str:
    address = text_of("dial", table.get("dial", ""))
    if address:
        try:
            check_address(address)
        except AddressError as error:
            raise SettingError(f"dial: {error}") from None
    return address


def _python(table: Mapping[str, Any]) -> str:
    version = text_of("python", table.get("python", ""))
    if version and not _PYTHON.fullmatch(version):
        raise SettingError(f'python is {version[:20]!r}: it must be a minor version, as in "3.11"')
    return version
