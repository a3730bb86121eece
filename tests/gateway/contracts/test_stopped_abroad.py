"""Work that is stopped at another site is charged like work that is stopped at home.

The time until the stop is delivered, with the failure `cancelled`: the buyer's user, the buyer's
purchase and the seller's sale have the same amount. Usage that can't be delivered any more is
charged at neither site.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.pure.town import CHEAP, DEAR, RULES, UTC_S, Town, dear_and_cheap

from federation.messages import deals
from federation.messages.messages import Recall, Results
from gateway.ledger.db import records
from gateway.scheduler.model import events
from gateway.scheduler.tasks import provisional
from policies.costs.budgets import Budget
from policies.costs.pricelist import PriceList
from policies.parties import read_party
from policies.placement.asks import Wishes
from policies.tariffs import Extras, Tariff

ABROAD = Wishes(forbidden_sites=frozenset({"london"}))
PRICE = 36 * 10**9  # nano-units a slot-hour: 10 ** 7 a slot-second
TWO_S = 2 * 10**9
NOTHING = Extras()


class Slow:
    """A site whose workers have begun all assigned tasks, and go on until they are stopped."""

    def __init__(self, site):
        self.site = site
        self.killed: list[tuple[int, Recall]] = []
        site._recall = self._recall

    def _recall(self, worker, recall):
        if recall.kill:
            self.killed.append((worker, recall))
        self.site.town.later.append((self.site, events.HandedBack(worker, recall.assignment, ())))

    def stop(self, wall_ns=TWO_S, *, unstarted=0):
        """Report killed tasks, each by itself; the last of them had not begun."""
        for worker, orders in list(self.site.at_work.items()):
            for order in [each for each in orders if self._is_killed(each)]:
                orders.remove(order)
                for task in range(order.first, order.first + len(order.arguments)):
                    ran_ns = (
                        0 if task >= order.first + len(order.arguments) - unstarted else wall_ns
                    )
                    self.report(worker, order.assignment, task, ran_ns)

    def report(self, worker, assignment, task, wall_ns):
        failure = [[0, "cancelled", "stopped on request", b""]]
        used = ([b""], failure, [], wall_ns, wall_ns // 2)
        self.site.do(events.Reported(worker, assignment, task, *used))

    def _is_killed(self, order):
        return order.assignment in {recall.assignment for _, recall in self.killed}


def priced_town(extras=NOTHING, held=(), lent=(), **tags):
    """London, where work is dear, and Paris, where a slot-second costs 10 ** 7 nano-units."""
    town = Town()
    london = town.build("london", DEAR, 1, held)
    paris = town.build("paris", CHEAP, 4, lent, **tags)
    prices = PriceList(PRICE, "USD", "v1", extras=extras)
    paris.do(events.PricesChanged({"local": prices.at(UTC_S)}))
    town.show()
    return town, london, paris


def forwarded(tasks=3, extras=NOTHING):
    """London's job at Paris, where all of it has begun, for two seconds."""
    town, london, paris = priced_town(extras)
    slow = Slow(paris)
    london.submit(tasks, wishes=ABROAD)
    town.deliver()
    town.pass_time(0.6)
    assert sum(len(each.arguments) for orders in paris.at_work.values() for each in orders) == tasks
    town.now_s += 2.0
    return town, london, paris, slow


def cancel(site):
    site.do(events.CancelAsked(1, 7, "j", (), True))


def usage(site):
    return [each for each in site.books if isinstance(each, records.UsageRecord)]


def charged(site):
    return sum(each.cost_nanos for each in usage(site))


def settled(site, side):
    """The paid amount, in all; nothing is void, and nothing waits."""
    rows = site.postings(side).values()
    assert {state for *_, state in rows} <= {"post"}
    return sum(nanos for _, nanos, _ in rows)


