"""Three sites on hosts of their own, real processes over tls+tcp; the network between parts."""

import time
from collections import Counter
from itertools import permutations

import pytest
from support.members import LEASE_S, MemberSite, federate
from support.processes import wait_until
from support.programs.namespaces import Network, Refused

# Minutes: `make stress` runs them.
pytestmark = [pytest.mark.stress, pytest.mark.real]

TASKS = 300
SITES = {"london": (1, "4 USD"), "paris": (2, "0.04 USD"), "berlin": (2, "0.4 USD")}
LONGER_THAN_THE_LEASE_S = LEASE_S * 1.5 + 2
PATIENCE_S = 60.0


def square_slowly(number):
    time.sleep(0.05)
    return number * number


@pytest.fixture
def network():
    try:
        made = Network(list(SITES))
    except Refused as error:
        pytest.skip(f"no network namespaces with firewall rules: {error}")
    yield made
    made.close()


@pytest.fixture
def members(network, tmp_path):
    """A dear small site, a cheap one, and one between, of which each reaches each."""
    made = {}
    try:
        for name, (slots, price) in SITES.items():
            host, inside = network.addresses[name], network.inside(name)
            made[name] = MemberSite(tmp_path, name, slots, price, host=host, inside=inside)
        federate(*made.values())
        yield made
    finally:
        network.heal()
        for member in made.values():
            member.gateway.stop()


class Work:
    """Futures of a client, and how often each was resolved."""

    def __init__(self, view):
        self.resolved = Counter()
        self.futures = [view.submit(square_slowly, number) for number in range(TASKS)]
        for number, future in enumerate(self.futures):
            future.add_done_callback(lambda _, number=number: self.resolved.update([number]))

    @property
    def done(self):
        return sum(future.done() for future in self.futures)

    def check(self):
        """Each future has its own result, and got it once."""
        results = [future.result(timeout=PATIENCE_S) for future in self.futures]
        assert results == [number * number for number in range(TASKS)]
        wait_until(lambda: len(self.resolved) == TASKS, "all to be called back")
        assert set(self.resolved.values()) == {1}


def states(member):
    return {row["site"]: row["state"] for row in member.ask("sites")}


def books(member, side, other):
    """The purchases or sales of a site with another: tasks and money by state."""
    rows = [row for row in member.ask("deals") if (row["side"], row["site"]) == (side, other.name)]
    return {row["state"]: (row["tasks"], row["cost_nanos"]) for row in rows}


def agree(members):
    """Whether each pair of books is the same, apart from deliveries that were late and are void."""
    for buyer, seller in permutations(members.values(), 2):
        bought, sold = books(buyer, "buy", seller), books(seller, "sell", buyer)
        if not {*bought, *sold} <= {"settled", "void"} or bought.get("settled") != sold.get(
            "settled"
        ):
            return False
    return True


def charged(member):
    """For how many tasks the users of a site are billed, wherever they ran."""
    found = member.ask("report", kind="usage", by=["pool"])
    return sum(row[found["columns"].index("tasks")] for row in found["rows"])


def paid(members, name):
    """For how many tasks a site has paid others."""
    others = [member for member in members.values() if member.name != name]
    return sum(books(members[name], "buy", each).get("settled", (0, 0))[0] for each in others)


def check_books(members):
    """After healing: both sides of each deal say the same, and each task was charged once."""
    wait_until(lambda: agree(members), "the books to agree", PATIENCE_S)
    assert charged(members["london"]) == paid(members, "london") == TASKS


def isolate(network, name):
    for other in set(SITES) - {name}:
        network.cut(name, other)
        network.cut(other, name)


def outlast_the_lease(cut_at_s):
    time.sleep(max(0.0, cut_at_s + LONGER_THAN_THE_LEASE_S - time.monotonic()))


