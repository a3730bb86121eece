"""Calls of graphs whose inputs have come go to other sites, as far as these take such calls."""

import pickle
from dataclasses import replace

import pytest
from support.pure.town import CHEAP, DEAR, UTC_S, Town

from federation.messages import deals
from federation.objects.inputs import read_head, with_inputs
from gateway.scheduler.model import events

SOURCES, READERS = "sources", "readers"


def open_call(task):
    return with_inputs(pickle.dumps(task), [], [(SOURCES, task, task + 1)])


def join(site, slots, *, takes_inputs):
    site.workers += 1
    worker = events.WorkerJoined(site.workers, f"w{site.workers}", "local", slots, {}, "3.11")
    site.do(replace(worker, takes_inputs=takes_inputs))


def town_of(*, takes_inputs):
    """A dear small site and a cheap large one, whose workers open calls with inputs, or not."""
    town = Town()
    for name, price, slots in (("london", DEAR, 1), ("paris", CHEAP, 4)):
        join(town.build(name, price, 0), slots, takes_inputs=takes_inputs or name == "london")
    town.show()
    return town


def submit_graph(town, tasks):
    london = town.sites["london"]
    london.submit(tasks, SOURCES)
    london.do(
        events.JobOpened(1, READERS, london.broker.jobs[SOURCES].spec),
        events.TasksArrived(1, READERS, 0, [open_call(task) for task in range(tasks)], (), True),
        events.JobClosed(1, READERS, tasks),
    )


def asked(town):
    return [message for *_, message in town.said if isinstance(message, deals.AskQuote)]


def forwarded(town):
    found = (message for *_, message in town.said if isinstance(message, deals.Forward))
    return [call for message in found for call in message.arguments if call[:1] == b"\0"]


def finish(town, tasks):
    london = town.sites["london"]
    town.run(lambda: sum(len(each.values) for each in london.results[1]) == 2 * tasks)
    assert not london.broker.jobs


def test_calls_whose_inputs_have_come_go_to_another_site_with_them():
    town = town_of(takes_inputs=True)
    submit_graph(town, 60)
    finish(town, 60)
    heads = [read_head(call) for call in forwarded(town)]
    assert heads
    assert not any(head.rows for head in heads)
    assert all(head.inputs[0].startswith(b"r") for head in heads)
    assert any(each.inputs for each in asked(town))


def test_they_stay_where_another_site_takes_no_calls_with_inputs():
    town = town_of(takes_inputs=False)
    submit_graph(town, 60)
    finish(town, 60)
    assert any(isinstance(message, deals.Forward) for *_, message in town.said)
    assert not forwarded(town)
    assert not any(each.inputs for each in asked(town))


@pytest.mark.parametrize("takes_inputs", [False, True])
def test_a_pool_is_advertised_as_taking_them_if_all_its_workers_do(takes_inputs):
    paris = Town().build("paris", CHEAP, 0)
    join(paris, 2, takes_inputs=True)
    join(paris, 2, takes_inputs=takes_inputs)
    (pool,) = paris.exchange.show(UTC_S).pools
    assert pool.inputs is takes_inputs


def test_a_site_without_such_a_pool_is_not_asked_to_pass_them_on():
    town = town_of(takes_inputs=False)
    london = town.sites["london"]
    submit_graph(town, 1)
    spec = london.broker.jobs[READERS].spec
    reach = london.exchange.reach
    terms = reach.terms(spec)
    assert spec.has_inputs
    assert reach.relays(spec, terms) == []
    assert reach.relays(london.broker.jobs[SOURCES].spec, terms) == ["paris"]
