"""A buyer's reactions to its sellers' messages, one by one, and to missing ones."""

from dataclasses import asdict

import pytest
from support.pure.town import DEAR, RULES, UTC_S, Town, dear_and_cheap

from federation.errors import ProtocolError
from federation.messages import deals
from federation.messages.contracts import ContractPhase
from federation.messages.messages import Answer, Assign, NeedFunction, Recall
from federation.reasons import Reason
from federation.words import duration_text
from gateway.contracts.buying.purchases import STOPPING_LEASES
from gateway.ledger.db import records
from gateway.ledger.db.contracts.records import ContractRow
from gateway.scheduler.model import events
from gateway.scheduler.model.effects import SendFunction
from gateway.scheduler.model.matching import BUNDLE_TASKS_MAX
from policies.costs.budgets import Budget
from policies.parties import read_party
from policies.placement.asks import Wishes

ABROAD = Wishes(allowed_sites=frozenset({"paris"}))
G = b"g" * 32


class Buyer:
    """London, whose job j goes to Paris; London's messages are in `said` and go nowhere."""

    def __init__(self, after=deals.Forward, job="j", **changes):
        """Let things go on until London says a message of a kind."""
        self.town = dear_and_cheap()
        self.site = self.town.sites["london"]
        self.purchases = self.site.exchange.purchases
        self.buy(job, after, **changes)

    def buy(self, job, after=deals.Forward, **changes):
        before = len(self.town.said)
        self.site.submit(4, job, **({"wishes": ABROAD} | changes))
        self.town.pass_time(
            5.0, until=lambda: [e for *_, e in self.town.said[before:] if isinstance(e, after)]
        )
        self.town.mail.clear()
        self.town.said.clear()
        [found] = [e for e in self.purchases.purchases.values() if e.job == job]
        return found

    @property
    def purchase(self):
        return next(iter(self.purchases.purchases.values()))

    @property
    def said(self):
        return [each for *_, each in self.town.said]

    @property
    def notes(self):
        return [text for _, text in self.site.broker.jobs["j"].notes]

    def ended_as(self):
        return [e.state for e in self.site.books if isinstance(e, records.ContractEnded)]

    def hear(self, *messages):
        for each in messages:
            self.purchases.hear("paris", each, self.town.now_s, UTC_S + self.town.now_s)
            self.site.do()

    def tick(self, seconds):
        self.town.now_s += seconds
        self.purchases.tick(self.town.now_s, UTC_S + self.town.now_s)
        self.site.do()

    def granted(self, *contracts):
        """Those of these contracts whose leases London renews now."""
        self.town.said.clear()
        names = [each.contract for each in contracts or [self.purchase]]
        self.hear(deals.Renew(7, names))
        [granted] = [each for each in self.said if isinstance(each, deals.Granted)]
        assert granted.stamp == 7
        return granted.contracts

    def finish(self):
        """All tasks that are out come back, and nothing is submitted any more."""
        broker = self.site.broker
        for each in list(broker.workers[self.purchase.handle].assignments.values()):
            ranges = [list(pair) for pair in each.left]
            self.hear(deals.GivenBack(self.purchase.contract, each.id, ranges))


# --- before a contract is open -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "message", "match"),
    [
        (deals.AskQuote, lambda c: deals.Held(c, 5.0), "the hold was not requested"),
        (deals.AskQuote, deals.Committed, "the commit was not requested"),
        (deals.AskQuote, deals.Closed, "closed before the commit"),
        (deals.Hold, deals.Committed, "the commit was not requested"),
        (deals.Hold, deals.Closed, "closed before the commit"),
        (deals.Commit, lambda c: deals.Held(c, 5.0), "the hold was not requested"),
    ],
)
def test_a_step_that_was_not_asked_for_is_refused(after, message, match):
    buyer = Buyer(after)
    with pytest.raises(ProtocolError, match=match):
        buyer.hear(message(buyer.purchase.contract))


