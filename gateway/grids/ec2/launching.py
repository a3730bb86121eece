"""Turns an order into instances: user data, launch template, fleet request, names. Pure.

An order is one fleet of type `instant`: EC2 chooses types and places, and answers at once with the
started instances. They have no names of their own, so they are named right afterwards: the answer
is sorted, an instance's place in it is its number, and a tag tells it (`groups`). An instance waits
for that tag, which it reads from its own metadata, before it starts a worker
(gateway.grids.ec2.host). If the gateway dies in between, the next look names them.

User data and all other common settings are in a launch template of ours, whose name has a hash of
its content: two orders share it, another configuration has another.
"""

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from federation.money import format_amount
from gateway.base.interpreter import run_module
from gateway.grids.contract import PILOT_MARK, FailureClass, GridFault, Launch, Order, Shape
from gateway.grids.ec2.prices import InstanceOffer
from gateway.grids.ec2.settings import Ec2Config, Ec2Market

MARK_TAG: Final = "gridfed:mark"
LIMIT_TAG: Final = "gridfed:limit"  # in how many seconds it ends by itself
ORDER_TAG: Final = "gridfed:order"
PILOTS_TAG: Final = "gridfed:pilots"
GROUP: Final = 12  # instances that one tag names: 256 characters hold this many ids
USER_DATA_BYTES_MAX: Final = 16 << 10
NAME: Final = "@name@"  # in a pilot's command: the host fills in its own values
SLOTS: Final = "@slots@"
METADATA: Final = "@metadata@"
SERVICE: Final = "169.254.169.254"  # the metadata service's address, on each instance
HEAD_S: Final = 1_800  # the time limit of the owner's commands, before the worker starts
WARN_S: Final = 60  # a worker is told this long before its instance's time is over, …
WARN_PART: Final = 0.1  # … or this part of that time before
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def token(mark: str, order: str) -> str:
    """Return the ClientToken of an order, the same at each repetition; at most 64 characters."""
    return hashlib.sha256(f"{mark}/{order}".encode()).hexdigest()


# --- user data -----------------------------------------------------------------------------------


def user_data(
    config: Ec2Config,
    launch: Launch,
    shape: Shape,
    slots: Mapping[str, int],
    limit_s: float | None = None,
) -> str:
    """Return the script of an instance's start: it runs a worker, and then shuts down.

    It ends unaided. A worker that finds no gateway gives up; and timers that are started before
    anything else shut the instance down when its time is over, or when the owner's commands hang,
    whatever the worker and the gateway do.

    Args:
        slots: of each instance type.
        limit_s: how long it may run; None: as long as it is of use.
    """
    command = launch.command(NAME, shape, config.python)
    command[command.index("--slots") + 1] = SLOTS
    if config.market is not Ec2Market.ON_DEMAND:
        command += ["--interruptions", METADATA]
        command += ["--interruptions-s", f"{config.interruption_poll_s:g}"]
        command += ["--heed-rebalance"] if config.leave_on_rebalance else []
    table = ",".join(f"{kind}={count}" for kind, count in sorted(slots.items()))
    host = run_module("gateway.grids.ec2.host", python=config.python)
    host += ["--slots", table]
    if config.user:
        host += ["--user", config.user, "--relay-s", f"{config.interruption_poll_s:g}"]
    lines = [
        "#!/bin/bash",
        "# gridfed: runs a worker. This instance ends when the worker does, whatever happens.",
        "umask 077",
        "off() { shutdown -h now || poweroff -f; }",
        *([f"(sleep {limit_of(limit_s)}; off) &"] if limit_s is not None else []),
        # Before the trap: a timer that is stopped as soon as it began would still have it.
        *([f"(sleep {HEAD_S}; off) & gridfed_head=$!"] if config.user_data_head else []),
        "trap off EXIT",
        *_head(config.user_data_head),
        *_environment(config, launch.environment),
        *([_shut_metadata(config.user)] if config.user else []),
        _in_time(limit_s) + shlex.join([*host, "--", *command]),
    ]
    text = "\n".join(lines) + "\n"
    if len(text.encode()) > USER_DATA_BYTES_MAX:
        raise GridFault(
            FailureClass.NEVER,
            f"the user data has {len(text.encode()):,} bytes, the limit is "
            f"{USER_DATA_BYTES_MAX:,}: move user_data_head, or certificates, into the image",
        )
    return text


