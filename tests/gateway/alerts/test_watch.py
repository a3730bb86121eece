"""The watch in a running site: each alert is told once, in every way, also after failures."""

import sys
from types import SimpleNamespace

import pytest
import trio
from support.alerts import used
from support.processes import Visitor, wait_until

from federation.messages.messages import Answer, Ask
from gateway.alerts.watch import Watch
from gateway.config.alerts import AlertPace, AlertsConfig, Watched
from gateway.ledger.db.alerts.records import AlertRow
from gateway.ledger.db.contracts.records import ContractOpened, Posted, PostingSettled
from gateway.ledger.db.errors import StoreFailed
from policies.costs.alerts import AlertBudget, Facts, Mark, PoolPrice, PriceLimit, Unacknowledged

pytestmark = pytest.mark.real

PACE = AlertPace(interval_s=0.05, tries=3, retry_s=0.01, webhook_timeout_s=30.0)
DESK = AlertBudget("desk", 100, "USD")


def config(*watched, pace=PACE):
    return {"alerts": AlertsConfig(pace, watched)}


def spend(inner, number, cost_nanos):
    """Book something, now."""
    record = used(number, inner.site.runtime.utc_s(), cost_nanos)
    inner.call(inner.site.store.write, [record], False, lambda: None)


def fired(inner):
    return [(row.name, row.level) for row in inner.site.store.alerts.all()]


def said(inner, text):
    return [line for line in inner.said if text in line]


def looks(inner):
    """Wait until it has looked twice more."""
    facts, seen = inner.site.watch._books.facts, []

    def note(*arguments):
        seen.append(1)
        return facts(*arguments)

    inner.site.watch._books.facts = note
    wait_until(lambda: len(seen) > 2, "two looks")
    inner.site.watch._books.facts = facts


@pytest.fixture
def ask():
    """Ask a site something."""
    visitors = []

    def ask_(address, verb, **details):
        if not visitors:
            visitors.append(Visitor(address))
        visitors[0].heard.clear()
        visitors[0].say(Ask(1, verb, details))
        return visitors[0].wait_for(Answer)

    yield ask_
    for each in visitors:
        each.close()


def test_each_level_is_told_once_also_over_a_restart(make_inner, door):
    watched = Watched(DESK, (door.url,))
    inner = make_inner(**config(watched))
    spend(inner, 1, 60)
    wait_until(lambda: len(fired(inner)) == 1, "the first level")
    spend(inner, 2, 25)
    wait_until(lambda: len(fired(inner)) == 2, "the second")
    looks(inner)
    inner.stop()
    again = make_inner(**config(watched))
    looks(again)
    assert said(again, "alert: ") == []
    spend(again, 3, 15)
    wait_until(lambda: len(fired(again)) == 3, "the third")
    looks(again)
    assert [body["level"] for body in door.bodies] == [50, 80, 100]
    assert len(said(again, "alert: warning: desk: all users")) == 1


def test_what_fails_is_tried_again_and_said(make_inner, door):
    door.answers += [500, "hang-up"]
    inner = make_inner(
        **config(Watched(AlertBudget("desk", 100, "USD", levels=(50,)), (door.url,)))
    )
    spend(inner, 1, 60)
    wait_until(lambda: fired(inner) == [("desk", 50)], "the alert")
    assert len(door.bodies) == 3
    assert len(said(inner, "alerts: desk: webhook 127.0.0.1: HTTP status 500")) == 1
    assert len(said(inner, "next attempt in 0.01 s, 2 left")) == 1
    assert len(said(inner, "next attempt in 0.04 s, 1 left")) == 1


def test_what_keeps_failing_is_given_up_and_nothing_else_suffers(make_inner, door, dead_url):
    broken = (sys.executable, "-c", "raise SystemExit(7)")
    rule = AlertBudget("desk", 100, "USD", levels=(50,))
    inner = make_inner(**config(Watched(rule, (dead_url, door.url), broken)))
    spend(inner, 1, 60)
    wait_until(lambda: fired(inner) == [("desk", 50)], "the alert")
    looks(inner)
    assert len(door.bodies) == 1
    assert len(said(inner, "unreachable")) == 3
    assert len(said(inner, "exit code 7")) == 3
    assert len(said(inner, "no more attempts")) == 2