def test_what_ran_until_it_was_stopped_is_charged_the_same_on_both_sides():
    town, london, paris, slow = forwarded(3)
    cancel(london)
    town.deliver()
    assert slow.killed
    slow.stop()
    town.pass_time(2.0)
    assert charged(london) == charged(paris) == settled(london, "buy") == settled(paris, "sell")
    assert charged(london) == 3 * 2 * 10**7
    assert not london.broker.jobs
    assert not paris.broker.jobs


@pytest.mark.parametrize("ran_ns", [TWO_S, 10**7])
def test_it_is_charged_as_at_home_in_whole_steps_and_without_a_minimum(ran_ns):
    """A minimum is of a task that ended; one that was stopped has its time, in whole steps."""
    extras = Extras(minimum_nanos=10**8, step_ns=15 * 10**8)
    town, london, paris, slow = forwarded(1, extras)
    cancel(london)
    town.deliver()
    slow.stop(ran_ns)
    town.pass_time(2.0)

    home = Town().build("home", CHEAP, 1)
    here = Slow(home)
    home.do(events.PricesChanged({"local": PriceList(PRICE, "USD", "v1", extras=extras).at(UTC_S)}))
    home.submit(1)
    home.town.now_s += 2.0
    cancel(home)
    here.stop(ran_ns)
    steps = -(-ran_ns // (15 * 10**8))
    assert charged(london) == charged(paris) == charged(home) == steps * 15 * 10**6


def test_what_ends_while_it_is_being_stopped_is_charged_whole_here_and_there():
    extras = Extras(minimum_nanos=10**8)
    town, london, paris, _ = forwarded(1, extras)
    cancel(london)
    town.deliver()
    paris.work(task_s=2.0)
    town.pass_time(2.0)
    assert charged(london) == charged(paris) == settled(london, "buy") == 10**8
    assert not london.answers()  # it was cancelled, and its user was told so


def test_what_had_not_begun_costs_nothing():
    town, london, paris, slow = forwarded(4)
    cancel(london)
    town.deliver()
    slow.stop(unstarted=4)
    town.pass_time(2.0)
    assert charged(london) == charged(paris) == settled(paris, "sell") == 0
    assert not london.broker.jobs
    assert not paris.broker.jobs


def test_a_stopped_task_whose_worker_is_lost_is_not_run_again():
    town, london, paris, _ = forwarded(1)
    cancel(london)
    town.deliver()
    paris.at_work.clear()
    paris.join(2)
    paris.do(events.WorkerGone(1, "it vanished"))
    town.pass_time(2.0)
    assert not any(paris.at_work.values())
    assert not paris.broker.jobs
    assert not london.broker.jobs
    assert charged(london) == charged(paris) == settled(paris, "sell")


def test_what_is_stopped_as_its_lease_ended_is_charged_at_neither_site():
    town, london, paris, slow = forwarded(2)
    town.cut.add(frozenset({"london", "paris"}))
    town.pass_time(RULES.lease_s)
    assert slow.killed
    slow.stop()
    assert charged(paris) == 0
    assert {(each.state, each.wall_ns) for each in usage(paris)} == {("void", TWO_S)}
    town.cut.clear()
    town.pass_time(2 * RULES.lease_s)
    assert charged(london) == settled(london, "buy") == settled(paris, "sell") == 0


@pytest.mark.parametrize("victim", ["london", "paris"])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_gateway_killed_while_work_is_stopped_leaves_one_charge_on_both_sides_or_none(
    victim, is_stopped
):
    town, london, paris, slow = forwarded(2)
    cancel(london)
    if victim == "london":
        town.deliver(until=lambda: slow.killed)
    else:
        town.deliver()
    if is_stopped:
        slow.stop()
    town.sites[victim].recover(2)
    town.mail.clear()  # what was on its way was lost with the session
    paris.exchange.buyer_came("london")
    paris.do()
    town.deliver()
    if not is_stopped:
        slow.stop()
    town.pass_time(3 * RULES.lease_s)
    bought, sold = london.postings("buy"), paris.postings("sell")
    assert {key: row for key, row in bought.items() if row[2] == "post"} == {
        key: row for key, row in sold.items() if row[2] == "post"
    }
    assert {row[2] for row in (*bought.values(), *sold.values())} <= {"post", "void"}
    assert charged(london) == sum(nanos for _, nanos, _ in bought.values())
    assert charged(paris) == sum(nanos for _, nanos, _ in sold.values())


def test_a_seller_that_keeps_what_it_was_told_to_stop_loses_its_lease():
    """Else a seller that renews, and never reports a task's end, would hold its job for ever."""
    town, london, _, _ = forwarded(1)
    cancel(london)
    town.pass_time(3 * RULES.lease_s, step_s=0.1)
    assert not london.broker.jobs
    assert charged(london) == 0


def test_a_relay_charges_its_buyer_for_what_was_stopped_behind_it():
    town = Town()
    london, paris = town.build("london", DEAR, 1), town.build("paris", CHEAP, 1)
    tokyo = town.build("tokyo", 2 * CHEAP, 4, gpu=True)  # the only one that has what is asked for
    london.permits.strangers.add("tokyo")
    town.show(hidden={("tokyo", "london")})
    slow = Slow(tokyo)
    london.submit(1, tags={"gpu": True})
    town.pass_time(3.0, until=lambda: any(tokyo.at_work.values()))
    town.now_s += 2.0
    cancel(london)
    town.deliver()
    slow.stop()
    town.pass_time(2.0)
    assert charged(tokyo) == settled(tokyo, "sell") == settled(paris, "buy") > 0
    assert charged(london) == charged(paris) == settled(paris, "sell") == settled(london, "buy") > 0


def test_a_relay_sells_at_the_price_minimum_and_step_of_the_site_behind_it():
    """A price of slot time that has the minimum in it holds for tasks of one duration only."""
    town = Town()
    london, paris = town.build("london", DEAR, 1), town.build("paris", CHEAP, 1)
    tokyo = town.build("tokyo", CHEAP, 4, gpu=True)
    extras = Extras(minimum_nanos=10**5, step_ns=3 * 10**8)
    prices = PriceList(PRICE, "USD", "v1", extras=extras)
    tokyo.do(events.PricesChanged({"local": prices.at(UTC_S)}))
    london.permits.strangers.add("tokyo")
    town.show(hidden={("tokyo", "london")})
    for name, tasks, task_s in (("quick", 20, 0.00001), ("slow", 2, 4.0)):
        london.submit(tasks, name, tags={"gpu": True})
        for _ in range(100):
            town.pass_time(0.5 + task_s)
            tokyo.work(task_s=task_s)
            if not london.broker.jobs:
                break
        assert not london.broker.jobs
    town.pass_time(20.0, step_s=0.5)
    slow_nanos = 27 * 3 * 10**6  # so many steps, of both together
    assert charged(london) == charged(paris) == charged(tokyo)
    assert sum(each.cost_nanos for each in usage(london) if each.job == "slow") == slow_nanos


def test_a_delivery_of_what_was_stopped_is_within_what_was_agreed():
    town, london, _, slow = forwarded(1)
    cancel(london)
    town.deliver()
    slow.stop()
    town.deliver()
    [message] = [each for *_, each in town.said if isinstance(each, deals.Deliver)]
    assert [kind for _, kind, *_ in message.failures] == ["cancelled"]
    assert (message.wall_ns, message.cost_nanos) == (TWO_S, 2 * 10**7)


def test_dear_and_cheap_sites_have_nothing_out_after_a_large_job_was_stopped():
    town = dear_and_cheap()
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20_000)
    town.run(lambda: len(london.answers()) > 1000)
    town.deliver()
    cancel(london)
    town.pass_time(3.0)
    remote = sum(each.cost_nanos for each in usage(london) if each.site)
    assert remote == charged(paris) == settled(paris, "sell") == settled(london, "buy")
    assert not london.exchange.purchases.purchases