def test_a_seller_may_close_what_it_has_not_confirmed():
    """It may have opened and ended the contract, and its answer to the commit is lost."""
    buyer = Buyer(deals.Commit)
    buyer.hear(deals.Closed(buyer.purchase.contract))
    assert (buyer.ended_as(), buyer.purchases.purchases) == (["settled"], {})


@pytest.mark.parametrize(
    ("after", "is_renewed"), [(deals.Hold, False), (deals.Commit, True), (deals.Forward, True)]
)
def test_a_lease_is_renewed_from_the_commit_on(after, is_renewed):
    buyer = Buyer(after)
    assert buyer.granted() == [buyer.purchase.contract] * is_renewed


@pytest.mark.parametrize(("after", "is_closed"), [(deals.Hold, False), (deals.Commit, True)])
@pytest.mark.parametrize("why", ["silence", "approval"])
def test_a_contract_that_may_be_open_there_is_closed_when_it_is_given_up(after, is_closed, why):
    buyer = Buyer(after)
    contract = buyer.purchase.contract
    if why == "silence":
        buyer.tick(2 * RULES.hold_s + 1.0)
        rest = buyer.purchases.site_backoff.sites["paris"]
        assert rest.why == "did not answer in time"
    else:
        now_s = buyer.town.now_s
        buyer.purchases.approval_ended("paris", "it is approved no more", now_s, UTC_S + now_s)
        buyer.site.do()
    assert buyer.said == [deals.CloseContract(contract)] * is_closed
    assert (buyer.ended_as(), buyer.purchases.purchases) == (["settled"] * is_closed, {})


def test_a_seller_has_twice_the_time_of_a_hold_to_answer():
    buyer = Buyer(deals.Hold)
    buyer.town.now_s += 100.0
    buyer.purchase.asked_at_s = buyer.town.now_s
    buyer.tick(2 * RULES.hold_s - 1.0)
    assert buyer.purchases.purchases


@pytest.mark.parametrize(
    ("site", "after", "is_dropped"),
    [
        ("paris", deals.Hold, True),
        ("paris", deals.Commit, False),
        ("paris", deals.Forward, False),
        ("rome", deals.Hold, False),
    ],
)
def test_a_site_that_can_t_be_reached_loses_what_is_not_committed(site, after, is_dropped):
    buyer = Buyer(after)
    buyer.purchases.unreachable(site, UTC_S + buyer.town.now_s, "no route")
    assert (not buyer.purchases.purchases) is is_dropped


def test_contracts_elsewhere_do_not_matter_when_a_site_can_t_be_reached():
    buyer = Buyer()
    buyer.purchase.site = "rome"
    second = buyer.buy("k", deals.Hold)
    buyer.purchases.unreachable("paris", UTC_S + buyer.town.now_s, "no route")
    assert second.contract not in buyer.purchases.purchases


def test_what_is_opened_is_booked_with_the_rules_of_then():
    buyer = Buyer(deals.Hold)
    buyer.site.broker.charging.rules = 7
    buyer.hear(deals.Held(buyer.purchase.contract, 5.0))
    [opened] = [e for e in buyer.site.books if isinstance(e, records.ContractOpened)]
    assert opened.rules == 7


@pytest.mark.parametrize(("after", "is_live"), [(deals.Commit, False), (deals.Forward, True)])
def test_a_contract_is_live_once_it_is_confirmed(after, is_live):
    buyer = Buyer(after)
    assert buyer.purchases.live("j") == [buyer.purchase] * is_live
    sent = ("london", "paris", b"f" * 32)
    assert (sent in buyer.town.functions) is is_live
    assert buyer.purchase.earmark is None, "nobody has a budget"


# --- leases --------------------------------------------------------------------------------------


def test_a_lease_is_renewed_beside_one_that_is_not():
    buyer = Buyer()
    first, second = buyer.purchase, buyer.buy("k")
    first.is_void = True
    assert buyer.granted(first, second) == [second.contract]


