"""Which nodes of Slurm are out of service, by their states in both generations."""

import pytest

from gateway.grids.slurm.listing import SlurmNode, read_nodes
from gateway.grids.slurm.nodes import UNUSABLE, ask_for, leaving, why_out


def node(*states, name="n1", reason="", reservation=""):
    return SlurmNode(
        *(name, frozenset(states), frozenset({"main"}), 4, 0, 4000, 0, 0, 0, reason, reservation)
    )


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (("ALLOCATED", "DRAIN"), "drained"),
        (("DRAINING",), "drained"),
        (("IDLE", "DRAINED"), "drained"),
        (("DOWN",), "down"),
        (("MIXED", "FAIL"), "failing"),
        (("FAILING",), "failing"),
        (("ALLOCATED", "DRAIN", "DOWN"), "down and drained"),
    ],
)
def test_a_node_that_its_administrator_took_out_of_service_says_why(states, said):
    assert why_out(node(*states, reason="bad disk")) == f"node n1 is {said} (bad disk)"
    assert set(states) & UNUSABLE


@pytest.mark.parametrize(
    "states", [("IDLE",), ("MIXED",), ("ALLOCATED", "COMPLETING"), ("IDLE", "RESERVED")]
)
def test_a_reason_that_stays_with_a_resumed_node_is_none(states):
    assert why_out(node(*states, reason="a fan was broken")) == ""


@pytest.mark.parametrize("state", ["NOT_RESPONDING", "REBOOT_REQUESTED", "POWERING_DOWN"])
def test_a_node_that_begins_no_job_is_not_out_of_service_for_that(state):
    assert (why_out(node("ALLOCATED", state)), state in UNUSABLE) == ("", True)


@pytest.mark.parametrize("state", ["MAINTENANCE", "MAINT"])
def test_a_maintenance_reservation_takes_its_nodes_except_from_its_own_pilots(state):
    found = node("ALLOCATED", "RESERVED", state, reason="old", reservation="night")
    assert why_out(found) == "node n1 is in maintenance"
    assert why_out(found, "mine") == "node n1 is in maintenance"
    assert why_out(found, "night") == ""
    assert why_out(node("ALLOCATED", state), "mine") == "", "22.05 tells no name"
    assert "drained" in why_out(node("DRAIN", state), "mine")


def test_a_reason_cannot_write_to_a_terminal():
    assert why_out(node("DOWN", reason="a\x1b[2Jb\n")) == "node n1 is down (a[2Jb)"


def test_pilots_leave_with_their_node():
    hosts = {"o.0": "n1", "o.1": "n2", "o.2": "n1", "o.3": "gone"}
    nodes = [node("DRAIN"), node("IDLE", name="n2")]
    assert leaving(hosts, nodes) == dict.fromkeys(("o.0", "o.2"), "node n1 is drained")


def test_nodes_are_asked_for_by_name_up_to_a_number():
    assert ask_for(["n2", "n1", "n2"], 2) == ("n1", "n2")
    assert ask_for(["n2", "n1", "n3"], 2) == ()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            {"state": "allocated", "state_flags": ["DRAIN"], "reason": "x", "reservation": None},
            "node n1 is drained (x)",
        ),
        (
            {"state": ["ALLOCATED", "RESERVED", "MAINTENANCE"], "reservation": "root_1"},
            "node n1 is in maintenance",
        ),
    ],
    ids=["22.05", "24.11"],
)
def test_both_generations_are_read(entry, said):
    [found] = read_nodes({"nodes": [{"name": "n1", "partitions": ["main"]} | entry]})
    assert why_out(found) == said