def test_what_is_cut_from_its_seller_is_done_elsewhere_and_booked_once(network, members):
    london, paris, berlin = members.values()
    with london.client() as client:
        work = Work(client.options(sites=["paris", "berlin"]))
        wait_until(lambda: work.done > 40, "some of it to be done")
        network.cut("london", "paris")
        network.cut("paris", "london")
        cut_at_s = time.monotonic()
        work.check()
        outlast_the_lease(cut_at_s)
        assert network.has_dropped("london")
        assert network.has_dropped("paris")
        network.heal()
        check_books(members)
        work.check()
    assert books(london, "buy", paris)["post"][0] < TASKS
    assert "post" in books(london, "buy", berlin)


def test_who_reaches_both_sides_of_a_cut_works_with_both_and_both_stay_members(network, members):
    london, paris, berlin = members.values()
    network.cut("london", "paris")
    network.cut("paris", "london")
    cut_at_s = time.monotonic()
    with berlin.client() as client:
        for name in ("london", "paris"):
            view = client.options(sites=[name])
            assert view.submit(square_slowly, 12).result(timeout=PATIENCE_S) == 144
    outlast_the_lease(cut_at_s)
    # Probed through the third, neither buries the other.
    assert "gone" not in states(berlin).values()
    well = {"berlin": "here", "london": "up", "paris": "up"}
    wait_until(lambda: states(berlin) == well, "berlin to know that both are well")
    wait_until(lambda: states(london)["paris"] == "up", "london to hear of paris")
    wait_until(lambda: states(paris)["london"] == "up", "paris to hear of london")


@pytest.mark.parametrize(
    ("sender", "receiver"),
    [
        pytest.param("london", "paris", id="the seller hears nothing"),
        pytest.param("paris", "london", id="the buyer hears nothing"),
    ],
)
def test_a_cut_one_way_doubles_nothing_and_what_may_run_nowhere_else_goes_on_after_it(
    network, members, sender, receiver
):
    with members["london"].client() as client:
        work = Work(client.options(sites=["paris"]))
        wait_until(lambda: work.done > 40, "some of it to be done")
        network.cut(sender, receiver)
        outlast_the_lease(time.monotonic())
        assert network.has_dropped(receiver)
        assert work.done < TASKS
        network.heal()
        work.check()
        check_books(members)


def test_a_site_cut_off_from_all_is_gone_and_takes_up_its_work_when_it_is_back(network, members):
    london, paris, berlin = members.values()
    with london.client() as client:
        work = Work(client.options(sites=["paris"]))
        wait_until(lambda: work.done > 40, "some of it to be done")
        isolate(network, "paris")
        cut_at_s = time.monotonic()
        missing = ((london, "paris"), (berlin, "paris"), (paris, "london"), (paris, "berlin"))
        for here, there in missing:
            wait_until(
                lambda here=here, there=there: states(here)[there] in ("suspect", "gone"),
                f"{here.name} to miss {there}",
            )
        wait_until(
            lambda: states(london)["berlin"] == states(berlin)["london"] == "up",
            "the others to know that each other is well",
        )
        outlast_the_lease(cut_at_s)
        wait_until(lambda: states(london)["paris"] == "gone", "paris to be given up")
        network.heal()
        work.check()
        check_books(members)
    for member in members.values():
        wait_until(
            lambda member=member: sorted(states(member).values()) == ["here", "up", "up"],
            f"{member.name} to see all",
        )


def test_the_pools_of_a_site_that_was_gone_are_back_with_it(network, members):
    """Of an idle one: it has nothing new to say of them."""
    london, paris, berlin = members.values()
    isolate(network, "paris")
    for member in (london, berlin):
        wait_until(
            lambda member=member: states(member)["paris"] == "gone", f"{member.name} to give it up"
        )
        assert "paris" not in {row["site"] for row in member.ask("pools")}
    network.heal()
    for member in (london, berlin):
        wait_until(
            lambda member=member: states(member)["paris"] == "up", f"{member.name} to see it"
        )
        assert "paris" in {row["site"] for row in member.ask("pools")}
    wait_until(lambda: states(paris)["london"] == "up", "paris to see london")