@pytest.mark.parametrize("share", [1.0, 1.1])
def test_a_seller_that_answers_no_recall_keeps_its_lease_for_one_more(share):
    buyer = Buyer()
    buyer.town.now_s += 100.0
    [assignment] = buyer.site.broker.workers[buyer.purchase.handle].assignments
    recall = Recall(assignment, 0, 4, False)
    for since_s in (0.0, 1.0):  # the first one counts
        buyer.purchases.ordered(buyer.purchase.handle, recall, buyer.town.now_s + since_s)
    buyer.town.now_s += share * buyer.purchase.lease_s
    assert buyer.granted() == [buyer.purchase.contract] * (share == 1.0)


@pytest.mark.parametrize("share", [1.0, 1.1])
def test_a_seller_that_stops_no_task_keeps_its_lease_for_so_long_after_the_first(share):
    buyer = Buyer()
    buyer.town.now_s += 100.0
    purchase = buyer.purchase
    [assignment] = buyer.site.broker.workers[purchase.handle].assignments
    most_s = STOPPING_LEASES * purchase.lease_s
    for task, at_s in ((0, 0.0), (1, most_s)):
        recall = Recall(assignment, task, task + 1, True)
        buyer.purchases.ordered(purchase.handle, recall, buyer.town.now_s + at_s)
    purchase.asked_back_at_s = None  # it answers, that it has nothing to give back
    buyer.town.now_s += share * most_s
    assert buyer.granted() == [purchase.contract] * (share == 1.0)


def test_a_task_that_was_stopped_is_not_waited_for():
    buyer = Buyer()
    purchase = buyer.purchase
    [assignment] = buyer.site.broker.workers[purchase.handle].assignments
    buyer.purchases.ordered(purchase.handle, Recall(assignment, 0, 4, True), buyer.town.now_s)
    buyer.finish()
    buyer.town.now_s += 3 * STOPPING_LEASES * purchase.lease_s
    assert buyer.granted() == [purchase.contract]
    assert purchase.stopping == {}


def test_contracts_whose_leases_have_ended_lapse_in_one_turn():
    buyer = Buyer()
    both = [buyer.purchase, buyer.buy("k")]
    for each in both:
        each.is_void = True
    buyer.tick(3 * RULES.lease_s)
    assert [each.phase for each in both] == [ContractPhase.LAPSED] * 2


def test_a_seller_that_lets_a_lease_run_out_is_in_back_off():
    buyer = Buyer()
    buyer.tick(3 * RULES.lease_s)
    assert buyer.purchases.site_backoff.sites["paris"].why == (
        "sent nothing for the length of a lease"
    )


def test_a_contract_is_idle_since_its_last_task_was_out():
    buyer = Buyer()
    purchase = buyer.purchase
    purchase.until_s = 1e9  # it is renewed
    buyer.tick(100.0)
    buyer.finish()
    buyer.tick(RULES.idle_s)
    assert purchase.phase is ContractPhase.OPEN
    buyer.tick(0.1)
    assert purchase.phase is ContractPhase.CLOSING


def test_a_task_that_was_out_between_two_turns_counts_as_well():
    buyer = Buyer()
    purchase = buyer.purchase
    purchase.until_s = 1e9  # it is renewed
    buyer.finish()
    buyer.tick(RULES.idle_s - 1.0)
    buyer.purchases.ordered(
        purchase.handle, Assign(9, "j", b"f" * 32, 0, [b"x"], None, False), buyer.town.now_s
    )
    buyer.tick(2.0)
    assert purchase.phase is ContractPhase.OPEN


def test_back_offs_that_are_over_are_forgotten():
    buyer = Buyer()
    backoff = buyer.purchases.site_backoff
    backoff.spare("rome", UTC_S + buyer.town.now_s, "no")
    buyer.tick(0.0)
    assert list(backoff.sites) == ["rome"]
    buyer.tick(1e6)
    assert "rome" not in backoff.sites


def test_a_recall_that_was_lost_with_a_session_is_not_waited_for():
    buyer = Buyer()
    purchase = buyer.purchase
    [assignment] = buyer.site.broker.workers[purchase.handle].assignments
    recall = Recall(assignment, 0, 4, False)
    buyer.purchases.ordered(purchase.handle, recall, buyer.town.now_s)
    buyer.hear(deals.Holding(purchase.contract, [[assignment, 0, 4]]))
    buyer.town.now_s += 2 * purchase.lease_s
    assert buyer.granted() == [purchase.contract]


