"""How an order becomes instances: user data, launch template, fleet request, names. Pure.

An order is one fleet of type `instant`: EC2 chooses types and places, and answers at once with what
it has started. Its instances have no names of their own, so they get theirs right afterwards: the
answer is sorted, each has its place in it, and a tag tells it (`groups`). An instance waits for
that tag, which it reads from its own metadata, before it starts a worker (gateway.grids.ec2.host).
What died between the two is named by whoever looks next.

User data and all that is the same for each instance is in a launch template of ours, whose name
has a hash of its content: two orders share it, another configuration has another.
"""

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from federation.money import format_amount
from gateway.grids.contract import PILOT_MARK, Blame, GridFault, Launch, Order, Shape
from gateway.grids.ec2.prices import Offer
from gateway.grids.ec2.settings import Ec2Config, Market
from gateway.interpreter import run_module

MARK_TAG: Final = "gridfed:mark"
LIMIT_TAG: Final = "gridfed:limit"  # in how many seconds it ends by itself
ORDER_TAG: Final = "gridfed:order"
PILOTS_TAG: Final = "gridfed:pilots"
GROUP: Final = 12  # instances that one tag names: 256 characters hold so many ids
USER_DATA_BYTES_MAX: Final = 16 << 10
NAME: Final = "@name@"  # in a pilot's command: the host puts in what it is
SLOTS: Final = "@slots@"
METADATA: Final = "@metadata@"
SERVICE: Final = "169.254.169.254"  # metadata's, on each instance
HEAD_S: Final = 1_800  # that the owner's commands may take, before the worker starts
WARN_S: Final = 60  # a worker is told so long before its instance's time is over, …
WARN_PART: Final = 0.1  # … or so much of that before
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def token(mark: str, order: str) -> str:
    """The ClientToken of an order: the same each time that it is made; at most 64 characters."""
    return hashlib.sha256(f"{mark}/{order}".encode()).hexdigest()


# --- user data -----------------------------------------------------------------------------------


def user_data(
    config: Ec2Config,
    launch: Launch,
    shape: Shape,
    slots: Mapping[str, int],
    limit_s: float | None = None,
) -> str:
    """The script that an instance runs at its start: a worker, and then its own end.

    It needs nobody to end. A worker that finds no gateway gives up; and clocks that are started
    before anything else switch the instance off when its time is over, or when the owner's commands
    hang, whatever the worker and the gateway do.

    Args:
        slots: of each instance type.
        limit_s: how long it may run; None: as long as it is of use.
    """
    command = launch.command(NAME, shape, config.python)
    command[command.index("--slots") + 1] = SLOTS
    if config.market is not Market.ON_DEMAND:
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
        # Before the trap: a clock that is stopped as soon as it began would still have it.
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
            Blame.NEVER,
            f"user data would have {len(text.encode()):,} bytes, {USER_DATA_BYTES_MAX:,} are the "
            "most: put user_data_head, or certificates, into the image",
        )
    return text


def limit_of(limit_s: float) -> int:
    """A limit in whole seconds, as instances and their tags have it."""
    return max(1, int(limit_s))


def _head(commands: str) -> list[str]:
    """The owner's own commands: their clock is stopped when they have ended."""
    return [commands.rstrip("\n"), "set +x", 'kill "$gridfed_head"'] if commands else []


def _in_time(limit_s: float | None) -> str:
    """In front of the worker: it is told to stop a while before the instance's time is over."""
    if limit_s is None:
        return ""
    limit = limit_of(limit_s)
    stop = limit - int(min(WARN_S, WARN_PART * limit))
    return f"timeout --foreground $(({stop} - SECONDS)) "


def _shut_metadata(user: str) -> str:
    """Keep a user, and so its tasks, from what metadata tells: user data, the role's keys."""
    rule = ["-d", SERVICE, "-m", "owner", "--uid-owner", user, "-j", "REJECT"]
    return f"{shlex.join(['iptables', '-w', '-I', 'OUTPUT', *rule])} || exit 1"


def _environment(config: Ec2Config, environment: Mapping[str, str]) -> Iterable[str]:
    if config.environment_file:
        return ["set -a", f". {shlex.quote(config.environment_file)} || exit 1", "set +a"]
    wrong = [name for name in environment if not _VARIABLE.fullmatch(name)]
    if wrong:
        raise GridFault(Blame.NEVER, f"{wrong[0]!r:.60} can't be the name of a variable")
    return [f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())]


# --- the launch template -------------------------------------------------------------------------


def template_data(
    config: Ec2Config, launch: Launch, script: str, base: Mapping[str, Any]
) -> dict[str, Any]:
    """What a launch template of ours says, over what the owner's says (`base`).

    Whoever is told to shut down by its own script must be gone then, and not stopped and billed for
    its volumes. Metadata takes tokens alone, one hop away: not from a container behind a bridge.
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
    # Which market it is says the fleet.
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
    """Tags of instances and their volumes: the template's, the owner's, and our mark."""
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
    """The name of the template with that content."""
    content = json.dumps(data, sort_keys=True, default=str)
    return f"gridfed-{mark}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"


# --- the fleet -----------------------------------------------------------------------------------


def fleet_request(
    config: Ec2Config, mark: str, order: Order, template: str, offers: Sequence[Offer], count: int
) -> dict[str, Any]:
    """CreateFleet's parameters for `count` instances of an order.

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
            # EC2 itself keeps to it, also when nobody here is left to look.
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
    """The instances that a fleet has started, in order of their ids: so they are numbered."""
    return sorted(one for each in answer.get("Instances", []) for one in each["InstanceIds"])


# --- names ---------------------------------------------------------------------------------------


def pilot_name(order: str, number: int) -> str:
    """As Order.names has it."""
    return f"{order}{PILOT_MARK}{number}"


def groups(numbers: Mapping[str, int]) -> list[tuple[list[str], str]]:
    """Instances, and the tag that tells them their numbers: "24 i-0a1 i-0b2 …" from 24 on.

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
    """The number that a tag of `groups` gives an instance; None: it is not for it."""
    first, *ids = tag.split()
    if instance not in ids or not first.isdecimal():
        return None
    return int(first) + ids.index(instance)


def name_rest(named: Mapping[str, int], unnamed: Iterable[str]) -> dict[str, int]:
    """Numbers for instances of an order that have none, beside those that have."""
    taken = set(named.values())
    free = (number for number in range(len(taken) + 100_000) if number not in taken)
    return dict(zip(sorted(unnamed), free, strict=False))


def as_tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as EC2 takes them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _as_dict(tags: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {each["Key"]: each.get("Value", "") for each in tags}


def tags_of(thing: Mapping[str, Any]) -> dict[str, str]:
    """The tags of an instance, as EC2 shows it."""
    return _as_dict(thing.get("Tags", []))
