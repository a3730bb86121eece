"""The kernel's dispatch: events to the broker, effects for contracts to the exchange."""

from support.pure.town import Town, dear_and_cheap

from gateway.scheduler.model.effects import SendToClient, SendToWorker


def watch(site, monkeypatch):
    """The events that a site's broker handles, and the effects that its exchange takes, so far."""
    handled, taken = [], []
    handle, take = site.broker.handle, site.exchange.take
    monkeypatch.setattr(
        site.broker, "handle", lambda event, now_s: (handled.append(event), handle(event, now_s))[1]
    )
    monkeypatch.setattr(
        site.exchange, "take", lambda effect, *at: (taken.append(effect), take(effect, *at))[1]
    )
    return handled, taken


def test_on_a_lone_site_each_event_reaches_the_broker_once_and_no_effect_the_exchange(monkeypatch):
    town = Town()
    site = town.build("london", 1, slots=2)
    handled, taken = watch(site, monkeypatch)
    done = []
    do = site.do
    monkeypatch.setattr(site, "do", lambda *happened: (done.extend(happened), do(*happened)))
    site.submit(10)
    town.run(lambda: not site.broker.jobs)
    assert len(site.answers()) == 10
    assert handled == done
    assert taken == []


def test_what_is_for_a_contract_goes_to_the_exchange_and_nothing_else_does(monkeypatch):
    town = dear_and_cheap()
    london, paris = town.sites["london"], town.sites["paris"]
    (_, by_london), (_, by_paris) = watch(london, monkeypatch), watch(paris, monkeypatch)
    london.submit(40)
    town.run(lambda: len(london.answers()) == 40)
    bought = {each.handle for each in london.exchange.purchases.purchases.values()}
    sold = {each.handle for each in paris.exchange.sales.sales.values()}
    assert {each.worker for each in by_london if isinstance(each, SendToWorker)} == bought
    assert {each.client for each in by_paris if isinstance(each, SendToClient)} == sold
    assert bought
    assert sold
