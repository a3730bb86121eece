"""The table `[pool.ec2]`: types, places, options and ceilings of a pool's instances."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from federation.money import parse_money
from gateway.base.values import (
    SettingError,
    check_known,
    choice,
    count,
    flag,
    guarded,
    length_s,
    share,
)

TYPES_MAX: Final = 40
PLACES_MAX: Final = 20
POOLS_MAX: Final = 300  # in one fleet request
INSTANCES_MAX: Final = 5_000
SLOTS_MAX: Final = 1_024  # of one instance
HEAD_BYTES_MAX: Final = 8 << 10  # of 16 KiB that all user data may have
USER_TAGS_MAX: Final = 40  # of 50 that an instance may have
PYTHON: Final = "/opt/gridfed/bin/python"
STRATEGIES: Final = (
    "price-capacity-optimized",
    "capacity-optimized",
    "capacity-optimized-prioritized",
    "diversified",
    "lowest-price",
)
_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]", re.ASCII)
_ZONE: Final = re.compile(r"[a-z0-9-]{5,40}", re.ASCII)
_TYPE: Final = re.compile(r"[a-z0-9-]{2,30}\.[a-z0-9-]{2,30}", re.ASCII)
_USER: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}", re.ASCII)
_ID: Final = re.compile(r"[a-zA-Z0-9/_.:@+=,()\[\] -]{1,128}", re.ASCII)
# An instance reads its tags in its metadata, which allows only these characters.
_TAG: Final = re.compile(r"[A-Za-z0-9+=.,_:@-]{1,128}", re.ASCII)


class Ec2Market(StrEnum):
    """The payment of instances."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of instances: a zone, or a subnet, whose zone EC2 knows; or anywhere."""

    zone: str = ""
    subnet: str = ""


@dataclass(frozen=True, slots=True)
class Ec2Config:
    """A pool on EC2, as its owner configured it; see docs/grids_ec2.md.

    Attributes:
        types: instance types, and the slots that each has; 0: as many as vCPUs.
        spot_share: of the instances of each order, in a mixed market.
        max_spend_nanos: an hour, of all instances; None: no ceiling.
        max_price_nanos: of a slot-hour; None: no ceiling.
        over_ceiling_s: the grace period of instances over a ceiling.
        prices: "live", or a file; see gateway.grids.ec2.prices.
        user: of the instance, that workers run as, without access to its metadata; else root.
        environment_file: on the instance: the variables of pilots; then user data has no secret in
            it.
    """

    region: str
    types: Mapping[str, int]
    max_instances: int
    endpoint_url: str = ""
    profile: str = ""
    launch_template: str = ""
    launch_template_version: str = "$Default"
    image: str = ""
    places: tuple[Place, ...] = (Place(),)
    security_groups: tuple[str, ...] = ()
    key_name: str = ""
    instance_profile: str = ""
    market: Ec2Market = Ec2Market.ON_DEMAND
    spot_share: float = 1.0
    strategy: str = STRATEGIES[0]
    max_spend_nanos: int | None = None
    max_price_nanos: int | None = None
    over_ceiling_s: float = 600.0
    currency: str = "USD"
    prices: str = "live"
    python: str = PYTHON
    user: str = ""
    user_data_head: str = ""
    environment_file: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    interruption_poll_s: float = 5.0
    leave_on_rebalance: bool = True

    @property
    def has_price_ceiling(self) -> bool:
        """Whether prices must be known before any instance is started."""
        return self.max_spend_nanos is not None or self.max_price_nanos is not None


_KEYS: Final = (
    *("region", "endpoint_url", "profile", "launch_template", "launch_template_version", "image"),
    *("subnets", "zones", "security_groups", "key_name", "instance_profile", "instance_types"),
    *("market", "spot_share", "strategy", "max_instances", "max_spend_per_hour", "max_price"),
    *("over_ceiling", "prices"),
    *("python", "user", "user_data_head", "environment_file", "tags"),
    *("interruption_poll", "leave_on_rebalance"),
)