@pytest.mark.parametrize("is_lapsed", [False, True])
def test_an_order_to_no_contract_that_is_live_is_nothing(is_lapsed):
    buyer = Buyer()
    handle = buyer.purchase.handle if is_lapsed else 999
    if is_lapsed:
        buyer.tick(3 * RULES.lease_s)
        buyer.town.said.clear()
    buyer.purchases.ordered(handle, Recall(1, 0, 4, False), buyer.town.now_s)
    buyer.site.do()
    assert buyer.said == []


def test_a_contract_that_lapsed_is_kept_for_late_bills_for_one_more_lease():
    buyer = Buyer()
    purchase = buyer.purchase
    lease_s, contracts = purchase.lease_s, buyer.purchases.purchases
    end_s = purchase.until_s
    for at_s, is_kept in ((end_s, True), (end_s + lease_s - 0.1, True), (end_s + lease_s, False)):
        buyer.tick(at_s - buyer.town.now_s)
        assert (purchase.contract in contracts) is is_kept
    assert buyer.ended_as() == ["lapsed"]


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "is_closing", "is_out", "state"),
    [
        ("lapsed", False, True, "lapsed"),
        (Reason.WINDOW_CLOSED, False, True, "ended"),
        (Reason.JOB_NOT_FOUND, False, True, "interrupted"),
        (Reason.JOB_NOT_FOUND, False, False, "interrupted"),
        (Reason.JOB_NOT_FOUND, True, True, "interrupted"),
        (Reason.JOB_NOT_FOUND, True, False, "settled"),
    ],
)
def test_how_a_contract_ended_that_its_seller_declines(code, is_closing, is_out, state):
    buyer = Buyer()
    purchase = buyer.purchase
    if not is_out:
        buyer.finish()
    if is_closing:
        purchase.phase = ContractPhase.CLOSING
    buyer.hear(deals.Decline(purchase.contract, code, "it is over"))
    assert purchase.phase is ContractPhase.LAPSED
    assert purchase.ended_as == state


def test_a_job_is_told_why_a_window_that_closed_ended_its_contract():
    buyer = Buyer()
    buyer.hear(deals.Decline(buyer.purchase.contract, Reason.WINDOW_CLOSED, "night begins"))
    assert "paris/local ended the contract: night begins" in buyer.notes


def test_a_contract_that_its_seller_closed_is_no_worker_any_more():
    buyer = Buyer()
    handle = buyer.purchase.handle
    buyer.finish()
    buyer.hear(deals.Closed(buyer.purchase.contract))
    assert handle not in buyer.site.broker.workers
    assert not buyer.purchases.purchases


def test_a_contract_that_its_seller_closed_with_tasks_out_is_kept_for_late_bills():
    buyer = Buyer()
    buyer.hear(deals.Closed(buyer.purchase.contract))
    assert (buyer.purchase.phase, buyer.ended_as()) == (ContractPhase.LAPSED, [])
    assert buyer.site.broker.jobs["j"].in_flight == 0


@pytest.mark.parametrize("state", ["closing", "void", "recovered"])
def test_what_is_idle_is_closed_once(state):
    buyer = Buyer()
    purchase = buyer.purchase
    buyer.finish()
    buyer.site.broker.jobs["j"].withdraw()
    buyer.town.said.clear()
    if state == "closing":
        assert buyer.purchases.give_back_idle()
        buyer.site.do()
        assert [type(each) for each in buyer.said] == [deals.CloseContract]
    purchase.is_void, purchase.is_recovered = state == "void", state == "recovered"
    assert buyer.purchases.give_back_idle() is False


