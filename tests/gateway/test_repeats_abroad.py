"""What runs again at another site is paid by the site whose user it is, and booked there."""

from town import CHEAP, DEAR, UTC_S, Town
from town import spec as job_spec

from gateway import events
from gateway.ledger.records import Posted, UsageRecord
from policies.asks import Wishes
from policies.pricelist import PriceList

ABROAD = Wishes(forbidden_sites=frozenset({"london"}))
PRICE = 36 * 10**9


def test_what_was_bought_twice_is_in_the_buyers_books_as_often_and_charged_once():
    town = Town()
    london = town.build("london", DEAR, 1)
    paris = town.build("paris", CHEAP, 4)
    paris.do(events.PricesChanged({"local": PriceList(PRICE, "USD", "v1").at(UTC_S)}))
    town.show()
    for client in (1, 2):  # who comes back without any of its results
        london.do(events.ClientJoined(client, "ann"))
        london.do(events.JobOpened(client, "j", job_spec(wishes=ABROAD), again=client > 1))
        london.do(events.TasksArrived(client, "j", 0, [b"0", b"1", b"2"]))
        town.deliver()
        town.pass_time(0.6)
        town.now_s += 2.0
        paris.work(3, task_s=2.0)
        town.deliver()
        london.do(events.ClientGone(client))
        town.deliver()
        town.pass_time(0.6)
    used = [each for each in london.books if isinstance(each, UsageRecord)]
    bought = [each.cost_nanos for each in london.books if isinstance(each, Posted)]
    assert len(bought) >= 2
    assert sum(each.cost_nanos for each in used) == sum(bought)
    charged = [each for each in used if each.user]
    assert {each.state for each in charged} == {"ok", "repeat"}
    assert sum(each.cost_nanos for each in charged) * 2 == sum(bought)
    [paid] = {(each.job, each.tasks, each.wall_ns) for each in used if not each.user}
    assert paid == ("repeats-j", 0, 0)
