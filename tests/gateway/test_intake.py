"""What guests may say of themselves."""

import pytest

from federation import messages
from federation.wire import pack
from gateway.intake import BadWorker, check_tags, job_event, worker_joined
from gateway.ledger.reports.keys import key_of
from gateway.terms import stored_terms, terms_plain
from gateway.worker.settings import parse_tags
from policies.placement import show_tags


def joins(pool, *pools):
    about = {"slots": 1, "pool": pool, "python": "3.11", "tags": {}}
    return worker_joined(about, 7, "w", {name: {} for name in pools}).pool


def test_a_worker_that_names_no_pool_joins_the_only_one():
    assert joins("", "local") == "local"


def test_a_worker_that_names_no_pool_joins_the_usual_one_of_several():
    assert joins("", "local", "workers") == "workers"


@pytest.mark.parametrize("pool", ["", "nope"])
def test_a_worker_is_told_how_to_choose_a_pool(pool):
    with pytest.raises(BadWorker, match=r"--pool; there are a, b"):
        joins(pool, "a", "b")


def opening(**changes):
    fields = {
        "job": "j",
        "name": "n",
        "function": bytes(32),
        "detached": True,
        "project": "p",
        "priority": 0.0,
        "tags": {},
        "timeout_s": None,
        "retries": 0,
        "max_cost_nanos": None,
        "currency": "",
        "python": "3.11",
        "prints": False,
        "again": False,
        "wishes": {},
    }
    return messages.OpenJob(**{**fields, **changes})


@pytest.mark.parametrize(("user", "group"), [("ann", "equity desk"), ("eve", "")])
def test_a_job_is_of_its_users_group_also_after_a_restart(user, group):
    spec = job_event(opening(), 1, user, {"ann": "equity desk"}).spec
    assert spec.group == group
    assert stored_terms(pack(terms_plain(spec)))["group"] == group


@pytest.mark.parametrize("name", ["", "a,b", "a=b", "a\nb", "x" * 300])
def test_a_tag_is_named_as_it_is_written_down(name):
    with pytest.raises(ValueError, match="tag name"):
        check_tags({name: True})


@pytest.mark.parametrize("value", [True, 0, 2, 1_048_577, 10**12, 0.5, 1234567.25])
def test_a_tag_is_read_as_it_was_written(value):
    text = show_tags(check_tags({"linux": True, "memory": value}))
    assert key_of("tag:memory").show(text, "") == ("yes" if value is True else f"{value}")
    assert parse_tags(text) == {"linux": True, "memory": value}