def test_a_seller_whose_results_nobody_may_have_is_not_asked_again_at_once():
    buyer = Buyer()
    purchase = buyer.purchase
    spec = buyer.site.broker.jobs["j"].spec
    [epoch] = buyer.site.broker.workers[purchase.handle].assignments
    buyer.site.permits.unread.add("paris")
    at_ms = int((UTC_S + buyer.town.now_s) * 1000)
    buyer.hear(
        deals.Deliver(purchase.contract, epoch, 0, [b"r"], [], [], 0, 0, 0, 0, at_ms, []),
    )
    rest = buyer.purchases.site_backoff.rests(spec)["paris/local"]
    assert rest.why == "results came through paris, and london accepts none from there"
    assert purchase.is_void


def test_the_end_of_approval_ends_the_contracts_with_that_site_alone():
    buyer = Buyer()
    now_s = buyer.town.now_s
    buyer.purchases.approval_ended("rome", "it is approved no more", now_s, UTC_S + now_s)
    assert not buyer.purchase.is_void
    buyer.purchases.approval_ended("paris", "it is approved no more", now_s, UTC_S + now_s)
    buyer.site.do()
    assert buyer.purchase.is_void
    assert buyer.site.broker.workers[buyer.purchase.handle].draining
    assert deals.Abandon(buyer.purchase.contract) in buyer.said
    within = duration_text(buyer.purchase.until_s - now_s)
    assert buyer.notes[-1] == (
        "it is approved no more: 4 tasks at paris/local will run elsewhere within "
        f"{within}, when the lease has ended"
    )


def test_the_end_of_approval_ends_a_contract_at_once_if_nothing_is_out():
    buyer = Buyer()
    buyer.finish()
    now_s, notes = buyer.town.now_s, len(buyer.notes)
    buyer.purchases.approval_ended("paris", "it is approved no more", now_s, UTC_S + now_s)
    buyer.site.do()
    assert (buyer.purchase.phase, buyer.purchase.ended_as) == (ContractPhase.LAPSED, "ended")
    assert len(buyer.notes) == notes, "no task waits for a lease"


def test_a_place_whose_contract_ended_is_asked_again_at_once():
    buyer = Buyer()
    backoff, utc_s = buyer.purchases.site_backoff, UTC_S + buyer.town.now_s
    spec = buyer.site.broker.jobs["j"].spec
    backoff.refuse_full(spec, "paris", "local", utc_s, "is full")
    assert backoff.rests(spec)["paris/local"].until_s > utc_s
    buyer.finish()
    buyer.hear(deals.Closed(buyer.purchase.contract))
    assert backoff.rests(spec)["paris/local"].until_s < utc_s


def test_an_open_contract_makes_former_refusals_of_its_kind_forgotten():
    buyer = Buyer(deals.Commit)
    backoff, utc_s = buyer.purchases.site_backoff, UTC_S + buyer.town.now_s
    spec = buyer.site.broker.jobs["j"].spec
    backoff.refuse(spec, "paris", "local", utc_s, "no")
    buyer.hear(deals.Committed(buyer.purchase.contract))
    assert "paris/local" not in backoff.rests(spec)


# --- a seller's new session ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "said"),
    [("open", []), ("void", [deals.Abandon]), ("closing", [deals.CloseContract])],
)
def test_what_a_seller_may_not_have_heard_is_repeated_in_its_next_session(state, said):
    buyer = Buyer()
    purchase = buyer.purchase
    out = [[each, 0, 4] for each in buyer.site.broker.workers[purchase.handle].assignments]
    purchase.is_void = state == "void"
    if state == "closing":
        purchase.phase = ContractPhase.CLOSING
    buyer.hear(deals.Holding(purchase.contract, out))
    assert [type(each) for each in buyer.said] == said


def test_what_a_seller_lost_with_its_session_is_queued_again_and_what_was_sent_since_is_not():
    buyer = Buyer()
    purchase, job = buyer.purchase, buyer.site.broker.jobs["j"]
    [lost] = buyer.site.broker.workers[purchase.handle].assignments.values()
    purchase.doubted = lost.id
    buyer.hear(deals.Holding(purchase.contract, []))
    assert (job.waiting, job.in_flight, lost.recalls) == (4, 0, 0)
    purchase.doubted = 0
    buyer.site.do(events.PlacesChosen("j", {purchase.place: 4}))
    assert job.in_flight == 4
    buyer.hear(deals.Holding(purchase.contract, []))
    assert job.in_flight == 4


