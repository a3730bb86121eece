"""Work whose data has a label: it runs where the label allows, and nowhere else."""

from dataclasses import replace

import pytest
from support.pure.broker import spec
from support.pure.town import dear_and_cheap

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.adverts import OBJECTS_TAG
from federation.messages.messages import Dropped, RejectJob, Tasks
from federation.objects.labels import UNLABELLED, read_label
from federation.objects.references import has_references, with_head
from federation.reasons import Reason
from gateway.ledger.db.jobs.records import JobOpenedRecord
from gateway.scheduler.model import events
from gateway.scheduler.model.intake import client_event
from gateway.scheduler.model.stored_terms import stored_terms
from policies.placement.asks import Wishes

BOOK, CURVE = (b"\x02" + each * 32 for each in (b"b", b"c"))
AT_LONDON = read_label(["site:london"]).named("object book")


@pytest.fixture
def town():
    """A dear small site, London, and a cheap large one, Paris; objects may go to both."""
    found = dear_and_cheap()
    for site in found.sites.values():
        site.exchange.moves.fetches = True
        site.exchange.moves.why_ours_stay = lambda: ""
        site.join(2, **{OBJECTS_TAG: True})
    found.now_s += 1.0
    found.show()
    found.deliver()
    return found


def label(site, **labels):
    """Let objects of a site have labels, by digest."""

    def labels_of(_scope, digests):
        return [
            labels[name]
            for name, digest in (("book", BOOK), ("curve", CURVE))
            if (digest in digests and name in labels)
        ]

    site.broker.labels_of = labels_of


def said(town, kind):
    return [each for _, _, each in town.said if isinstance(each, kind)]


def dropped_by(site):
    return [each for each in site.told if isinstance(each, Dropped)]


def finish(town, tasks, client=1):
    london = town.sites["london"]
    town.run(lambda: len(london.answers(client)) == tasks)


def test_a_call_with_a_labelled_object_stays_where_the_label_allows(town):
    london = town.sites["london"]
    label(london, book=AT_LONDON)
    london.submit(50, objects=[BOOK])
    finish(town, 50)
    assert not said(town, deals.Forward)
    london.submit(50, "plain", client=2, objects=[CURVE])
    town.deliver()
    assert said(town, deals.AskQuote)


def test_the_label_goes_with_the_question_and_binds_the_seller(town):
    london, paris = town.sites["london"], town.sites["paris"]
    label(london, book=read_label(["not-site:rome"]))
    london.submit(50, objects=[BOOK])
    town.deliver()
    assert said(town, deals.AskQuote)[0].wishes["label"] == ["not-site:rome"]
    [sale] = paris.exchange.sales.sales.values()
    assert paris.exchange.reach.terms(sale.spec).label.words == ("not-site:rome",)
    assert "rome" in paris.exchange.reach.terms(sale.spec).forbidden_sites


def test_slots_that_were_bought_before_a_label_get_none_of_its_calls(town):
    london = town.sites["london"]
    label(london, book=AT_LONDON)
    london.do(events.ClientJoined(1, "ann"))
    london.do(events.JobOpened(1, "j", spec()))
    london.do(events.TasksArrived(1, "j", 0, [b"x"] * 50))
    town.deliver()
    town.run(lambda: said(town, deals.Forward))
    job = london.broker.jobs["j"]
    before = len(said(town, deals.Forward))
    calls = [with_head(b"x", [BOOK])] * 50
    london.do(events.TasksArrived(1, "j", 50, calls, (BOOK,)))
    assert job.spec.wishes.label.words == ("site:london",)
    finish(town, 100)
    sent = [call for each in said(town, deals.Forward)[before:] for call in each.arguments]
    assert not any(map(has_references, sent))


def test_no_labelled_data_goes_to_a_site_that_knows_no_labels(town):
    london = town.sites["london"]
    shown = town.sites["paris"].exchange.show
    town.sites["paris"].exchange.show = lambda *given: replace(
        shown(*given), pools=tuple(replace(each, labels=False) for each in shown(*given).pools)
    )
    town.now_s += 1.0
    town.show()
    label(london, book=read_label(["not-site:rome"]).named("object book"))
    london.submit(4, objects=[BOOK], wishes=Wishes(forbidden_sites=frozenset({"london"})))
    town.deliver()
    assert not said(town, deals.AskQuote)
    terms = london.exchange.reach.terms(london.broker.jobs["j"].spec)
    market = london.exchange.market
    [paris] = [each for each in market.candidates if each.key[0] == "paris"]
    refusal = market.verdicts(terms)[paris.number]
    assert refusal.reason == Reason.OUTSIDE_LABEL
    assert refusal.text == (
        "is of an older version, which knows no labels of data: object book may not lie at rome"
    )


def test_calls_of_two_labels_without_a_common_place_are_refused_with_both_named(town):
    london = town.sites["london"]
    label(london, book=AT_LONDON, curve=read_label(["site:paris"]).named("object curve"))
    london.submit(3, objects=[BOOK, CURVE])
    [dropped] = dropped_by(london)
    assert dropped.failure == "residency"
    assert "object book may lie only at london" in dropped.reason
    assert "object curve may lie only at paris" in dropped.reason
    assert not said(town, deals.AskQuote)


def test_calls_whose_label_leaves_no_site_of_their_users_are_refused(town):
    london = town.sites["london"]
    label(london, book=AT_LONDON)
    london.submit(3, objects=[BOOK], wishes=Wishes(allowed_sites=frozenset({"paris"})))
    [dropped] = dropped_by(london)
    assert dropped.failure == "residency"
    assert "object book may lie only at london" in dropped.reason