def read(table: Mapping[str, Any]) -> Ec2Config:
    """Read `[pool.ec2]`. Raises SettingError, which names the key and its valid values."""
    check_known(table, _KEYS)
    template, image = _ec2_name(table, "launch_template"), _ec2_name(table, "image")
    if not template and not image:
        raise SettingError("requires image, or a launch_template that has one")
    market = choice("market", table.get("market", Ec2Market.ON_DEMAND), tuple(Ec2Market))
    types = _types(table.get("instance_types"))
    places = _places(table)
    if len(types) * len(places) > POOLS_MAX:
        raise SettingError(
            f"instance_types times zones or subnets are {len(types) * len(places)}: the "
            f"limit is {POOLS_MAX}"
        )
    spend_nanos, price_nanos, currency = _ceilings(table)
    return Ec2Config(
        region=_region(table),
        types=types,
        max_instances=count("max_instances", _needed(table, "max_instances"), 1, INSTANCES_MAX),
        endpoint_url=_url(table),
        profile=_ec2_name(table, "profile"),
        launch_template=template,
        launch_template_version=_ec2_name(table, "launch_template_version", "$Default"),
        image=image,
        places=places,
        security_groups=_ec2_names(table, "security_groups", _ID, PLACES_MAX),
        key_name=_ec2_name(table, "key_name"),
        instance_profile=_ec2_name(table, "instance_profile"),
        market=Ec2Market(market),
        spot_share=_spot_share(table, Ec2Market(market)),
        strategy=choice("strategy", table.get("strategy", STRATEGIES[0]), STRATEGIES),
        max_spend_nanos=spend_nanos,
        max_price_nanos=price_nanos,
        over_ceiling_s=length_s("over_ceiling", table.get("over_ceiling", "10m"), "0s", "1d"),
        currency=currency,
        prices=_prices(table),
        python=_absolute(table, "python", PYTHON),
        user=_ec2_name(table, "user", form=_USER),
        user_data_head=_head(table),
        environment_file=_absolute(table, "environment_file", ""),
        tags=_tags(table.get("tags", {})),
        interruption_poll_s=length_s(
            "interruption_poll", table.get("interruption_poll", "5s"), "0.1s", "60s"
        ),
        leave_on_rebalance=flag("leave_on_rebalance", table.get("leave_on_rebalance", True)),
    )


def _needed(table: Mapping[str, Any], key: str) -> Any:
    if key not in table:
        raise SettingError(f"requires {key}")
    return table[key]


def _ec2_name(
    table: Mapping[str, Any], key: str, default: str = "", form: re.Pattern[str] = _ID
) -> str:
    value = table.get(key, default)
    if value != default and not (isinstance(value, str) and form.fullmatch(value)):
        raise SettingError(f"{key} is {value!r:.60}: must be a name as shown by EC2")
    return str(value)


def _ec2_names(
    table: Mapping[str, Any], key: str, form: re.Pattern[str], most: int
) -> tuple[str, ...]:
    values = table.get(key, [])
    if not isinstance(values, list) or len(values) > most:
        raise SettingError(f"{key} must be a list of at most {most} strings")
    for value in values:
        if not (isinstance(value, str) and form.fullmatch(value)):
            raise SettingError(f"{key} has {value!r:.60}: must be a name as shown by EC2")
    if len(set(values)) != len(values):
        raise SettingError(f"{key} has a repeated item")
    return tuple(values)


def _region(table: Mapping[str, Any]) -> str:
    value = _needed(table, "region")
    if not (isinstance(value, str) and _REGION.fullmatch(value)):
        raise SettingError(f'region is {value!r:.60}: must be a region, for example "eu-central-1"')
    return value


def _url(table: Mapping[str, Any]) -> str:
    value = table.get("endpoint_url", "")
    if value and not (isinstance(value, str) and re.match(r"https?://[^\s@]+$", value)):
        raise SettingError(
            "endpoint_url must be http:// or https:// and a host, without a password"
        )
    return str(value)


