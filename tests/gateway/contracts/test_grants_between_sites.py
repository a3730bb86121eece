"""Two and three sites: a job carries its user's permission, and results open for the permitted."""

from dataclasses import replace

import pytest
from support.pure.town import CHEAP, DEAR, RULES, UTC_S, Town, dear_and_cheap, spec

from federation.errors import ProtocolError
from federation.messages import deals
from federation.reasons import Reason
from gateway.config.pools import PoolFacts
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import PeerSide
from policies.placement.asks import Wishes


@pytest.fixture
def town():
    """A dear small site, and a cheap large one, that know each other."""
    return dear_and_cheap()


@pytest.fixture
def chain():
    """London knows paris, and not tokyo, where alone there is a GPU; paris knows both."""
    town = Town()
    london = town.build("london", DEAR, 1)
    town.build("paris", CHEAP, 1)
    town.build("tokyo", 2 * CHEAP, 4, gpu=True)
    london.permits.strangers.add("tokyo")
    town.show(hidden={("tokyo", "london")})
    return town


def said(town, kind, sender=None):
    return [each for who, _, each in town.said if isinstance(each, kind) and sender in (None, who)]


def question(town, **changes):
    """London's next question to Paris; it has not arrived."""
    town.sites["london"].submit(1000, **changes)
    [(_, _, ask)] = [each for each in town.said if isinstance(each[2], deals.AskQuote)]
    town.mail.clear()
    return ask


def answer(town, ask, utc_s=UTC_S):
    """The answer of Paris to it."""
    town.sites["paris"].exchange.sales.names._contracts.clear()  # as if it was never asked
    before = len(town.said)
    town.sites["paris"].kernel.hear("london", PeerSide.BUYER, ask, town.now_s, utc_s)
    town.sites["paris"].do()
    [(_, _, message)] = town.said[before:]
    return message


def refusal(town, ask, utc_s=UTC_S):
    message = answer(town, ask, utc_s)
    assert isinstance(message, deals.Decline)
    assert not town.sites["paris"].exchange.sales.sales
    return message.code


# --- the grant of a question ---------------------------------------------------------------------


def test_a_question_with_its_grant_is_quoted(town):
    assert isinstance(answer(town, question(town)), deals.Quote)


def test_a_question_without_a_grant_is_refused(town):
    assert refusal(town, replace(question(town), grant=b"")) == "altered"


def test_a_forged_grant_is_refused(town):
    ask = question(town)
    forged = town.sites["paris"].signer.issue(
        replace(town.sites["paris"].signer.check("london", ask.grant, UTC_S).grant_terms)
    )
    assert refusal(town, replace(ask, grant=forged)) == "wrong-site"


def test_an_expired_grant_is_refused(town):
    assert refusal(town, question(town), UTC_S + 90_000) == "expired"


def test_the_grant_of_another_job_is_refused(town):
    ask = question(town)
    for changes in ({"project": "fx"}, {"user": "bob"}, {"function": b"g" * 32}):
        other = replace(ask, **changes)
        town.sites["paris"].signer._shown.clear()
        assert refusal(town, other) == "wrong-purpose"


def test_a_grant_is_good_for_one_contract(town):
    ask = question(town)
    assert refusal(town, replace(ask, contract="london-1-99")) == "wrong-purpose"
    assert refusal(town, ask) == "replayed"


def test_a_grant_for_another_site_is_refused(town):
    town.build("lyon", CHEAP, 4)
    ask = question(town)
    lyon = town.sites["lyon"]
    lyon.kernel.hear("london", PeerSide.BUYER, ask, town.now_s, UTC_S)
    lyon.do()
    assert [each.code for each in said(town, deals.Decline, "lyon")] == ["wrong-destination"]


def test_a_job_that_came_by_another_way_than_its_grant_is_refused(town):
    town.build("lyon", CHEAP, 4)
    assert refusal(town, replace(question(town), path=["lyon", "london"])) == "wrong-path"


def test_more_than_was_granted_is_refused(town):
    assert refusal(town, replace(question(town), hops_left=3)) == "widened"