# --- what its grant does not pay for --------------------------------------------------------------


def under_a_limit(seconds, tasks=1):
    """London's job with money for so many slot-seconds at Paris, where all of it has begun."""
    town, london, paris = priced_town()
    slow, limit = Slow(paris), round(seconds * 10**7)
    london.submit(tasks, wishes=ABROAD, max_cost_nanos=limit, currency="USD")
    town.deliver()
    begin(paris)
    return town, london, paris, slow, limit


def begin(site):
    """The site's workers say that all they were given has begun now."""
    for worker, orders in site.at_work.items():
        rows = [
            (each.assignment, each.first + at, 0.0)
            for each in orders
            for at in range(len(each.arguments))
        ]
        site.do(events.TasksBegun(worker, tuple(rows)))


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_task_that_runs_for_longer_than_its_grant_pays_is_stopped(tasks):
    """Else a tiny cost limit buys as many slot-hours as a user likes."""
    town, london, paris, slow, limit = under_a_limit(tasks, tasks)
    town.pass_time(1.8, step_s=0.1)
    assert not slow.killed, "what takes a little longer than expected still ends"
    town.pass_time(0.8, step_s=0.1)
    assert slow.killed
    slow.stop(25 * 10**8)
    town.pass_time(2.0)
    assert not london.broker.jobs
    assert not paris.broker.jobs
    assert charged(london) == charged(paris) == settled(london, "buy") == limit
    failures = [row for each in london.told if isinstance(each, Results) for row in each.failures]
    assert {kind for _, kind, *_ in failures} == {"budget"}
    assert "cost limit" in failures[0][2]


