"""One budget that many gateways spend from: never overrun by losses, doubled messages or kills."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.pure.slices import AMOUNT, BEGIN_S, SITES, SLICE, SliceTown, own_budget, slice_of

from federation.errors import ProtocolError
from federation.messages.slices import AskSlice, Slice
from federation.reasons import Reason
from gateway.contracts.slices.borrowing import ANSWER_S, IDLE_S, REFUSED_S, REST_S
from gateway.contracts.slices.lending import ACCOUNTS_MAX, NotLent
from gateway.ledger.db.budgets.records import SliceHeld, SliceLent
from policies.calendar.periods import UTC_ZONE, PeriodLength
from policies.costs.budgets import SLOT_TIME
from policies.parties import read_party

HOUR_S = 3_600.0


def message(**changes):
    """A holder's message that asks for a slice for the first time."""
    fields = {
        "budget": "risk", "account": 1, "life": 1, "number": 1, "unit": "USD", "span": "day",
        "zone": "Europe/London", "returned": "0", "spent": "0", "before": "0",
        "since_ms": round(own_budget().period_at(BEGIN_S).start_at_s * 1000), "held": "0",
        "want": "10", "least": "1",
    }  # fmt: skip
    return AskSlice(**(fields | changes))


def told(town, sender, asked):
    """The owner's answer to a holder."""
    town.mail.clear()
    town.owner.hear(sender, asked)
    found = [each for _, to, each in town.mail if to == sender]
    town.mail.clear()
    return found[-1] if found else None


@pytest.fixture
def town():
    made = SliceTown()
    made.mail.clear()
    return made


# --- an owner ------------------------------------------------------------------------------------


def test_a_holder_is_given_what_it_wants_and_once(town):
    first = told(town, "paris", message(want="25"))
    assert (first.granted, first.returned, first.lasts_s, first.code) == ("25", "0", 60.0, "")
    assert told(town, "paris", message(want="25")) is None, "it was asked before"
    again = told(town, "paris", message(want="25", number=2))
    assert again.granted == "25"
    assert town.owner.budget_account.room_nanos == AMOUNT - 25


def test_the_last_of_a_budget_is_not_all_for_who_asks_first(town):
    assert told(town, "paris", message(want="60")).granted == "30"
    assert told(town, "lyon", message(want="60")).granted == "15"
    assert told(town, "essex", message(want="60", least="16")).code == Reason.BUSY
    assert told(town, "essex", message(want="60", least="15", number=2)).granted == "15"
    nothing = told(town, "paris", message(want="60", number=2, least="31"))
    assert (nothing.granted, nothing.code, nothing.lasts_s) == ("30", Reason.BUSY, 60.0)
    amount = "0.00000006 USD"
    assert nothing.reason == (
        f"0 USD of {amount} is spent in 2023-11-14, {amount} is held by other sites"
    )
    told(town, "lyon", message(want="0", number=2, spent="15"))
    told(town, "essex", message(want="0", number=3, spent="15"))
    gone = told(town, "paris", message(want="60", number=3, spent="30"))
    assert (gone.code, gone.lasts_s) == (Reason.BUDGET_EXHAUSTED, 60.0)


def test_what_is_held_at_home_is_kept_for_who_asked_when_it_comes_back(town):
    town.owner.begin(10, 6)
    assert told(town, "paris", message(want="25", least="10")).code == Reason.BUSY
    for _ in range(3):
        town.owner.report(0, 0)
        town.owner.begin(10, 1)
    assert [each.left for each in town.owner.work] == [10] * 3, "our own work makes way"
    assert told(town, "paris", message(want="25", least="10", number=2)).granted == "25"
    town.now_s += 10.0
    town.owner.tick()
    assert town.owner.budget_account.room_nanos == AMOUNT - 25 - 30


def test_nothing_is_kept_for_long_for_who_does_not_ask_again(town):
    town.owner.begin(10, 6)
    told(town, "paris", message(want="25", least="10"))
    while town.owner.work:
        town.owner.report(0, 0)
    assert town.owner.budget_account.room_nanos == AMOUNT - 25
    town.now_s += 10.0
    town.owner.tick()
    assert town.owner.budget_account.room_nanos == AMOUNT