def limit_of(limit_s: float) -> int:
    """Return a limit in whole seconds, for instances and their tags."""
    return max(1, int(limit_s))


def _head(commands: str) -> list[str]:
    """Return the owner's own commands, followed by the stop of their timer."""
    return [commands.rstrip("\n"), "set +x", 'kill "$gridfed_head"'] if commands else []


def _in_time(limit_s: float | None) -> str:
    """Return a prefix that stops the worker a while before the instance's time is over."""
    if limit_s is None:
        return ""
    limit = limit_of(limit_s)
    stop = limit - int(min(WARN_S, WARN_PART * limit))
    return f"timeout --foreground $(({stop} - SECONDS)) "


def _shut_metadata(user: str) -> str:
    """Block a user, and so its tasks, from the metadata: user data, the role's keys."""
    rule = ["-d", SERVICE, "-m", "owner", "--uid-owner", user, "-j", "REJECT"]
    return f"{shlex.join(['iptables', '-w', '-I', 'OUTPUT', *rule])} || exit 1"


def _environment(config: Ec2Config, environment: Mapping[str, str]) -> Iterable[str]:
    if config.environment_file:
        return ["set -a", f". {shlex.quote(config.environment_file)} || exit 1", "set +a"]
    wrong = [name for name in environment if not _VARIABLE.fullmatch(name)]
    if wrong:
        raise GridFault(FailureClass.NEVER, f"{wrong[0]!r:.60} is not a valid variable name")
    return [f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())]


# --- the launch template -------------------------------------------------------------------------