def test_a_task_that_is_stopped_for_its_money_goes_on_while_its_job_has_some():
    """Its contract was granted a part of the job's money. The next one is granted more."""
    town, london, paris = priced_town()
    slow, task_s = Slow(paris), 60.0
    london.submit(1, "first", wishes=ABROAD)
    town.deliver()
    paris.work(task_s=0.1)  # so long one is expected to take
    town.pass_time(1.0)
    london.results.clear()
    limit = 4 * round(task_s * 10**7)
    london.submit(2, wishes=ABROAD, max_cost_nanos=limit, currency="USD")
    town.deliver()
    rounds = 0
    while "j" in london.broker.jobs:
        rounds += 1
        assert rounds < 20, "it does not come to an end"
        began_s = town.now_s
        begin(paris)
        while not slow.killed and town.now_s < began_s + task_s:
            town.pass_time(1.0)
        slow.stop(round((town.now_s - began_s) * 1e9)) if slow.killed else paris.work(task_s=task_s)
        slow.killed.clear()
        town.pass_time(2.0)
    assert charged(london) == charged(paris) <= limit + round(0.1 * 10**7)
    assert rounds > 1
    assert len(london.answers()) == 2
    results = [each for each in london.told if isinstance(each, Results) and each.job == "j"]
    assert not [each.failures for each in results if each.failures]


def test_a_task_that_outran_a_slice_waits_for_a_larger_one():
    """A slice of the same size would be spent again on a task that does not end."""
    whole = Budget("b", read_party("project:risk"), "USD", 10**12, span=None)
    lent = replace(whole, sites=frozenset({"london"}), slice_s=600.0)
    held = replace(whole, owner="paris", amount_nanos=10**7)  # a second
    town, london, paris = priced_town(held=[held], lent=[lent], vault=1)
    town.pass_time(provisional.SETTLE_S)
    slow, began_s = Slow(paris), 0.0
    london.submit(1, tags={"vault": 1})
    rounds = stopped = 0
    while london.broker.jobs:
        rounds += 1
        assert rounds < 900, "it does not come to an end"
        is_idle = not any(paris.at_work.values())
        town.pass_time(1.0)
        if is_idle and any(paris.at_work.values()):
            begin(paris)
            began_s = town.now_s
        ran_s = town.now_s - began_s
        if slow.killed:
            stopped += 1
            slow.stop(round(ran_s * 1e9))
            slow.killed.clear()
        elif any(paris.at_work.values()) and ran_s > 6.0:
            paris.work(task_s=6.0)
    assert len(london.answers()) == 1
    assert 1 <= stopped < 4


