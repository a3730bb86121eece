"""Interprets EC2's errors: their failure class, and advice. Pure.

No text of the service is passed on whole: some of them hold encoded policies, or the request.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from gateway.grids.contract import FailureClass, GridFault

TEXT_MAX: Final = 300
MISMATCH: Final = "IdempotentParameterMismatch"
NOT_FOUND: Final = "InvalidInstanceID.NotFound"
EXISTS: Final = "InvalidLaunchTemplateName.AlreadyExistsException"
TEMPLATE_GONE: Final = "InvalidLaunchTemplateName.NotFoundException"
NO_TEMPLATE: Final = frozenset(
    {
        TEMPLATE_GONE,
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.VersionNotFound",
    }
)
DRY_RUN: Final = "DryRunOperation"  # not an error: it would have worked

# The same may work later.
_AGAIN: Final = frozenset(
    {
        *("RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled"),
        *("TooManyRequestsException", "InternalError", "InternalFailure", "ServiceUnavailable"),
        *("Unavailable", "ServerInternal", "RequestTimeout", MISMATCH),
        # Credentials may be renewed, or the clock set, without notice to us.
        *("ExpiredToken", "ExpiredTokenException", "RequestExpired", "PendingVerification"),
        # Our own objects that are not visible everywhere yet, or are gone: they are made anew.
        *(NOT_FOUND, *NO_TEMPLATE),
    }
)
# Not here and now, though not wrong.
_ELSEWHERE: Final = frozenset(
    {
        *("InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacity"),
        *("InsufficientFreeAddressesInSubnet", "InsufficientReservedInstanceCapacity"),
        *("SpotMaxPriceTooLow", "MaxSpotInstanceCountExceeded", "MaxSpotFleetRequestCountExceeded"),
        *("InstanceLimitExceeded", "VcpuLimitExceeded", "InsufficientVolumeCapacity"),
        *("VolumeLimitExceeded", "MaxIOPSLimitExceeded", "CapacityNotAvailable", "Unsupported"),
        *("UnfulfillableCapacity", "InsufficientAddressCapacity"),
    }
)
_DENIED: Final = frozenset(
    {
        *("AuthFailure", "UnauthorizedOperation", "AccessDenied", "AccessDeniedException"),
        *("InvalidClientTokenId", "SignatureDoesNotMatch", "IncompleteSignature"),
        *("MissingAuthenticationToken", "ExpiredToken", "ExpiredTokenException", "OptInRequired"),
        *("RequestExpired", "UnrecognizedClientException", "InvalidToken", "PendingVerification"),
    }
)
# Errors of the pool's table. Any other code may be a whim of the service's.
_WRONG: Final = re.compile(
    r"Invalid|Missing|Malformed|Unknown|Incorrect|Blocked|Disabled|NotSupported|Unsupported|"
    r"Dependency|ResourceCountExceeded|TagLimitExceeded|NoSuch|Validation|Idempotent"
)
_ADVICE: Final[Mapping[str, str]] = {
    "UnauthorizedOperation": "attach the policy in docs/grids_ec2.md to the gateway's user or role",
    "AccessDenied": "attach the policy in docs/grids_ec2.md to the gateway's user or role",
    "AccessDeniedException": "attach the policy in docs/grids_ec2.md to the gateway's user or role",
    "VcpuLimitExceeded": "request a higher quota of vCPUs in this region",
    "MaxSpotInstanceCountExceeded": "request a higher quota of spot vCPUs in this region",
    "RequestExpired": "synchronise the clock of this host",
    "ExpiredToken": "renew the gateway's credentials",
    "InvalidAMIID.NotFound": "images belong to one region: check `image` and `region`",
    "InsufficientInstanceCapacity": "configure more instance_types, or more zones or subnets",
}
# Policies come back encoded in thousands of letters; signatures, and the signed text, in lines.
_LONG_WORD: Final = re.compile(r"\S{64,}")
_CREDENTIAL: Final = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b")


class Ec2Fault(GridFault):
    """An error of EC2's, by its code."""

    def __init__(self, failure_class: FailureClass, text: str, code: str) -> None:
        super().__init__(failure_class, text)
        self.code = code


def failure_class_of(code: str) -> FailureClass:
    """Return the meaning of an error code for an order.

    An unknown code is retried with growing delays: a pool that stops until the operator acts is
    more expensive than a call that is refused every quarter of an hour.
    """
    if code in _AGAIN or re.fullmatch("5[0-9][0-9]", code):
        return FailureClass.AGAIN
    if code in _ELSEWHERE:
        return FailureClass.ELSEWHERE
    if code.split(".")[0] in _DENIED or _WRONG.match(code):
        return FailureClass.NEVER
    return FailureClass.AGAIN


def fault(code: str, text: str, what: str) -> Ec2Fault:
    """Return the fault for an error of EC2's.

    Args:
        what: the failed action, as in "CreateFleet".
    """
    is_denied = code.split(".")[0] in _DENIED
    # An error of the signature quotes the signed text.
    text = "" if is_denied else f": {trim(text)}"
    advice = f"; {_ADVICE[code]}" if code in _ADVICE else ""
    if is_denied and not advice:
        advice = "; the credentials that boto3 finds (`profile`, environment, role) are invalid"
    return Ec2Fault(failure_class_of(code), f"EC2 refuses {what}: {code:.80}{text}{advice}", code)


def trim(text: str) -> str:
    """Shorten a text of the service for people: one short line, and no secrets."""
    line = " ".join(text.split())
    line = _CREDENTIAL.sub("…", _LONG_WORD.sub("…", line))
    return line if len(line) <= TEXT_MAX else f"{line[:TEXT_MAX]}…"


def unfulfilled(errors: Iterable[Mapping[str, Any]], started: int, wanted: int) -> GridFault:
    """Return the fault of a fleet that has fewer instances than requested.

    An error that may pass elsewhere or later takes precedence over a permanent one: some of the
    types and places are right.
    """
    said: dict[str, set[str]] = {}
    texts: dict[str, str] = {}
    for each in errors:
        code = str(each.get("ErrorCode", "UnfulfillableCapacity"))
        overrides = each.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
        where = [overrides.get(key, "") for key in ("InstanceType", "AvailabilityZone", "SubnetId")]
        said.setdefault(code, set()).add(" ".join(filter(None, where)))
        texts.setdefault(code, trim(str(each.get("ErrorMessage", ""))))
    classes = {failure_class_of(code) for code in said} or {FailureClass.ELSEWHERE}
    order = (FailureClass.ELSEWHERE, FailureClass.AGAIN, FailureClass.NEVER)
    failure_class = next(each for each in order if each in classes)
    if started and failure_class is FailureClass.NEVER:
        failure_class = FailureClass.ELSEWHERE
    parts = []
    for code, places in sorted(said.items()):
        named = sorted(filter(None, places))
        shown = ", ".join(named[:3]) + (", …" if len(named) > 3 else "")
        detail = (
            texts[code]
            if failure_class_of(code) is FailureClass.NEVER and code not in _DENIED
            else ""
        )
        advice = _ADVICE.get(code, "")
        tail = "; ".join(filter(None, (detail, advice)))
        parts.append(f"{code:.80} ({shown}){': ' if tail else ''}{tail}")
    why = ". ".join(parts) or "EC2 gives no reason"
    return GridFault(failure_class, f"{started} of {wanted} instances were started: {why}")