def template_data(
    config: Ec2Config, launch: Launch, script: str, base: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the contents of our launch template, which override the owner's (`base`).

    An instance that its own script shuts down must be terminated, not stopped with its volumes
    billed. Metadata accepts only tokens, from one hop away: not from a container behind a bridge.
    """
    options = base.get("MetadataOptions", {})
    data = {
        **base,
        "UserData": base64.b64encode(script.encode()).decode(),
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpPutResponseHopLimit": options.get("HttpPutResponseHopLimit", 1),
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "InstanceMetadataTags": "enabled",
        },
        "TagSpecifications": _with_tags(base.get("TagSpecifications", []), config, launch),
    }
    # The fleet decides the market.
    data.pop("InstanceMarketOptions", None)
    if config.image:
        data["ImageId"] = config.image
    if config.key_name:
        data["KeyName"] = config.key_name
    if config.instance_profile:
        is_arn = config.instance_profile.startswith("arn:")
        data["IamInstanceProfile"] = {"Arn" if is_arn else "Name": config.instance_profile}
    if config.security_groups:
        data["SecurityGroupIds"] = list(config.security_groups)
    return data


def _with_tags(
    base: Iterable[Mapping[str, Any]], config: Ec2Config, launch: Launch
) -> list[dict[str, Any]]:
    """Return tags of instances and their volumes: the template's, the owner's, and our mark."""
    ours = {"Name": f"gridfed {launch.site} {launch.pool}", **config.tags, MARK_TAG: launch.mark}
    theirs = {each["ResourceType"]: _as_dict(each.get("Tags", [])) for each in base}
    kinds = sorted({"instance", "volume", *theirs})
    return [
        {
            "ResourceType": kind,
            "Tags": as_tags(
                {**theirs.get(kind, {}), **(ours if kind in ("instance", "volume") else {})}
            ),
        }
        for kind in kinds
    ]


def template_name(mark: str, data: Mapping[str, Any]) -> str:
    """Return the name of the template with that content."""
    content = json.dumps(data, sort_keys=True, default=str)
    return f"gridfed-{mark}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"


# --- the fleet -----------------------------------------------------------------------------------


def fleet_request(
    config: Ec2Config,
    mark: str,
    order: Order,
    template: str,
    offers: Sequence[InstanceOffer],
    count: int,
) -> dict[str, Any]:
    """Return CreateFleet's parameters for `count` instances of an order.

    Args:
        offers: the cheapest first.
    """
    spot = round(count * config.spot_share)
    told = {ORDER_TAG: order.name}
    if order.limit_s is not None:
        told[LIMIT_TAG] = str(limit_of(order.limit_s))
    overrides = []
    for rank, offer in enumerate(offers):
        override: dict[str, Any] = {"InstanceType": offer.kind, "Priority": float(rank)}
        if offer.place.subnet:
            override["SubnetId"] = offer.place.subnet
        elif offer.place.zone:
            override["AvailabilityZone"] = offer.place.zone
        if spot and config.max_price_nanos is not None:
            # EC2 itself keeps to it, even without a gateway that looks.
            override["MaxPrice"] = format_amount(config.max_price_nanos * offer.slots)
        overrides.append(override)
    request: dict[str, Any] = {
        "Type": "instant",
        "ClientToken": token(mark, order.name),
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": template, "Version": "1"},
                "Overrides": overrides,
            }
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": count,
            "SpotTargetCapacity": spot,
            "OnDemandTargetCapacity": count - spot,
            "DefaultTargetCapacityType": "spot" if spot else "on-demand",
        },
        "TagSpecifications": [
            {"ResourceType": "fleet", "Tags": as_tags({MARK_TAG: mark})},
            {"ResourceType": "instance", "Tags": as_tags(told)},
        ],
    }
    if spot:
        request["SpotOptions"] = {
            "AllocationStrategy": config.strategy,
            "InstanceInterruptionBehavior": "terminate",
        }
    if spot < count:
        request["OnDemandOptions"] = {"AllocationStrategy": "prioritized"}
    return request


def instances_of(answer: Mapping[str, Any]) -> list[str]:
    """Return a fleet's instances, sorted by id, which is the order of their numbers."""
    return sorted(one for each in answer.get("Instances", []) for one in each["InstanceIds"])


# --- names ---------------------------------------------------------------------------------------


def pilot_name(order: str, number: int) -> str:
    """Return a pilot's name, as in Order.names."""
    return f"{order}{PILOT_MARK}{number}"


def groups(numbers: Mapping[str, int]) -> list[tuple[list[str], str]]:
    """Return groups of instances and their number tags: "24 i-0a1 i-0b2 …" from 24 on.

    Args:
        numbers: by instance.
    """
    found: list[tuple[list[str], str]] = []
    last = None
    for instance, number in sorted(numbers.items(), key=lambda each: each[1]):
        follows = last is not None and number == last + 1 and len(found[-1][0]) < GROUP
        if not follows:
            found.append(([], str(number)))
        ids, text = found[-1]
        ids.append(instance)
        found[-1] = ids, f"{text} {instance}"
        last = number
    return found


def number_in(tag: str, instance: str) -> int | None:
    """Return the number that a tag of `groups` gives an instance; None: it names others."""
    first, *ids = tag.split()
    if instance not in ids or not first.isdecimal():
        return None
    return int(first) + ids.index(instance)


def name_rest(named: Mapping[str, int], unnamed: Iterable[str]) -> dict[str, int]:
    """Return free numbers for instances of an order without one."""
    taken = set(named.values())
    free = (number for number in range(len(taken) + 100_000) if number not in taken)
    return dict(zip(sorted(unnamed), free, strict=False))


def as_tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags in EC2's format."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _as_dict(tags: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {each["Key"]: each.get("Value", "") for each in tags}


def tags_of(thing: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of an instance in EC2's format."""
    return _as_dict(thing.get("Tags", []))
