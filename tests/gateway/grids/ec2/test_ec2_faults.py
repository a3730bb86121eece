"""The party at fault, the text about a fault, and the meaning of an instance's state."""

from datetime import UTC, datetime

import pytest

from gateway.grids.contract import FailureClass, PilotState
from gateway.grids.ec2.faults import failure_class_of, fault, trim, unfulfilled
from gateway.grids.ec2.prices import PriceBook
from gateway.grids.ec2.seen import read_instance, spend_nanos

AT = datetime(2026, 11, 22, 21, tzinfo=UTC)


def error(code, kind="c7i.large", text="because"):
    overrides = {"InstanceType": kind, "AvailabilityZone": "z"}
    return {
        "ErrorCode": code,
        "ErrorMessage": text,
        "LaunchTemplateAndOverrides": {"Overrides": overrides},
    }


@pytest.mark.parametrize(
    ("codes", "started", "blame"),
    [
        (["InsufficientInstanceCapacity"], 0, FailureClass.ELSEWHERE),
        (["InsufficientInstanceCapacity"], 3, FailureClass.ELSEWHERE),
        (["RequestLimitExceeded"], 0, FailureClass.AGAIN),
        (["UnauthorizedOperation"], 0, FailureClass.NEVER),
        (["InvalidParameterValue"], 0, FailureClass.NEVER),
        (["ExpiredToken"], 0, FailureClass.AGAIN),
        (["InvalidLaunchTemplateName.NotFoundException"], 0, FailureClass.AGAIN),
        (["NobodyKnowsThis"], 0, FailureClass.AGAIN),
        (["InvalidParameterValue"], 1, FailureClass.ELSEWHERE),  # some of it is right
        (["InvalidParameterValue", "InsufficientInstanceCapacity"], 0, FailureClass.ELSEWHERE),
        (["RequestLimitExceeded", "InvalidParameterValue"], 0, FailureClass.AGAIN),
        ([], 0, FailureClass.ELSEWHERE),
    ],
)
def test_a_fleet_with_too_few(codes, started, blame):
    found = unfulfilled([error(each) for each in codes], started, 4)
    assert found.failure_class is blame
    assert str(found).startswith(f"{started} of 4 instances were started: ")
    assert all(each in str(found) for each in codes)


def test_many_places_are_named_in_part():
    text = str(unfulfilled([error("Unsupported", f"t{n}.x") for n in range(9)], 0, 1))
    assert "t0.x z, t1.x z, t2.x z, …" in text
    assert "t3.x" not in text


@pytest.mark.parametrize(
    ("code", "blame"),
    [
        ("500", FailureClass.AGAIN),
        ("503", FailureClass.AGAIN),
        ("404", FailureClass.AGAIN),
        ("", FailureClass.AGAIN),
    ],
)
def test_answers_without_a_code_of_ec2s(code, blame):
    assert failure_class_of(code) is blame


def test_texts_of_the_service_are_passed_on_without_what_is_secret():
    encoded = "x7-" * 300
    assert encoded[:70] not in trim(f"not authorized: {encoded}")
    assert trim("key AKIAIOSFODNN7EXAMPLE is\n  not good") == "key … is not good"
    assert len(trim("word " * 400)) <= 301
    text = str(fault("SignatureDoesNotMatch", "the canonical string was GET /secret", "run"))
    assert "canonical" not in text
    assert "credentials" in text


def instance(state, **more):
    return read_instance(
        {
            "InstanceId": "i-1",
            "State": {"Name": state},
            "InstanceType": "t",
            "Placement": {"AvailabilityZone": "z"},
            "LaunchTime": AT,
            **more,
        }
    )


@pytest.mark.parametrize(
    ("state", "stand", "is_paid"),
    [
        ("pending", PilotState.STARTING, False),
        ("running", PilotState.RUNNING, True),
        ("shutting-down", PilotState.ENDING, True),
        ("stopping", PilotState.ENDING, True),
        ("stopped", PilotState.ENDING, True),  # its volumes are
        ("terminated", PilotState.ENDED, False),
        ("unheard-of", PilotState.STARTING, False),
    ],
)
def test_states(state, stand, is_paid):
    found = instance(state).sighting(0, 2)
    assert found.state is stand
    assert found.paid_at_s == (AT.timestamp() if is_paid else None)
    assert bool(found.fault) == (stand in (PilotState.ENDING, PilotState.ENDED))


def test_what_runs_costs_and_what_is_over_does_not():
    book = PriceBook("USD", {"t": 90}, {("t", "z"): 30})
    there = [instance("running"), instance("pending", InstanceLifecycle="spot")]
    assert spend_nanos([*there, instance("terminated"), instance("stopped")], book) == 120
    assert spend_nanos([instance("running", InstanceType="u")], book) is None