def test_no_seller_reads_labelled_data_for_a_site_to_which_its_results_may_not_go(town):
    """By the label; by its own rules the buyer would not ask."""
    london, paris = town.sites["london"], town.sites["paris"]
    label(london, book=read_label(["site:paris"]).named("object book"))
    london.submit(4, objects=[BOOK])
    town.deliver()
    [declined] = said(town, deals.Decline)
    assert declined.code == Reason.OUTSIDE_LABEL
    assert "may not go to london from here" in declined.reason
    assert not paris.exchange.sales.sales


def test_a_gateway_opens_no_job_whose_results_and_output_may_not_come_to_it(town):
    london = town.sites["london"]
    london.exchange.reach.why_not_here = lambda found: found.why_not("london", "UK")
    london.submit(4, wishes=Wishes(label=read_label(["EU"])))
    [rejected] = [each for each in london.told if isinstance(each, RejectJob)][:1]
    assert "the results and the output of its tasks come here" in rejected.reason
    assert "may lie only in EU, and site london is in UK" in rejected.reason
    label(london, book=read_label(["EU"]).named("object book"))
    london.submit(4, "later", objects=[BOOK])
    [dropped] = dropped_by(london)
    assert "object book may lie only in EU, and site london is in UK" in dropped.reason


def test_jobs_with_and_without_labels_are_planned_in_one_turn(town):
    """Plans of one moment were compared by their labels, which have no order."""
    london = town.sites["london"]
    labels = read_label(["not-site:rome"]), AT_LONDON, UNLABELLED
    for client, each in enumerate(labels, 1):
        london.submit(50, f"j{client}", client=client, wishes=Wishes(label=each))
    town.run(lambda: all(len(london.answers(client)) == 50 for client in (1, 2, 3)))


def test_a_value_of_a_labelled_result_stays_where_the_label_allows(town):
    london = town.sites["london"]
    london.do(events.ClientJoined(1, "ann"))
    london.do(events.JobOpened(1, "j", spec()))
    london.do(events.TasksArrived(1, "j", 0, [b"x"] * 50, label=AT_LONDON))
    london.do(events.JobClosed(1, "j", 50))
    finish(town, 50)
    assert not said(town, deals.Forward)


def test_the_label_of_calls_is_read_and_a_wrong_one_ends_the_session():
    tasks = Tasks("j", 0, [b"x"], label=["site:london"])
    assert client_event(tasks, 1).label.words == ("site:london",)
    with pytest.raises(ProtocolError, match="the label of data is not valid"):
        client_event(replace(tasks, label=["site:"]), 1)


def test_calls_whose_objects_are_found_late_to_leave_no_place_end(town):
    """After a restart the labels came once the calls were queued: these ran with no label."""
    london = town.sites["london"]
    london.do(events.ClientJoined(1, "ann"), events.JobOpened(1, "j", spec()))
    calls = [with_head(b"x", [BOOK, CURVE])] * 50
    london.do(events.TasksArrived(1, "j", 0, calls, (BOOK, CURVE)))
    job = london.broker.jobs["j"]
    waited = job.waiting
    assert waited
    paris = read_label(["site:paris"]).named("object curve")
    london.broker.narrow("j", [AT_LONDON, paris], (0, 50))
    london.do()
    dropped = dropped_by(london)
    assert {each.failure for each in dropped} == {"residency"}
    assert "object curve may lie only at paris" in dropped[0].reason
    assert sum(stop - first for each in dropped for first, stop in each.ranges) == waited
    assert job.waiting == 0
    assert not job.spec.wishes.label.is_nowhere


@pytest.mark.parametrize("is_late", [False, True])
def test_a_label_that_a_gateway_works_out_is_stored_with_the_terms_of_its_job(town, is_late):
    """Kept results and output are read with it once the job has left memory."""
    london = town.sites["london"]
    if not is_late:
        label(london, book=AT_LONDON)
    london.submit(4, objects=[BOOK], detached=True)
    if is_late:
        london.broker.narrow("j", [AT_LONDON], (0, 4))
        london.do()
    stored = [each for each in london.books if isinstance(each, JobOpenedRecord)]
    assert [stored_terms(each.spec)["wishes"].label.words for each in stored] == [
        (),
        ("site:london",),
    ]
    assert stored_terms(stored[-1].spec)["tags"][OBJECTS_TAG]


@pytest.mark.parametrize(
    ("host", "pools", "may"),
    [
        ("EU", ["EU", "US"], True),
        ("US", ["EU", "US"], False),
        ("US", ["EU"], False),
        ("", ["EU", "US"], False),  # of an older version
        ("", ["EU", "EU"], True),
        ("", [], False),
    ],
)
def test_labelled_data_goes_back_to_a_site_whose_gateway_is_where_it_may_lie(
    town, host, pools, may
):
    """It could go to a US gateway with one pool in the EU."""
    reach = town.sites["paris"].exchange.reach
    shown = town.sites["london"].exchange.show(town.now_s)
    reach._market.advert = lambda _site: replace(
        shown,
        jurisdiction=host,
        pools=tuple(replace(shown.pools[0], jurisdiction=each) for each in pools),
    )
    assert (reach.why_not_at(read_label(["EU"]), "london") == "") == may


def test_a_site_shows_the_jurisdiction_of_its_gateway(town):
    london = town.sites["london"]
    london.exchange.reach.jurisdiction = lambda: "UK"
    assert london.exchange.show(town.now_s).jurisdiction == "UK"