def test_what_a_silent_site_holds_counts_as_spent(town):
    town.owner.begin(AMOUNT - 20, 1)
    told(town, "paris", message(want="20", least="20"))
    town.owner.report(0, AMOUNT - 20)
    assert not town.owner.budget_account.is_exhausted(), "it may come back"
    town.now_s += 121.0
    town.owner.tick()
    assert town.owner.budget_account.is_exhausted()
    assert town.owner.budget_account.room_nanos == 0


@pytest.mark.parametrize(
    ("sender", "changes", "code", "text"),
    [
        ("rome", {}, Reason.NOT_ENTITLED, "no budget 'risk' of this site is shared with rome"),
        ("paris", {"budget": "x"}, Reason.NOT_ENTITLED, "no budget 'x' of this site"),
        (
            "paris",
            {"unit": "EUR"},
            Reason.BAD_REQUEST,
            "the budget is in USD, day, Europe/London at its owner",
        ),
        (
            "paris",
            {"span": "week"},
            Reason.BAD_REQUEST,
            "and in USD, week, Europe/London at the borrower",
        ),
        ("paris", {"zone": "UTC"}, Reason.BAD_REQUEST, "and in USD, day, UTC at the borrower"),
    ],
)
def test_who_may_have_nothing_is_told_why(town, sender, changes, code, text):
    answer = told(town, sender, message(**changes))
    assert (answer.granted, answer.lasts_s, answer.code) == ("0", 0.0, code)
    assert text in answer.reason
    assert town.owner.budget_account.room_nanos == AMOUNT


@pytest.mark.parametrize(
    "changes",
    [{"want": ""}, {"want": "-1"}, {"spent": "1.5"}, {"returned": "1e3"}, {"before": "9" * 39},
     {"least": "٣"}, {"held": "x"}],
)  # fmt: skip
def test_an_amount_that_is_none_breaks_the_protocol(town, changes):
    with pytest.raises(ProtocolError, match="an amount is not a number"):
        town.owner.hear("paris", message(**changes))
    assert not town.owner.lending.of("risk")


def test_nobody_gives_back_more_than_it_was_given(town):
    told(town, "paris", message(want="25"))
    assert told(town, "paris", message(want="0", number=2, returned="1000")).returned == "25"
    assert town.owner.budget_account.room_nanos == AMOUNT


def test_accounts_of_one_site_are_limited(town):
    for number in range(ACCOUNTS_MAX):
        assert told(town, "paris", message(account=number + 1, want="1")).code == ""
    assert told(town, "paris", message(account=99, want="1")).code == Reason.BAD_REQUEST
    assert told(town, "paris", message(account=1, number=2, want="1")).code == ""


def test_a_holder_that_is_not_trusted_any_more_keeps_nothing_that_it_did_not_spend(town):
    told(town, "paris", message(want="25"))
    town.owner.budget_account.budget = replace(own_budget(), sites=frozenset({"lyon"}))
    answer = told(town, "paris", message(want="25", number=2, spent="5"))
    assert (answer.granted, answer.lasts_s, answer.code) == ("25", 0.0, Reason.NOT_ENTITLED)
    told(town, "paris", message(want="0", number=3, spent="5", returned="20"))
    assert town.owner.budget_account.room_nanos == AMOUNT - 5


def test_what_a_lost_site_held_is_written_off_by_its_operator_alone(town):
    told(town, "paris", message(want="25", spent="0"))
    told(town, "paris", message(want="25", spent="7", number=2))
    lending = town.owner.lending
    with pytest.raises(NotLent, match="was last heard from 0 s ago"):
        lending.write_off("risk", "paris", town.now_s)
    for budget, site in (("risk", "lyon"), ("x", "paris")):
        with pytest.raises(NotLent, match="holds no slice"):
            lending.write_off(budget, site, town.now_s)
    town.now_s += 121.0
    before = town.owner.budget_account.room_nanos
    freed = lending.write_off("risk", "paris", town.now_s)
    town.owner.perform()
    assert town.owner.budget_account.room_nanos == before + freed == AMOUNT - 7
    town.owner.die(power=True)
    assert town.owner.budget_account.room_nanos == AMOUNT - 7
    # It comes back after all: it is told so, and what it has spent since counts.
    answer = told(town, "paris", message(want="0", spent="20", number=3))
    assert int(answer.granted) - int(answer.returned) < 20
    assert town.owner.budget_account.room_nanos == AMOUNT - 20


# --- a holder ------------------------------------------------------------------------------------