def test_what_runs_for_as_long_as_its_grant_pays_is_left_alone():
    town, london, _, slow, limit = under_a_limit(10.0)
    town.pass_time(9.0, step_s=0.1)
    assert not slow.killed
    assert limit > charged(london) == 0


def test_a_grant_for_tasks_that_nobody_measured_buys_a_slot_for_each_second_that_it_pays():
    """Many slots' usage until they are stopped would be out of proportion to the payment."""
    for seconds, slots in ((0.0001, 1), (1.0, 1), (3.0, 3), (100.0, 4)):
        *_, paris, _, _ = under_a_limit(seconds, 40)
        (sale,) = paris.exchange.sales.sales.values()
        assert sale.slots == slots
        begun = (len(each.arguments) for work in paris.at_work.values() for each in work)
        assert sum(begun) == slots


def test_the_word_of_a_buyer_for_how_long_its_tasks_take_buys_no_more_slots():
    town, london, paris = priced_town()
    terms = {"max_cost_nanos": 10**6, "currency": "USD", "task_s": 0.001}
    london.submit(40, wishes=ABROAD, **terms)
    town.deliver()
    (sale,) = paris.exchange.sales.sales.values()
    assert sale.slots == 1


def test_small_grants_that_leave_much_unpaid_are_declined():
    """Else many short tasks, each for next to nothing, are free computing."""
    town, london, paris = priced_town()

    def run(number):
        digest, limit = b"%32d" % number, {"max_cost_nanos": 1, "currency": "USD"}
        london.submit(1, f"j{number}", function=digest, wishes=ABROAD, **limit)
        for _ in range(20):
            town.pass_time(0.3)
            if paris.work(task_s=1.0):
                town.deliver()
                return True
        return False

    ran = [run(number) for number in range(30)]
    assert all(ran[:10])
    assert sum(ran[10:]) <= 5
    assert charged(paris) <= len(ran)


def test_a_grant_that_pays_for_a_second_is_quoted_for_all_the_same():
    town, london, paris = priced_town()
    paid_before = SimpleNamespace(buyer="london", price=Tariff(PRICE, "USD", "v1"))
    paris.exchange.offering.shortfalls.note(paid_before, 1000 * 10**7, 0.0)
    for name, limit in (("tiny", 1), ("paid", 10**8)):
        digest = name.encode() * 8
        terms = {"function": digest, "max_cost_nanos": limit, "currency": "USD"}
        london.submit(1, name, wishes=ABROAD, **terms)
    town.pass_time(5.0)
    assert {each.job for each in london.exchange.purchases.purchases.values()} == {"paid"}


def test_an_ending_contract_keeps_its_lease_until_its_running_tasks_have_ended():
    """Its price is that of yesterday: no more of it begins, and running tasks are not lost."""
    town, london, paris, slow = forwarded(2)
    dearer = PriceList(2 * PRICE, "USD", "v2", extras=NOTHING)
    paris.do(events.PricesChanged({"local": dearer.at(UTC_S)}))
    town.pass_time(6 * RULES.lease_s, step_s=0.5)
    (sale,) = paris.exchange.sales.sales.values()
    assert sale.ending is not None
    assert sale.is_live
    assert not slow.killed
    assert not paris.exchange.sales.lapsed()
    paris.work(task_s=6 * RULES.lease_s)
    town.pass_time(3.0, step_s=0.5)
    assert not london.broker.jobs
    assert settled(london, "buy") == settled(paris, "sell") == charged(london) == charged(paris) > 0
    assert {each.price_nanos for each in usage(london)} == {PRICE}


@pytest.mark.parametrize(("limit", "is_taken"), [(400, False), (600, True)])
def test_a_blind_quote_is_not_taken_whose_minimum_is_more_than_its_job_may_cost(limit, is_taken):
    """Though the duration of its tasks is unknown: nothing is charged for less than 500 nanos."""
    town, london, paris = priced_town(Extras(minimum_nanos=500))
    london.exchange.market.forget("paris")
    wishes = Wishes(forbidden_sites=frozenset({"london"}))
    london.submit(4, wishes=wishes, max_cost_nanos=limit, currency="USD")
    for _ in range(8):
        town.deliver()
        town.pass_time(0.3)
    assert any(paris.at_work.values()) is is_taken
    assert ("j" in london.broker.jobs) is is_taken