def test_where_a_job_may_go_goes_with_its_grant(town):
    paris = town.sites["paris"]
    paris.exchange._facts["local"] = PoolFacts(jurisdiction="EU")
    town.pass_time(0.1)
    town.show()
    wishes = Wishes(jurisdictions=frozenset({"EU"}), forbidden_sites=frozenset({"oslo"}))
    ask = question(town, wishes=wishes)
    grant_terms = paris.signer.check("london", ask.grant, UTC_S).grant_terms
    assert grant_terms.regions == {"EU"}
    assert grant_terms.sites == {"london", "paris"}
    paris.signer._shown.clear()
    assert refusal(town, replace(ask, wishes={})) == "widened"


# --- what it costs -------------------------------------------------------------------------------


def test_a_contract_never_costs_more_than_its_grant_and_the_job_no_more_than_its_limit(
    town, monkeypatch
):
    monkeypatch.setattr(
        "gateway.contracts.model.purchase.SLACK_S", 1e6
    )  # ten seconds pass at once here
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(100)
    town.run(lambda: len(london.answers()) == 100, task_s=10.0)
    london.results.clear()
    town.pass_time(4.0)
    before = sum(row[1] for row in london.postings("buy").values())
    london.submit(3000, job="k", max_cost_nanos=10**7, currency="USD")
    town.run(lambda: "k" not in london.broker.jobs, task_s=10.0)
    town.pass_time(4.0)
    costs = sum(row[1] for row in london.postings("buy").values())
    assert 0 < costs - before <= 10**7
    for contract in {key[0] for key in paris.postings("sell")}:
        costs = sum(row[1] for key, row in paris.postings("sell").items() if key[0] == contract)
        granted = next(
            paris_ask.grant
            for paris_ask in said(town, deals.AskQuote)
            if paris_ask.contract == contract
        )
        paris.signer._shown.clear()
        grant_terms = paris.signer.check("london", granted, UTC_S).grant_terms
        assert grant_terms.max_cost_nanos is None or costs <= grant_terms.max_cost_nanos <= 10**7


def test_a_delivery_beyond_the_grant_is_refused(town):
    london = town.sites["london"]
    london.submit(20_000)
    town.run(lambda: said(town, deals.Forward))
    forward = said(town, deals.Forward)[0]
    purchase = london.exchange.purchases.purchases[forward.contract]
    purchase.max_cost_nanos = 5
    dear = deals.Deliver(
        *(forward.contract, forward.epoch, forward.first, [b"r"], [], [], 10**13, 0, 0, 6, 0, [])
    )
    with pytest.raises(ProtocolError, match="more than the grant allows"):
        london.kernel.hear("paris", PeerSide.SELLER, dear, town.now_s, UTC_S)


def test_a_grant_that_expires_ends_its_contract_and_the_rest_goes_on_under_another(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20_000)
    town.run(lambda: len(london.answers()) > 1000)
    first = set(london.exchange.purchases.purchases)
    paris.kernel.tick(town.now_s, UTC_S + 100_000)
    paris.do()
    town.deliver()
    assert "expired" in {each.code for each in said(town, deals.Decline, "paris")}
    assert "paris" not in london.exchange.purchases.site_backoff.sites
    town.run(lambda: len(london.answers()) == 20_000)
    assert {each.contract for each in said(town, deals.Forward)} - first


# --- whose results are opened --------------------------------------------------------------------


def test_results_say_which_sites_they_came_through(chain):
    london = chain.sites["london"]
    london.submit(300, tags={"gpu": True})
    chain.run(lambda: len(london.answers()) == 300)
    assert {tuple(each.sites) for each in london.results[1]} == {("paris", "tokyo")}


@pytest.mark.parametrize("are_wanted", [True, False])
def test_output_comes_home_from_wherever_a_task_ran(chain, are_wanted):
    for site in chain.sites.values():
        site.says = f"from {site.name}"
    london = chain.sites["london"]
    london.submit(300, tags={"gpu": True}, prints=are_wanted)
    chain.run(lambda: len(london.answers()) == 300)
    assert sorted(london.output) == [(task, 2, "from tokyo") for task in range(300)]
    assert not chain.sites["paris"].output
    assert not chain.sites["tokyo"].output
    told = [text for each in london.results[1] for _, text in each.prints]
    assert told == (["from tokyo"] * 300 if are_wanted else [])