def test_a_slice_is_asked_for_when_work_waits_and_given_back_when_it_is_idle():
    town = SliceTown()
    paris = town.gateways["paris"]
    town.run(5.0)
    assert paris.budget_account.allotted_nanos == 0, "nobody wants anything"
    paris.begin(10, 1)
    town.run(1.0)
    assert paris.budget_account.allotted_nanos == SLICE
    paris.begin(10, 2)
    paris.report(0, 4)
    town.run(IDLE_S + 2.0)
    assert (paris.budget_account.allotted_nanos, paris.budget_account.held_nanos) == (14, 10), (
        "what runs is held"
    )
    assert town.owner.budget_account.room_nanos == AMOUNT - 14
    paris.report(0, 10)
    town.run(IDLE_S + 65.0)
    assert town.owner.budget_account.room_nanos == AMOUNT - 14


def test_whoever_can_not_reach_the_owner_begins_nothing_when_its_slice_has_lapsed():
    town = SliceTown()
    paris = town.gateways["paris"]
    paris.begin(10, 1)
    town.run(1.0)
    assert paris.budget_account.room_nanos == SLICE
    for _ in range(80):
        town.now_s += 1.0
        paris.begin(1, 1)  # it is in use, so that it is not given back
        while paris.work:
            paris.report(0, 0)
        paris.tick()
        town.mail.clear()  # the owner is out of reach
    assert (paris.budget_account.room_nanos, paris.budget_account.is_open) == (0, False)
    paris.begin(1, 5)
    assert not paris.work
    assert not paris.budget_account.is_exhausted()
    town.run(ANSWER_S + 1.0)
    assert paris.budget_account.is_open


def test_a_dead_holder_keeps_its_slice_from_everybody_until_it_is_heard():
    town = SliceTown()
    paris, lyon = town.gateways["paris"], town.gateways["lyon"]
    paris.begin(10, 1)
    town.run(1.0)
    paris.begin(5, 5)
    del town.gateways["paris"]
    for _ in range(40):
        lyon.begin(5, 9)
        town.run(0.5)
        while lyon.work:
            lyon.report(0, 5)
        town.now_s += 60.0
    assert town.by_period() == {"2023-11-14": AMOUNT - SLICE}
    town.gateways["paris"] = paris
    paris.die(power=True)
    town.run(IDLE_S + 65.0)
    assert town.owner.budget_account.room_nanos == SLICE


def test_what_a_holder_has_itself_is_no_reason_to_wait_for_more():
    """Else a task that takes more than is left in all would be waited with for ever."""
    town = SliceTown(owned=own_budget(amount_nanos=20))
    paris = town.gateways["paris"]
    paris.begin(12, 1)
    town.run(1.0)
    paris.begin(12, 1)
    paris.report(0, 9)
    for _ in range(8):
        paris.begin(12, 1)
        town.run(0.5)
    assert not paris.work
    assert paris.budget_account.is_exhausted(12)


def test_what_is_held_for_what_runs_at_a_holder_may_come_back():
    town = SliceTown(owned=own_budget(amount_nanos=20))
    paris = town.gateways["paris"]
    paris.begin(12, 1)
    town.run(1.0)
    paris.begin(12, 1)
    for _ in range(8):
        paris.begin(12, 1)
        town.run(0.5)
    assert len(paris.work) == 1
    assert not paris.budget_account.is_exhausted(12)


def test_a_small_task_is_paid_while_a_large_one_waits_for_more_than_is_left():
    town = SliceTown(owned=own_budget(amount_nanos=20))
    paris = town.gateways["paris"]
    for _ in range(4):
        paris.begin(21, 1)
        town.run(0.5)
    assert paris.budget_account.is_exhausted(21)
    assert not paris.budget_account.is_exhausted(20), "it may have what is left"
    for _ in range(4 * round(ANSWER_S)):
        paris.begin(21, 1)
        paris.begin(3, 1)
        town.run(0.5)
    assert paris.work


def test_who_has_less_than_a_task_takes_gives_it_back_for_others():
    """Two that waited for each other's part would wait for ever."""
    town = SliceTown(owned=own_budget(amount_nanos=30))
    holders = [town.gateways[name] for name in ("paris", "lyon")]
    for each in holders:
        each.begin(6, 1)
    town.run(5.0)
    assert sorted(each.budget_account.allotted_nanos for each in holders) == [14, 15]
    for _ in range(10):
        for each in holders:
            each.begin(16, 1)
        town.run(0.5)
    assert [len(each.work) for each in holders] in ([0, 1], [1, 0])