# --- orders that a seller may not have heard -----------------------------------------------------


def cancelled_and_restarted(tasks, *, kill):
    """London cancels its detached job at Paris, where all of it runs, and is killed unheard."""
    town, london, paris = priced_town()
    slow = Slow(paris)
    london.submit(tasks, wishes=ABROAD, detached=True)
    town.deliver()
    town.pass_time(0.6)
    town.now_s += 2.0
    terms = london.broker.jobs["j"].spec
    london.do(events.CancelAsked(1, 7, "j", (), kill))
    (order,) = [each for each in london.books if isinstance(each, records.EndOrdered)]
    kept = [each for each in london.books if isinstance(each, records.OutcomeKept)]
    ended = tuple((each.first, each.first + each.count) for each in kept)
    town.mail.clear()
    cancelled = sum(stop - first for first, stop in ended)
    recovered = events.JobRecovered(
        *("j", terms, tasks, ended, 0, cancelled, (), {}, 0, 0),
        leaving="cancelled",
        reason=order.reason,
        known=((0, tasks),),
    )
    london.workers = 0
    london.recover(2, recovered)
    london.join(1)
    paris.exchange.sales.buyer_came("london")
    paris.do()
    town.deliver()
    return town, london, paris, slow


def finish(town, london):
    for _ in range(4):
        town.pass_time(1.0)
        london.do(events.Ticked())
        town.deliver()


def test_a_cancel_that_its_seller_never_heard_is_repeated_after_a_restart_and_charged():
    town, london, paris, slow = cancelled_and_restarted(3, kill=True)
    london.do(events.Ticked())
    assert london.broker.jobs["j"].in_flight == 3  # it ends with them
    assert slow.killed
    slow.stop()
    finish(town, london)
    assert charged(london) == charged(paris) == settled(london, "buy") == settled(paris, "sell")
    assert charged(london) == 3 * 2 * 10**7
    assert not london.broker.jobs
    assert not paris.broker.jobs
    (end,) = [each for each in london.books if isinstance(each, records.JobEnded)]
    assert (end.state, end.cancelled) == ("cancelled", 3)


def test_what_had_begun_at_a_seller_is_awaited_after_a_restart_and_its_results_are_kept():
    town, london, paris, slow = cancelled_and_restarted(3, kill=False)
    assert not slow.killed
    paris.work(most=1, task_s=2.0)
    finish(town, london)
    assert london.broker.jobs["j"].in_flight == 2
    paris.work(task_s=2.0)
    finish(town, london)
    (end,) = [each for each in london.books if isinstance(each, records.JobEnded)]
    assert (end.state, end.done, end.cancelled) == ("cancelled", 3, 0)
    assert charged(london) == charged(paris) == settled(london, "buy")


def test_a_cancelled_job_ends_with_the_lease_of_a_seller_that_stays_away():
    town, london, _, _ = cancelled_and_restarted(2, kill=True)
    town.sites.pop("paris")
    for _ in range(12):
        town.now_s += 2.0
        town.mail.clear()
        london.kernel.tick(town.now_s, UTC_S + town.now_s)
        london.do(events.Ticked())
    assert not london.broker.jobs


def test_tasks_that_were_to_be_stopped_are_stopped_when_their_seller_is_back():
    town, london, paris, slow = forwarded(3)
    cancel(london)
    town.mail.clear()  # the session is lost with the order
    assert not slow.killed
    london.exchange.unreachable("paris", UTC_S + town.now_s)
    paris.exchange.sales.buyer_came("london")
    paris.do()
    town.deliver()
    assert slow.killed
    slow.stop()
    town.pass_time(2.0)
    assert charged(london) == charged(paris) == settled(london, "buy") == settled(paris, "sell")
    assert charged(london) == 3 * 2 * 10**7
