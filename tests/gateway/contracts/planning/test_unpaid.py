"""A plan names no pool that the budgets of a job can't pay, where another can be paid."""

from support.pure.town import CHEAP, DEAR, Town, spec

from gateway.scheduler.model import events
from policies.costs.budgets import KILL_S, Budget
from policies.parties import read_party
from policies.placement.asks import FASTEST, Wishes

OTHERS = {"paris", "tokyo", "zurich", "oslo"}
LIMIT_S = 9.0
LOCAL_NANOS = round(CHEAP * (LIMIT_S + KILL_S) / 3600)  # that a task holds at home
DEAR_NANOS = round(DEAR / 3600)  # what a second costs abroad


def busy_site(budget_nanos, home=CHEAP, tasks=40):
    """A cheap site with one slot, beside dear ones with many, and a job that should be quick."""
    budget = Budget("b", read_party("project:risk"), "USD", budget_nanos, span=None)
    town = Town()
    london = town.build("london", home, 1, [budget])
    for each in OTHERS:
        town.build(each, DEAR, 40)
    town.show()
    london.do(events.ClientJoined(1, "ann"))
    london.do(events.JobOpened(1, "j", spec(project="risk", task_s=1.0, timeout_s=LIMIT_S,
                                            wishes=Wishes(objective=FASTEST))))  # fmt: skip
    london.do(events.TasksArrived(1, "j", 0, [b"1"] * tasks))
    london.do(events.JobClosed(1, "j", tasks))
    return town, london


def test_what_is_too_dear_elsewhere_runs_at_home():
    town, london = busy_site(3 * LOCAL_NANOS)
    assert LOCAL_NANOS * 3 < DEAR_NANOS
    town.run(lambda: len(london.results[1]) == 3)
    assert not london.exchange.purchases.purchases


def test_what_can_be_paid_goes_to_the_fastest():
    town, london = busy_site(1_000 * DEAR_NANOS)
    town.run(lambda: bool(london.exchange.purchases.purchases))
    assert {each.site for each in london.exchange.purchases.purchases.values()} <= OTHERS


def test_what_is_paid_already_is_used():
    """The contracts of a job hold all of its money, and another pool costs nothing."""
    town, london = busy_site(60 * DEAR_NANOS, home=0, tasks=400)
    town.run(lambda: not london.broker.jobs["j"].waiting)
    assert london.postings("buy")  # without: none, in seven times the time