def test_who_can_begin_by_what_it_has_gets_nothing_that_is_kept_for_others(town):
    told(town, "paris", message(want="20"))
    town.owner.begin(40, 1)
    assert told(town, "lyon", message(want="20", least="10")).code == Reason.BUSY
    town.owner.report(0, 30)
    more = message(want="25", least="10", number=2)
    assert told(town, "paris", more).code == Reason.BUSY
    assert told(town, "lyon", message(want="20", least="10", number=2)).granted == "10"


def test_a_refusal_is_told_to_whoever_wants_to_spend_and_asked_again_later():
    town = SliceTown(owned=own_budget(sites=frozenset({"lyon"})))
    paris = town.gateways["paris"]
    paris.begin(10, 1)
    town.run(1.0)
    assert paris.budget_account.is_exhausted()
    assert "no budget 'risk' of this site is shared with paris" in paris.budget_account.objection()
    town.owner.budget_account.budget = own_budget()
    paris.begin(10, 1)
    town.run(REFUSED_S + 1.0)
    paris.begin(10, 1)
    town.run(1.0)
    assert not paris.budget_account.is_exhausted()
    assert paris.budget_account.allotted_nanos == SLICE


def test_what_is_exhausted_at_its_owner_is_so_here_until_the_period_ends():
    town = SliceTown()
    town.owner.begin(AMOUNT, 1)
    town.owner.report(0, AMOUNT)
    paris = town.gateways["paris"]
    paris.begin(10, 1)
    town.run(1.0)
    assert paris.budget_account.is_exhausted()
    assert (
        "london says: 0.00000006 USD of 0.00000006 USD is spent" in paris.budget_account.objection()
    )
    town.now_s = town.owner.budget_account.period.end_at_s + 1.0
    town.run(1.0)
    assert not paris.budget_account.is_exhausted()
    paris.begin(10, 1)
    town.run(1.0)
    assert paris.budget_account.allotted_nanos == SLICE


def test_answers_of_others_of_former_lives_and_such_as_can_not_be_change_nothing():
    town = SliceTown()
    paris = town.gateways["paris"]
    (kept,) = [each for each in paris.log if isinstance(each, SliceHeld)]
    answer = Slice("risk", kept.account, 1, 1, "25", "0", 60.0, 0, "60", "", "")
    for sender, each in (
        ("lyon", answer),
        ("london", replace(answer, life=7)),
        ("london", replace(answer, account=7)),
        ("london", replace(answer, number=1_000)),
    ):
        paris.borrowing.hear(sender, each)
        assert paris.budget_account.allotted_nanos == 0
    for wrong in ({"granted": "x"}, {"returned": ""}, {"lasts_s": -1.0}, {"lasts_s": 1e9}):
        with pytest.raises(ProtocolError):
            paris.borrowing.hear("london", replace(answer, **wrong))


@pytest.mark.parametrize(
    "changes",
    [
        {"party": read_party("user:ada")},
        {"zone": UTC_ZONE},
        {"span": PeriodLength.WEEK},
        {"unit": SLOT_TIME},
        {"name": "other"},
        {"owner": "rome"},
    ],
)
def test_an_account_that_is_configured_otherwise_is_told_of_once_more_and_closed(changes):
    town = SliceTown()
    paris = town.gateways["paris"]
    paris.begin(10, 1)
    town.run(1.0)
    paris.begin(5, 3)
    while paris.work:
        paris.report(0, 5)
    town.run(1.0)
    paris.budget = slice_of(**changes)
    paris.die(power=False)
    town.run(5.0)
    open_ = {each.account: each for each in paris.log if isinstance(each, SliceHeld)}
    former = min(open_)
    assert open_[former].is_closed
    if len(open_) > 1:
        assert not open_[max(open_)].is_closed
    shares = [each for each in town.owner.lending.of("risk") if each.site == "paris"]
    (share,) = [each for each in shares if each.account == former]
    assert (share.unspent, share.spent) == (0, 15)
    assert town.owner.budget_account.room_nanos == AMOUNT - 15


def test_what_is_kept_of_a_slice_is_what_was_given(town):
    told(town, "paris", message(want="25"))
    rows = [each for each in town.owner.log if isinstance(each, SliceLent)]
    assert (rows[-1].site, rows[-1].granted, rows[-1].unit) == ("paris", "25", "USD")
    assert town.owner.hard == len(town.owner.log), "before it was said"


