"""Objects that move between sites, without carriers (gateway.peering.object_transfers)."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from federation.clocks import UtcS
from federation.errors import FAILURES, ProtocolError
from federation.messages.deals import Deliver
from federation.messages.transferring import AskTickets, Receipts, Tickets
from federation.objects.labels import UNLABELLED, read_label
from federation.objects.left import left_value
from federation.signed.transfers import TransferReceipt, TransferTicket
from gateway.config.limits import ObjectRoom
from gateway.objects.bulk.carrier_process import PullOutcome
from gateway.objects.catalogue import ObjectCatalogue, ObjectKey
from gateway.peering.bulk_addresses import BulkAddresses
from gateway.peering.object_transfers import AHEAD, TICKETS_MAX, ObjectTransfers
from gateway.scheduler.model.effects import PullObjects
from gateway.scheduler.tasks.completion import RETRIED

A, B = b"\x02" + b"a" * 32, b"\x02" + b"b" * 32
USER = "ann@london"
TICKET_S = 900.0


class Keeper:
    def __init__(self):
        self.catalogue = ObjectCatalogue(ObjectRoom(1 << 30))
        self.label_of = lambda _job: UNLABELLED

    async def settled(self):
        await trio.lowlevel.checkpoint()

    def hold(self, job, scope, digests):
        self.catalogue.hold(job, USER, scope, digests)

    def hold_result(self, job, scope, digest):
        held = self.catalogue.find(scope, digest)
        if held is None:
            return "it is not here any more"
        label = self.label_of(job)
        return self.catalogue.put_result(held.key, held.size, USER, job, UtcS(0.0), label)


class World:
    """Paris, which fetches from London; objects come when `go` is set."""

    address = "tls+tcp://paris:1"  # of its carrier
    federation = "f" * 32  # of its signer

    def __init__(self):
        self.now_s = 1.0
        self.keeper, self.go = Keeper(), trio.Event()
        self.go.set()
        self.asked, self.sent, self.came, self.later = [], [], [], []
        self.refused, self.pulled, self.signed, self.said = [], [], 0, []
        self.given_up = []
        self.booked, self.is_paid, self.free, self.short = [], False, [], ""
        self.restarted = trio.Event()
        self.jobs = {"j": self._job("j"), "other": self._job("other")}
        sales = SimpleNamespace(
            sales={("london", "c"): SimpleNamespace(pool="p", job="j", is_live=True)},
            objects_came=lambda _buyer, _contract, why: self.came.append(why),
        )
        purchase = SimpleNamespace(site="london", is_live=True, job="j")
        purchases = SimpleNamespace(
            purchases={"c": purchase},
            pledge=lambda *_: self.short,
            give_up=lambda *what: self.given_up.append(what),
        )
        wishes = SimpleNamespace(jurisdictions=None)
        server = SimpleNamespace(
            config=SimpleNamespace(name="paris", pools=[], host_jurisdiction="EU"),
            exchange=SimpleNamespace(
                sales=sales,
                purchases=purchases,
                settled_ms=lambda _side, _site: 0,
                moved=self.moved,
            ),
            broker=SimpleNamespace(
                jobs=self.jobs, entitling=SimpleNamespace(wishes_of=lambda _spec: wishes)
            ),
            act=lambda _events: None,
            flush=lambda: None,
        )
        self.port = self.advert = "tls+tcp://london:1"
        addresses = BulkAddresses(
            lambda site: self.advert if site == "london" else "", lambda _: ()
        )
        self.transfers = ObjectTransfers(
            *(self, server, self.keeper, self, self, addresses, lambda: UtcS(self.now_s)),
            self.free.append,
            self.said.append,
        )

    def _job(self, name):
        labelled = SimpleNamespace(label=UNLABELLED)
        spec = SimpleNamespace(user=USER, scope="risk", results="auto", path=(), wishes=labelled)
        return SimpleNamespace(id=name, spec=spec)

    # as the router
    def carry(self, site, _side, message):
        self.sent.append((site, message))
        if isinstance(message, AskTickets):
            self.asked.append(len(message.digests))
            raws = [b"%d " % int(self.now_s + TICKET_S) + each for each in message.digests]
            answer = Tickets(message.request, self.port, raws, [""] * len(raws))
            self.transfers.hear(site, answer)

    def hear_later(self, site, delivery):
        self.later.append((site, delivery))

    # as the exchange
    def moved(self, fact, proof, _utc_s):
        self.booked.append((fact, proof))
        return self.is_paid

    def refuse_later(self, site, delivery, why):
        self.refused.append((site, delivery, why))

    # as the signer
    def open_given(self, raw):
        return replace(self.open_ticket("paris", raw, 0.0), to="paris")

    def open_receipt(self, site, raw):
        moved_bytes = int(raw.split(b" ")[1])
        return TransferReceipt("ab" * 16, "paris", site, A, moved_bytes, 1_000)

    def open_ticket(self, site, raw, _utc_s):
        until, digest = raw.split(b" ", 1)
        times = UtcS(0.0), UtcS(float(until))
        return TransferTicket("ab" * 16, "f", site, "paris", digest, 100, "risk", "", "c", *times)

    def ticket(self, _ticket):
        self.signed += 1
        return b"ticket"

    def receipt(self, _receipt):
        return b"receipt"

    # as the carrier
    listens = True

    async def ready(self):
        await self.restarted.wait()
        self.address = World.address
        return True

    async def keep_keys(self):
        await trio.lowlevel.checkpoint()

    async def pull(self, scope, digest, size, user, job, sources, *, is_input=True):
        self.pulled.append(digest)
        await self.go.wait()
        [source] = sources
        if float(source.ticket.split(b" ")[0]) <= self.now_s:
            return PullOutcome("site london refuses: the ticket has expired")
        catalogue = self.keeper.catalogue
        put = catalogue.put_input if is_input else catalogue.put_result
        put(ObjectKey(scope, digest), size, user, job, UtcS(0.0))
        return PullOutcome("", (("london", size),))

    async def expired(self, *_args, **_how):
        await trio.lowlevel.checkpoint()
        return PullOutcome("site london refuses: ticket 1 has expired")

    def put(self, digest, job):
        self.keeper.catalogue.put_input(ObjectKey("risk", digest), 100, USER, job, UtcS(0.0))

    def order(self, *digests):
        self.transfers.pull(PullObjects("london", "c", "j", USER, "risk", digests))


async def until(condition):
    with trio.fail_after(30):
        while not condition():
            await trio.lowlevel.checkpoint()


@pytest.fixture
async def world(nursery):
    found = World()
    nursery.start_soon(found.transfers.run)
    return found


@pytest.mark.trio
async def test_objects_that_are_here_are_held_while_others_come(world):
    world.put(A, "other")
    world.go = trio.Event()
    world.order(A, B)
    world.keeper.catalogue.sweep({"j"}, UtcS(1.0))  # at once: before anything else runs
    await until(lambda: world.pulled)
    world.keeper.catalogue.sweep({"j"}, UtcS(1.0))
    world.go.set()
    await until(lambda: world.came)
    assert (world.came, world.pulled) == ([""], [B])
    assert world.keeper.catalogue.find("risk", A).jobs == {"j"}


@pytest.mark.trio
async def test_what_was_lost_meanwhile_is_fetched_again(world):
    world.put(A, "j")
    world.go = trio.Event()
    world.order(A, B)
    await until(lambda: world.pulled)
    world.keeper.catalogue.clear(UtcS(1.0))
    world.go.set()
    await until(lambda: world.came)
    assert (world.came, world.pulled) == ([""], [B, A])


def delivery(first, *values):
    return Deliver("c", 1, first, list(values), [], [], 1, 1, 1, 1, 1, [], left=True)


@pytest.mark.trio
async def test_deliveries_that_wait_for_objects_are_bounded_by_bytes(world, monkeypatch):
    monkeypatch.setattr("gateway.peering.object_transfers.WAITING_BYTES_MAX", 10_000)
    world.go = trio.Event()
    for first in range(3):
        world.transfers.fetch_results("london", delivery(first, left_value(A, 100), bytes(6_000)))
    await until(lambda: len(world.refused) == 2)
    for number, (site, message, text) in enumerate(world.refused, 1):
        assert (site, message.first, message.failures) == ("london", number, [])
        assert "of deliveries of site london wait for objects already" in text
    world.go.set()
    await until(lambda: len(world.later) == 1)
    world.transfers.fetch_results("london", delivery(9, left_value(B, 100), bytes(6_000)))
    await until(lambda: len(world.later) == 2)
    assert [message.failures for _, message in world.later] == [[], []]


def fails(world, monkeypatch, reason, *, is_ours=False):
    async def pull(*_args, **_how):
        await trio.lowlevel.checkpoint()
        return PullOutcome(reason, (), is_ours)

    monkeypatch.setattr(world, "pull", pull)


@pytest.mark.trio
async def test_a_delivery_whose_results_its_seller_does_not_give_is_refused(world, monkeypatch):
    """Its buyer would pay for results that nobody has."""
    fails(world, monkeypatch, "london can't be reached")
    world.transfers.fetch_results("london", delivery(0, left_value(A, 100), b"\x80x"))
    await until(lambda: world.refused)
    [(site, message, why)] = world.refused
    assert (site, message.first, world.later) == ("london", 0, [])
    assert "is not held: a result can't come to paris: object" in why
    assert world.given_up == [("london", "c", A, "send")]  # the money of its way is free again
    assert why.endswith("london can't be reached")


@pytest.mark.trio
@pytest.mark.parametrize("value", [left_value(A, 99), left_value(A, 100)[:-1]])
async def test_a_delivery_that_names_its_results_wrongly_is_refused(world, value):
    """Their size is another than the object's, or they can't be read."""
    world.transfers.fetch_results("london", delivery(0, value))
    await until(lambda: world.refused)
    assert not world.later


@pytest.mark.trio
async def test_no_address_is_dialled_that_comes_with_tickets_alone(world, monkeypatch):
    """A partner could have all ports of this network tried."""
    monkeypatch.setattr("gateway.peering.object_transfers.ADVERT_S", 0.0)
    world.advert = "tls+tcp://london:2"
    world.order(A)
    await until(lambda: world.came)
    assert "names another bulk port with its tickets than in its advert" in world.came[0]
    assert not world.pulled


@pytest.mark.trio
async def test_a_port_that_has_just_opened_waits_for_its_advert(world):
    world.advert = "tls+tcp://london:2"
    world.order(A)
    await until(lambda: world.asked)
    world.advert = "tls+tcp://london:1"
    await until(lambda: world.came)
    assert (world.came, world.pulled) == ([""], [A])


@pytest.mark.trio
async def test_a_carrier_that_listens_elsewhere_now_is_dialled_there(world, monkeypatch):
    """That of the other site has started again: the results would be refused, and made again."""
    pull = world.pull

    async def only_there(*args, **how):
        *_, [source] = args
        if source.address == "tls+tcp://london:1":
            world.port = world.advert = "tls+tcp://london:2"
            return PullOutcome("london can't be reached")
        return await pull(*args, **how)

    monkeypatch.setattr(world, "pull", only_there)
    world.transfers.fetch_results("london", delivery(0, left_value(A, 100)))
    await until(lambda: world.later or world.refused)
    assert (world.refused, world.asked) == ([], [1, 1])


@pytest.mark.trio
async def test_results_for_a_job_that_takes_none_are_refused(world):
    world.jobs["j"].spec.results = ""
    world.transfers.fetch_results("london", delivery(0, left_value(A, 100)))
    await until(lambda: world.refused)
    assert not world.pulled


@pytest.mark.trio
async def test_a_task_whose_result_is_too_dear_to_fetch_does_not_run_and_pay_again(world):
    world.short = "its way costs 1 USD, and of the money of the contract 0.5 USD is left"
    world.transfers._server.exchange.sales.sales.clear()
    world.transfers.fetch_results("london", delivery(0, left_value(A, 100), b"\x80x"))
    await until(lambda: world.later)
    [(_, message)] = world.later
    [[at, kind, text, _]] = message.failures
    assert (at, kind, world.refused) == (0, "result", [])
    assert kind in FAILURES
    assert kind not in (*RETRIED, "object")
    assert text.endswith(world.short)


@pytest.mark.trio
async def test_a_seller_is_not_refused_for_what_this_site_lacks(world, monkeypatch):
    fails(world, monkeypatch, "there is no room for 100 bytes", is_ours=True)
    world.transfers.fetch_results("london", delivery(0, left_value(A, 100)))
    await until(lambda: world.later)
    [(_, message)] = world.later
    [[at, kind, text, _]] = message.failures
    assert (at, kind, world.refused) == (0, "object", [])
    assert text.endswith("there is no room for 100 bytes")


def tickets(world, site):
    return [each for to, each in world.sent if to == site and isinstance(each, Tickets)]


@pytest.mark.trio
async def test_a_seller_is_paid_for_a_result_that_is_here_and_cannot_be_held_for_its_job(world):
    """It was told that it does not give the result."""
    key = ObjectKey("risk", A)
    world.keeper.catalogue.put(key, 100, USER, 1, UtcS(0.0), read_label(["US"]))
    world.keeper.label_of = lambda _job: read_label(["EU"]).named("the job")
    world.transfers.fetch_results("london", delivery(0, left_value(A, 100)))
    await until(lambda: world.later or world.refused)
    assert not world.refused
    [(_, found)] = world.later
    [[_, kind, text, _]] = found.failures
    assert kind == "object"
    assert "a result can't be held at paris" in text
    assert "and the job may lie only in EU" in text


@pytest.mark.trio
async def test_a_long_question_for_tickets_keeps_no_other_site_waiting(world):
    sales = world.transfers._server.exchange.sales.sales
    sales["rome", "c"] = sales["london", "c"]
    world.put(A, "j")
    for site, number in (("london", 500), ("rome", 2)):
        world.transfers.hear(site, AskTickets(1, "c", [A] * number))
    assert world.signed == 0  # none in the turn of the loop that handles messages
    await until(lambda: tickets(world, "rome"))
    assert world.signed < 40
    [answer] = tickets(world, "rome")
    assert (answer.tickets, answer.reasons) == ([b"ticket"] * 2, [""] * 2)
    await until(lambda: tickets(world, "london"))
    [answer] = tickets(world, "london")
    assert (len(answer.tickets), len(answer.reasons)) == (500, 500)


@pytest.mark.trio
async def test_a_question_waits_while_the_carrier_starts_again(world):
    """By an answer that there is no bulk port the results were lost, and their tasks ran again."""
    world.put(A, "j")
    world.address = ""
    world.transfers.hear("london", AskTickets(1, "c", [A]))
    await trio.testing.wait_all_tasks_blocked()
    assert not tickets(world, "london")
    world.restarted.set()
    await until(lambda: tickets(world, "london"))
    [answer] = tickets(world, "london")
    assert (answer.reasons, answer.address) == ([""], World.address)


@pytest.mark.trio
async def test_a_ticket_that_is_refused_has_its_reason_in_its_place(world):
    world.put(A, "j")
    world.transfers.hear("london", AskTickets(1, "c", [B, A]))
    await until(lambda: tickets(world, "london"))
    [answer] = tickets(world, "london")
    assert answer.tickets == [b"", b"ticket"]
    assert "does not hold the object" in answer.reasons[0]


@pytest.mark.trio
async def test_tickets_are_asked_for_as_transfers_begin(world):
    world.go = trio.Event()
    world.order(*(b"\x02" + number.to_bytes(32, "big") for number in range(2 * AHEAD + 5)))
    await until(lambda: len(world.pulled) == AHEAD)
    assert world.asked == [AHEAD]
    world.go.set()
    await until(lambda: world.came)
    assert world.came == [""]
    assert sum(world.asked) == len(world.pulled) == 2 * AHEAD + 5


@pytest.mark.trio
async def test_a_ticket_that_has_expired_in_the_queue_is_asked_for_again(world):
    world.go = trio.Event()
    world.order(A)
    await until(lambda: world.pulled)
    world.now_s += TICKET_S + 1.0
    world.go.set()
    await until(lambda: world.came)
    assert (world.came, world.asked, world.pulled) == ([""], [1, 1], [A, A])


@pytest.mark.trio
async def test_a_site_whose_tickets_expire_at_once_is_not_asked_for_ever(world, monkeypatch):
    monkeypatch.setattr(world, "pull", world.expired)
    world.order(A)
    await until(lambda: world.came)
    assert "tickets have expired before its transfer began" in world.came[0]
    assert len(world.asked) == TICKETS_MAX + 1


def bind(world, *words):
    for job in world.jobs.values():
        job.spec.wishes = SimpleNamespace(label=read_label(words).named("object book"))


@pytest.mark.trio
async def test_the_receiver_takes_no_object_that_its_jobs_label_forbids_here(world):
    bind(world, "US")
    world.order(A)
    await until(lambda: world.came)
    assert "object book may lie only in US, and site paris is in EU" in world.came[0]
    assert not world.pulled


def hold(world, *words, jurisdiction="EU", labels=True):
    """Hold an object with a label, and let London be in a jurisdiction."""
    catalogue = world.keeper.catalogue
    label = read_label(words)
    catalogue.put_input(ObjectKey("risk", A), 100, USER, "j", UtcS(0.0), label)
    pool = SimpleNamespace(pool="local", jurisdiction=jurisdiction, labels=labels)
    exchange = world.transfers._server.exchange
    exchange.purchases.purchases["c"].pool = "local"
    exchange.market = SimpleNamespace(advert=lambda _site: SimpleNamespace(pools=[pool]))


async def refusal(world):
    world.transfers.hear("london", AskTickets(1, "c", [A]))
    await until(lambda: tickets(world, "london"))
    return tickets(world, "london")[0].reasons


@pytest.mark.trio
async def test_the_holder_gives_no_ticket_to_a_site_that_the_label_forbids(world):
    hold(world, "EU", jurisdiction="US")
    [why] = await refusal(world)
    assert "may lie only in EU, and site london is in US" in why
    assert not world.signed


@pytest.mark.trio
async def test_the_holder_gives_no_ticket_to_a_site_that_knows_no_labels(world):
    hold(world, "EU", labels=False)
    [why] = await refusal(world)
    assert "site london knows no labels of data" in why


@pytest.mark.trio
async def test_the_holder_gives_a_ticket_where_the_label_allows_it(world):
    hold(world, "EU")
    assert await refusal(world) == [""]


@pytest.mark.trio
@pytest.mark.parametrize("is_paid", [False, True])
async def test_what_came_is_signed_for_and_booked_or_is_free(world, is_paid):
    world.is_paid = is_paid
    world.order(A)
    await until(lambda: world.came)
    [(fact, proof)] = world.booked
    assert world.given_up == []
    assert (fact.source, fact.to, fact.contract, fact.user) == ("london", "paris", "c", USER)
    assert fact.moved_bytes == 100
    assert proof.ticket.endswith(A)
    # A contract sends its own proofs; free moves are told at once, with their ticket.
    told = [message for _, message in world.sent if isinstance(message, Receipts)]
    assert told == ([] if is_paid else [Receipts([proof.receipt], [proof.ticket])])
    assert world.free == ([] if is_paid else [fact])


@pytest.mark.trio
async def test_a_receipt_comes_with_our_ticket_and_claims_no_more_than_that(world):
    ticket = b"900 " + A  # of 100 bytes, to Paris
    world.transfers.hear("paris", Receipts([b"receipt 90"], [ticket]))
    [(fact, proof)] = world.booked
    assert (fact.moved_bytes, proof.ticket) == (90, ticket)
    world.transfers.hear("paris", Receipts([b"receipt 101"], [ticket]))
    world.transfers.hear("rome", Receipts([b"receipt 90"], [ticket]))  # another site's ticket
    assert len(world.said) == 2
    assert all("does not fit" in each for each in world.said)
    world.transfers.hear("paris", Receipts([b"receipt 90"]))  # of an older version
    with pytest.raises(ProtocolError, match="over 100"):
        world.transfers.hear("paris", Receipts([b"receipt 90"] * 101, [ticket] * 101))
    assert len(world.booked) == 1


@pytest.mark.trio
async def test_a_receipt_that_is_booked_is_not_checked_again(world, monkeypatch):
    """500 receipts took the loop for a fifth of a second, each time that they came."""
    opened, open_receipt = [], world.open_receipt
    monkeypatch.setattr(
        world, "open_receipt", lambda *what: opened.append(what) or open_receipt(*what)
    )
    again = Receipts([b"receipt 90"], [b"900 " + A])
    for is_paid, times in ((False, 1), (True, 2), (True, 2)):  # a contract may come after it
        world.is_paid = is_paid
        world.transfers.hear("paris", again)
        assert len(opened) == times
    world.transfers.hear("rome", again)
    assert len(opened) == 3
    monkeypatch.setattr("gateway.peering.object_transfers.BOOKED_KEPT", 1)
    world.transfers.hear("paris", Receipts([b"receipt 80"], [b"900 " + A]))
    world.transfers.hear("paris", again)
    assert len(opened) == 5
    assert len(world.transfers._booked) == 1


@pytest.mark.trio
async def test_a_receipt_that_can_not_be_taken_leaves_the_others_and_the_session(
    world, monkeypatch
):
    """Proofs come again with each bill: one that is refused closed each session."""
    refusals = [ProtocolError("a receipt is dated in a period whose books are closed"), None]

    def moved(fact, *_):
        if error := refusals.pop(0):
            raise error
        world.booked.append(fact)

    monkeypatch.setattr(world.transfers._server.exchange, "moved", moved)
    ticket = b"900 " + A
    world.transfers.hear("paris", Receipts([b"receipt 90", b"receipt 80"], [ticket, ticket]))
    [fact] = world.booked
    assert fact.moved_bytes == 80
    [line] = world.said
    assert line.startswith("1 receipt of site paris for objects not taken, and the moves not paid:")
    assert line.endswith("books are closed")


@pytest.mark.trio
async def test_there_is_no_ticket_where_the_money_is_short(world):
    world.put(A, "j")
    world.short = "its way costs 1 USD, and of the money of the contract 0.5 USD is left"
    world.transfers.hear("london", AskTickets(1, "c", [A]))
    await until(lambda: world.sent)
    [(site, found)] = world.sent
    assert (site, found.tickets, found.reasons) == ("london", [b""], [world.short])