def test_our_own_results_came_through_nobody():
    town = Town()
    london = town.build("london", DEAR, 1)
    london.submit(10)
    town.run(lambda: len(london.answers()) == 10)
    assert {tuple(each.sites) for each in london.results[1]} == {()}


def test_work_goes_to_no_site_whose_results_are_not_accepted(town):
    london = town.sites["london"]
    london.permits.unread.add("paris")
    london.submit(1000)
    town.run(lambda: len(london.answers()) == 1000)
    assert not said(town, deals.AskQuote)
    decision = london.exchange.deciding.decide(spec(), 1000, UTC_S)
    assert {refused.reason for _, refused in decision.refused} == {Reason.RESULTS_NOT_TRUSTED}


def test_nobody_passes_work_on_to_a_site_whose_results_its_origin_does_not_accept(chain):
    london = chain.sites["london"]
    london.permits.unread.add("tokyo")
    london.submit(300, tags={"gpu": True})
    chain.deliver()
    chain.pass_time(1.0)
    assert said(chain, deals.AskQuote, "london")
    assert not said(chain, deals.AskQuote, "paris")
    assert not london.answers()


def test_results_that_are_not_accepted_any_more_are_neither_paid_nor_unpickled(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20_000)
    town.run(lambda: len(london.answers()) > 1000)
    town.deliver()
    london.permits.unread.add("paris")
    london.results.clear()
    before = len(london.postings("buy"))
    [(worker, order)] = [(w, each) for w, work in paris.at_work.items() for each in work][:1]
    boom = [[0, "error", "Traceback: boom", b"a pickle"]]
    at = order.assignment, order.first
    paris.do(events.Reported(worker, *at, [b"", b"a pickle"], boom, [], 10, 10))
    paris.at_work.clear()
    town.deliver()
    assert len(london.postings("buy")) == before
    town.pass_time(3 * RULES.lease_s)
    assert not any(part.sites == ["paris"] for part in london.results[1])
    assert any("accepts none from there" in text for _, text in london.broker.jobs["j"].notes)
    rows = [row for row in paris.postings("sell").values() if row[2] == "void"]
    assert rows, "the seller knows that it is not paid"
    town.run(lambda: london.broker.jobs.get("j") is None)  # at home


def test_failures_that_are_not_accepted_any_more_come_as_text(town):
    london, paris = town.sites["london"], town.sites["paris"]
    london.submit(20_000)
    town.run(lambda: len(london.answers()) > 1000)
    town.deliver()
    london.permits.unread.add("paris")
    london.results.clear()
    [(worker, order)] = [(w, each) for w, work in paris.at_work.items() for each in work][:1]
    boom = [[0, "error", "Traceback: boom", b"a pickle"]]
    paris.do(events.Reported(worker, order.assignment, order.first, [b""], boom, [], 10, 10))
    paris.at_work.clear()
    town.deliver()
    found = [part for part in london.results[1] if part.sites == ["paris"]]
    assert [each for part in found for each in part.failures] == [
        [0, "error", "Traceback: boom", b""]
    ]
    assert not any(value for part in found for value in part.values)


@pytest.mark.parametrize("sites", [["london"], ["a"] * 9, [""], ["x\n"]])
def test_a_way_that_results_can_not_have_come_is_refused(town, sites):
    london = town.sites["london"]
    london.submit(20_000)
    town.run(lambda: said(town, deals.Forward))
    forward = said(town, deals.Forward)[0]
    posing = deals.Deliver(
        *(
            forward.contract,
            forward.epoch,
            forward.first,
            [b"r"],
            [],
            [],
            0,
            0,
            0,
            0,
            int(UTC_S * 1000),
            sites,
        )
    )
    with pytest.raises(ProtocolError, match="path of the results"):
        london.kernel.hear("paris", PeerSide.SELLER, posing, town.now_s, UTC_S)