# --- any interleaving ----------------------------------------------------------------------------

names = st.sampled_from(SITES)


class Sharing(RuleBasedStateMachine):
    """Any interleaving of work, messages that are lost, doubled or late, deaths and midnights."""

    @initialize(skews=st.tuples(*[st.floats(-2.0, 2.0)] * 4), is_for_good=st.booleans())
    def start(self, skews, is_for_good):
        span = None if is_for_good else PeriodLength.DAY
        self.town = SliceTown(skews, own_budget(span=span), slice_of(span=span))

    @rule(name=names, each=st.integers(1, 30), tasks=st.integers(1, 5), is_contract=st.booleans())
    def begin(self, name, each, tasks, is_contract):
        self.town.gateways[name].begin(each, tasks, is_contract=is_contract)

    @precondition(lambda self: any(each.work for each in self.town.gateways.values()))
    @rule(data=st.data(), nanos=st.integers(0, 30), is_last=st.booleans())
    def report(self, data, nanos, is_last):
        busy = [each for each in self.town.gateways.values() if each.work]
        gateway = data.draw(st.sampled_from(busy))
        at = data.draw(st.integers(0, len(gateway.work) - 1))
        gateway.report(at, nanos, is_last=is_last)

    @rule(each=st.integers(1, 20), rounds=st.integers(1, 6), is_reliable=st.booleans())
    def rush(self, each, rounds, is_reliable):
        """Each begins as much as it may, at once, and it uses all money held for it."""
        for _ in range(rounds):
            self.town.now_s += 0.3
            for gateway in self.town.gateways.values():
                gateway.begin(each, 5)
                gateway.tick()
            while self.town.mail and is_reliable:
                self.town.deliver()
        for gateway in self.town.gateways.values():
            while gateway.work:
                gateway.report(0, AMOUNT)

    @rule(seconds=st.sampled_from([0.1, 0.3, 2.5, 12.0, 40.0, 2 * HOUR_S, 23 * HOUR_S]))
    def pass_time(self, seconds):
        self.town.now_s += seconds
        for each in self.town.gateways.values():
            each.tick()

    @rule()
    def reach_midnight(self):
        """To the very end of the day: clocks that differ are in two periods."""
        period = own_budget().period_at(self.town.now_s)
        self.town.now_s = max(self.town.now_s, period.end_at_s - 1.0)
        for each in self.town.gateways.values():
            each.tick()

    @rule(name=names)
    def tick(self, name):
        self.town.gateways[name].tick()

    @precondition(lambda self: self.town.mail)
    @rule(data=st.data(), fate=st.sampled_from(["arrives"] * 6 + ["twice", "lost"]))
    def carry(self, data, fate):
        at = data.draw(st.integers(0, len(self.town.mail) - 1))
        if fate == "twice":
            self.town.mail.append(self.town.mail[at])
        if fate == "lost":
            del self.town.mail[at]
        else:
            self.town.deliver(at)

    @precondition(lambda self: self.town.mail)
    @rule()
    def carry_all(self):
        while self.town.mail:
            self.town.deliver()

    @rule(name=names, power=st.booleans())
    def die(self, name, power):
        self.town.gateways[name].die(power=power)

    @invariant()
    def no_period_is_overrun(self):
        for key, nanos in self.town.by_period().items() if hasattr(self, "town") else ():
            assert nanos <= AMOUNT, f"{key}: {nanos}"

    def teardown(self):
        """When faults stop, all unused money comes back, and the owner knows the spent amount."""
        if not hasattr(self, "town"):
            return
        town = self.town
        for each in town.gateways.values():
            while each.work:
                each.report(0, 0)
        town.run(REST_S + 2 * IDLE_S, step_s=5.0)
        key = getattr(town.owner.budget_account.period, "key", "ever")
        keys = {
            getattr(each.budget_account.period, "key", "ever") for each in town.gateways.values()
        }
        if keys == {key}:
            spent = town.by_period().get(key, 0)
            assert town.owner.budget_account.room_nanos == AMOUNT - spent, town.show()
        assert all(each.budget_account.held_nanos == 0 for each in town.gateways.values())


TestSharing = pytest.mark.thorough(Sharing.TestCase)
TestSharing.settings = settings(
    max_examples=150,
    stateful_step_count=60,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