def _types(value: Any) -> dict[str, int]:
    if isinstance(value, list):
        value = dict.fromkeys(map(str, value), 0)
    if not isinstance(value, dict) or not 1 <= len(value) <= TYPES_MAX:
        raise SettingError(
            f"requires instance_types, 1 to {TYPES_MAX}: a list, or a table with the slots of each"
        )
    for name, slots in value.items():
        if not _TYPE.fullmatch(name):
            raise SettingError(
                f'instance_types has {name!r:.60}: must be a type, for example "c7i.2xlarge"'
            )
        count(f"instance_types.{name}", slots, 0, SLOTS_MAX)
    return dict(value)


def _places(table: Mapping[str, Any]) -> tuple[Place, ...]:
    subnets = _ec2_names(table, "subnets", _ID, PLACES_MAX)
    zones = _ec2_names(table, "zones", _ZONE, PLACES_MAX)
    if subnets and zones:
        raise SettingError("subnets and zones exclude each other: each subnet is in a zone")
    return (
        tuple(Place(subnet=each) for each in subnets)
        or tuple(Place(zone=each) for each in zones)
        or (Place(),)
    )


def _spot_share(table: Mapping[str, Any], market: Ec2Market) -> float:
    if market is Ec2Market.MIXED:
        return float(share("spot_share", _needed(table, "spot_share"), 0.0, 1.0))
    if "spot_share" in table:
        raise SettingError('spot_share requires market = "mixed"')
    return 1.0 if market is Ec2Market.SPOT else 0.0


def _ceilings(table: Mapping[str, Any]) -> tuple[int | None, int | None, str]:
    """Return the ceilings of spend and of a slot-hour's price, and the currency of both."""
    spend = _amount(table, "max_spend_per_hour", "40 USD")
    price = _amount(table, "max_price", "0.06 USD")
    if spend and price and spend[1] != price[1]:
        raise SettingError(f"max_price is in {price[1]}, but max_spend_per_hour in {spend[1]}")
    currency = (spend or price or (0, "USD"))[1]
    return spend[0] if spend else None, price[0] if price else None, currency


def _amount(table: Mapping[str, Any], key: str, example: str) -> tuple[int, str] | None:
    value = table.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise SettingError(f'{key} must be an amount and a currency, for example "{example}"')
    return guarded(key, lambda: parse_money(value))


def _prices(table: Mapping[str, Any]) -> str:
    value = table.get("prices", "live")
    if not isinstance(value, str) or not value:
        raise SettingError('prices must be "live", or the path of a file')
    if value != "live" and not Path(value).is_file():
        raise SettingError(f"prices: file {value!r:.200} does not exist")
    return value


def _absolute(table: Mapping[str, Any], key: str, default: str) -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or (value and not value.startswith("/")) or "\n" in value:
        raise SettingError(f"{key} is {value!r:.60}: must be an absolute path on the instance")
    return value or default


def _head(table: Mapping[str, Any]) -> str:
    value = table.get("user_data_head", "")
    if not isinstance(value, str) or len(value.encode()) > HEAD_BYTES_MAX:
        raise SettingError(
            f"user_data_head must be shell commands of at most {HEAD_BYTES_MAX} bytes"
        )
    return value


def _tags(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > USER_TAGS_MAX:
        raise SettingError(f"tags must be a table of at most {USER_TAGS_MAX} strings")
    for key, text in value.items():
        if not _TAG.fullmatch(key) or key.lower().startswith(("aws:", "gridfed:")):
            raise SettingError(
                f"tags has {key!r:.60}: only letters, digits and +-=.,_:@ are allowed, as "
                "instances read their tags; the prefixes aws: and gridfed: are reserved"
            )
        if not isinstance(text, str) or len(text) > 256:
            raise SettingError(f"tags.{key} must be a string of at most 256 characters")
    return dict(value)