def test_the_tasks_of_a_contract_that_does_not_count_any_more_wait_for_its_lease():
    buyer = Buyer()
    purchase, job = buyer.purchase, buyer.site.broker.jobs["j"]
    purchase.is_void, purchase.doubted = True, max(job.assignments)
    buyer.hear(deals.Holding(purchase.contract, []))
    assert (job.waiting, job.in_flight) == (0, 4)


def test_tasks_under_a_contract_that_is_not_open_here_are_nothing():
    buyer = Buyer(deals.Commit)
    buyer.hear(deals.Holding(buyer.purchase.contract, [[1, 0, 4]]))
    assert buyer.said == []


def test_all_answers_that_were_lost_with_a_session_are_taken_as_given():
    buyer = Buyer()
    purchase, job = buyer.purchase, buyer.site.broker.jobs["j"]
    [assignment] = job.assignments.values()
    for request in (71, 72):
        buyer.site.do(events.CancelAsked(1, request, "j", ((0, 4),), False))
    assert assignment.recalls == 2
    purchase.doubted = assignment.id
    buyer.hear(deals.Holding(purchase.contract, [[assignment.id, 0, 4]]))
    answers = [each.request for each in buyer.site.told if isinstance(each, Answer)]
    assert (assignment.recalls, answers) == (0, [71, 72])


# --- after a restart -----------------------------------------------------------------------------


def restarted(budgets=(), **changes):
    """London, which reads in its books that its job's tasks may be at Paris, and the contract."""
    [row] = [e for e in Buyer().site.books if isinstance(e, records.ContractOpened)]
    site = Town().build("london", DEAR, 0, budgets)
    site.submit(4)
    purchases, job = site.exchange.purchases, site.broker.jobs["j"]
    for account in job.budget_accounts:
        account.held_nanos = account.room_nanos - 500
    purchases.recover(ContractRow(**asdict(row) | changes), [], 0.0, job)
    site.do()
    return site, purchases, purchases.purchases[row.contract]


def test_a_restored_contract_counts_for_its_kind_of_work_and_what_its_seller_has_is_in_flight():
    site, purchases, purchase = restarted()
    job = site.broker.jobs["j"]
    assert purchase.spec is job.spec
    purchases.hear("paris", deals.Holding(purchase.contract, [[5, 0, 3]]), 1.0, UTC_S)
    site.do()
    assert list(job.assignments[5].left) == [(0, 3)]


@pytest.mark.parametrize(
    "rows", [[[1 << 40, 0, 4]], [[5, 0, BUNDLE_TASKS_MAX + 1]], [[4, 0, 1], [5, 1, 1 << 30]]]
)
def test_a_seller_can_t_hold_what_was_never_forwarded(rows):
    _, purchases, purchase = restarted()
    with pytest.raises(ProtocolError, match="not forwarded"):
        purchases.hear("paris", deals.Holding(purchase.contract, rows), 1.0, UTC_S)


def test_a_restored_contract_has_its_limit_held_though_its_budget_has_less_room_now():
    budget = Budget("risk", read_party("project:risk"), "USD", 10**15, span=None)
    _, _, purchase = restarted([budget], max_cost_nanos=1_000)
    assert purchase.earmark is not None
    assert purchase.earmark.left_nanos == 1_000


# --- functions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seller", "digest", "is_sent"),
    [
        ("paris", b"f" * 32, True),
        ("paris", G, True),
        ("paris", b"h" * 32, False),
        ("rome", b"f" * 32, False),
    ],
)
def test_a_seller_gets_the_functions_of_its_contracts_alone(seller, digest, is_sent):
    buyer = Buyer()
    buyer.buy("k", function=G)
    sent, perform = [], buyer.site._perform
    buyer.site._perform = lambda effects: (sent.extend(effects), perform(effects))
    buyer.purchases.hear(seller, NeedFunction(digest), buyer.town.now_s, UTC_S)
    buyer.site.do()
    found = [each.digest for each in sent if isinstance(each, SendFunction)]
    assert found == [digest] * is_sent