def test_a_gateway_that_dies_while_it_tells_tells_again(make_inner, door):
    door.answers.append("slow")
    watched = Watched(AlertBudget("desk", 100, "USD", levels=(50,)), (door.url,))
    inner = make_inner(**config(watched))
    spend(inner, 1, 60)
    wait_until(lambda: door.bodies, "the first try")
    looks(inner)
    assert len(door.bodies) == 1  # while it is told it is not told again
    assert fired(inner) == []
    inner.stop()
    again = make_inner(**config(watched))
    wait_until(lambda: fired(again) == [("desk", 50)], "the second try")
    assert door.bodies[1]["key"] == door.bodies[0]["key"]


def test_a_pool_of_ours_that_is_dear_is_told(make_inner):
    rule = PriceLimit("dear", 10**7, "USD", pool="workers")
    inner = make_inner(**config(Watched(rule)))
    wait_until(lambda: fired(inner) == [("dear", 0)], "the alert")
    (line,) = said(inner, "alert: ")
    assert (
        line == "alert: warning: dear: a slot-hour of local/workers costs 0.04 USD, above 0.01 USD"
    )


def test_what_a_rule_does_not_count_is_said_once_and_shown(make_inner, ask):
    far = PriceLimit("far", 10**7, "USD", pool="nowhere")
    inner = make_inner(**config(Watched(DESK), Watched(far)))
    utc_s = inner.site.runtime.utc_s()
    record = used(1, utc_s, 400, currency="EUR")
    inner.call(inner.site.store.write, [record], False, lambda: None)
    wait_until(lambda: said(inner, "alerts: desk: all users"), "the line")
    looks(inner)
    (line,) = said(inner, "alerts: desk: all users")
    assert line.endswith("was spent in other currencies, and does not count for a budget in USD")
    assert len(said(inner, "alerts: far: no pool */nowhere is known")) == 1
    desk, dear = ask(inner.address, "alerts").value
    assert desk["others_nanos"] == {"EUR": 400}
    assert [len(each["overlooked"]) for each in (desk, dear)] == [1, 1]


def test_a_pool_of_another_site_is_not_missed_before_that_could_show_itself():
    rule = PriceLimit("far", 10**7, "USD", site="paris", pool="gpu")
    said = []
    watch = Watch(
        AlertsConfig(PACE, (Watched(rule),)),
        *("london", None),
        **dict.fromkeys(("read", "record", "prices", "utc_s")),
        say=said.append,
    )
    unheard, heard = Facts(0.0), Facts(0.0, prices=(PoolPrice("paris", "gpu", 9, "USD"),))
    for facts in (unheard, unheard, heard, unheard, unheard):
        watch._say_overlooked(facts)
    assert said == []
    for _ in range(5):
        watch._say_overlooked(unheard)
    assert len(said) == 1, "once, when it stays away"
    assert "no pool paris/gpu is known" in said[0]


async def test_what_was_given_while_an_end_was_written_is_not_given_again():
    gone, dear = (PriceLimit(name, 10**7, "USD", pool=name) for name in ("gone", "dear"))
    raised = {each: Mark(each, f"here/{each}", 0) for each in ("gone", "dear")}
    facts = Facts(
        9.0, prices=(PoolPrice("here", "gone", 1, "USD"), PoolPrice("here", "dear", 10**9, "USD"))
    )
    said = []

    async def read(*_):
        return facts

    async def record(*_):
        """The disk is slow; meanwhile the other one was given."""
        watch._told[raised["dear"]] = AlertRow(*raised["dear"], 5.0, None)
        watch._giving.discard(raised["dear"])

    watch = Watch(
        AlertsConfig(PACE, (Watched(gone), Watched(dear))),
        *("here", SimpleNamespace(alerts=list)),
        read=read,
        record=record,
        prices=list,
        utc_s=lambda: 9.0,
        say=said.append,
    )
    watch._told = {raised["gone"]: AlertRow(*raised["gone"], 1.0, None)}
    watch._giving = {raised["dear"]}
    async with trio.open_nursery() as nursery:
        await watch._look(nursery)
    assert said == ["alert: gone: here/gone has ended"]


