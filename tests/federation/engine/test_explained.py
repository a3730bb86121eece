"""An explanation in words: the same at the command line and of a client."""

from click.testing import CliRunner

from federation.engine.explained import Explanation, ExplanationTable, explained
from gateway.cli.inspect import federation as command
from gateway.cli.main import cli
from gateway.cli.shared import show

NOW_S = 1_782_900_000.0  # 2026-07-01 10:00:00 UTC
ROW = {
    "site": "paris",
    "pool": "local",
    "price": "4 USD",
    "wait_s": 0.0,
    "finish_s": NOW_S,
    "cost": "0.10 USD",
    "carbon_g": None,
    "age_s": 1.0,
}
FOUND = {
    "text": "the only pool that can run it",
    "tasks": 12,
    "waiting": 8,
    "in_flight": 4,
    "job": "j",
    "waits_for": "all 2 slots are busy",
    "shares": [{**ROW, "tasks": 8, "opens_s": None}],
    "candidates": [ROW],
    "refused": [
        {
            "reason": "deadline",
            "never": False,
            "count": 1,
            "examples": [{"site": "rome", "pool": "x", "text": "would end too late"}],
        }
    ],
    "short": 4,
    "short_reason": "deadline",
    "unmet": None,
    "deadline": {"text": "the deadline will be missed", "is_met": False},
    "places": [{"worker": "w-1", "in_flight": 4, "why_not": "all its slots are busy"}],
    "places_left_off": [{"pool": "local", "workers": 3, "in_flight": 0}],
    "notes": [{"at_s": NOW_S, "text": "a note"}],
}


def test_a_client_prints_what_the_command_prints(monkeypatch):
    monkeypatch.setattr(command, "ask", lambda reach, verb, **details: FOUND)
    printed = CliRunner().invoke(cli, ["explain", "j"]).output
    said = str(Explanation(FOUND))
    assert [" ".join(line.split()) for line in said.splitlines()] == [
        " ".join(line.split()) for line in printed.splitlines()
    ]
    assert "8 tasks waiting: all 2 slots are busy" in said
    assert "  the deadline will be missed" in said
    assert "w-1 has 4 tasks of it: all its slots are busy" in said
    assert "done by 2026-07-01 10:00:00 UTC, 0.10 USD" in said


def test_an_explanation_is_the_map_that_it_was():
    assert Explanation(FOUND) == FOUND
    assert Explanation(FOUND)["text"] == FOUND["text"]


def test_an_answer_of_an_older_gateway_is_shown_as_far_as_it_goes():
    old = {key: FOUND[key] for key in ("text", "tasks", "shares", "candidates", "refused")}
    [table] = [each for each in explained(old, show) if isinstance(each, ExplanationTable)]
    assert table.rows[0][0] == "paris"
    assert "would end too late" in str(Explanation(old))


def test_texts_of_others_can_not_move_the_cursor():
    assert "\x1b" not in str(Explanation({**FOUND, "text": "\x1b[2Jgone"}))


def test_running_tasks_are_told_from_those_that_wait():
    running = {**FOUND, "waiting": 0, "waits_for": ""}
    assert "no task waits, and 4 tasks of it are at workers" in str(Explanation(running))


def test_limits_of_money_and_time_are_told_once():
    offers = [{"max_cost_nanos": 1}]
    both = {**FOUND, "unmet": {"text": "can't all be done", "reason": "deadline", "offers": offers}}
    assert "can't all be done" in str(Explanation(both))
    assert "will be missed" not in str(Explanation(both))
    alone = {**FOUND, "unmet": {"text": "can't all be done", "reason": "deadline", "offers": []}}
    assert "can't all be done" not in str(Explanation(alone))
    assert "will be missed" in str(Explanation(alone))


def test_a_rule_about_places_is_cited_by_its_line_or_its_change():
    for row, place in (
        ({"line": 12, "change": ""}, ", line 12"),
        ({"line": 0, "change": "change 15, by root"}, ", change 15, by root"),
        ({"line": 0}, ""),  # of an older gateway
    ):
        found = {**FOUND, "residency": [{**row, "rule": "all; sites oslo"}]}
        assert f"bound by [[residency]]{place}: all; sites oslo" in str(Explanation(found))


def test_the_data_of_a_job_is_told_with_its_size_and_its_label():
    data = {"objects": 2, "bytes": 3 << 20, "label_text": "object book may lie only in EU"}
    lines = str(Explanation({**FOUND, "data": data})).splitlines()
    assert (
        "its calls refer to 2 objects of 3 MiB: another site that runs them fetches each once"
    ) in lines
    assert "bound by a label: object book may lie only in EU" in lines
    assert "label" not in str(Explanation(FOUND))