def test_deliveries_without_a_verdict_are_told_until_there_are_none(make_inner):
    inner = make_inner(**config(Watched(Unacknowledged("late", 3600.0))))
    now_s = inner.site.runtime.utc_s()

    def write(*records):
        inner.call(inner.site.store.write, records, False, lambda: None)

    def posted(first, at_s):
        return Posted("c", "sell", "rome", 1, first, 1, 1, 5, "USD", at_s)

    def settled(first):
        return PostingSettled("c", "sell", "rome", 1, first, "post", 5, "USD", now_s)

    write(ContractOpened("c", "sell", "rome", "rome:j", "p", 1, 1, "USD", 30.0, now_s - 9999))
    write(posted(0, now_s - 7200), posted(1, now_s))
    wait_until(lambda: fired(inner) == [("late", 0)], "the alert")
    write(settled(0))
    wait_until(lambda: said(inner, "late: sell rome has ended"), "its end")
    write(posted(2, now_s - 7200))
    wait_until(lambda: len(said(inner, "1 delivery to rome (")) == 2, "the next alert")
    looks(inner)
    assert len(said(inner, "1 delivery to rome")) == 2


def test_a_store_that_cannot_be_read_is_said_and_looked_at_again(make_inner):
    inner = make_inner(**config(Watched(DESK)))
    looks(inner)
    watch = inner.site.watch
    facts = watch._books.facts

    def fail(*_):
        raise StoreFailed("disk I/O error")

    watch._books.facts = fail
    wait_until(lambda: said(inner, "alerts: the books can't be read: disk I/O error"))
    watch._books.facts = lambda *_: 1 / 0
    wait_until(lambda: said(inner, "fault: alerts: ZeroDivisionError"))
    watch._books.facts = facts
    spend(inner, 1, 60)
    wait_until(lambda: fired(inner) == [("desk", 50)], "the alert")


def test_where_each_rule_stands_is_shown(make_inner, ask):
    pools = PriceLimit("dear", 10**8, "USD")
    inner = make_inner(**config(Watched(DESK), Watched(pools), Watched(Unacknowledged("late"))))
    spend(inner, 1, 60)
    wait_until(lambda: fired(inner) == [("desk", 50)], "the alert")
    desk, dear, late = ask(inner.address, "alerts").value
    assert (desk["name"], desk["share_percent"], desk["raised"]) == ("desk", 60.0, [50])
    assert (desk["settled_nanos"], desk["held_nanos"]) == (60, 0)
    assert desk["last_fired_at_s"] is not None
    assert (dear["limit"], dear["dearest"], dear["raised"]) == ("0.1 USD", "local/workers", [])
    assert (late["limit"], late["records"], late["late"]) == ("1 d", 0, [])


def test_a_test_runs_the_actions_once_and_marks_them(make_inner, ask, door):
    door.answers.append(500)
    inner = make_inner(**config(Watched(DESK, (door.url,), ("true",))))
    answer = ask(inner.address, "test_alert", name="desk")
    assert answer.value == {
        "name": "desk",
        "actions": [
            {"action": "log", "error": ""},
            {"action": "webhook 127.0.0.1", "error": "HTTP status 500, not 2xx"},
            {"action": "command true", "error": ""},
        ],
    }
    assert [body["test"] for body in door.bodies] == [True]
    assert fired(inner) == []
    unknown = ask(inner.address, "test_alert", name="dsek")
    assert unknown.reason == "alert 'dsek' not found; known alerts: desk"
    unprintable = ask(inner.address, "test_alert", name="dsek\x1b")
    assert unprintable.reason == "name must be 1 to 1,000 printable characters"


def test_only_the_gateways_own_host_may_run_a_test(make_inner, ask, door):
    inner = make_inner(listen=("tcp://127.0.0.1:0",), **config(Watched(DESK, (door.url,))))
    answer = ask(inner.site.addresses[0], "test_alert", name="desk")
    assert "test_alert is only for the gateway's own host" in answer.reason
    assert door.bodies == []
    assert ask(inner.site.addresses[0], "alerts").value[0]["name"] == "desk"


def test_a_site_that_watches_nothing_has_nothing_to_show(make_inner, ask):
    assert ask(make_inner().address, "alerts").value == []
