"""Objects between two real sites: calls that refer to them run where it is cheap."""

import os
import signal
import sys
import time

import cloudpickle
import numpy as np
import pytest
from support.members import MemberSite, dear_and_cheap, federated, run, settled
from support.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.real]
cloudpickle.register_pickle_by_value(sys.modules[__name__])
SIZE = 2_000_000  # numbers of 8 bytes: four blocks
WAIT_S = 300.0
NOWHERE = "tls+tcp://127.0.0.1:9"  # the discard port, where nobody listens


def summed(array, number=0):
    return float(array.sum()) + number


def whose(array):
    return float(array.sum()), array.flags.writeable, array.flags.owndata


def napped(array, seconds):
    time.sleep(seconds)
    return float(array[0])


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with dear_and_cheap(tmp_path_factory.mktemp("pair")) as members:
        yield members


def moved_bytes(site):
    """The bytes that came to a site from others, by its books."""
    found = site.ask("report", kind="cost", by=["kind"], whose="all")
    at = found["columns"].index("moved_bytes")
    return sum(row[at] for row in found["rows"])


def kinds_by_origin(site):
    """The (origin, project, kind) of the records of data in a site's books."""
    found = site.ask("report", kind="cost", by=["origin", "project", "kind"], whose="all")
    return {tuple(row[:3]) for row in found["rows"] if row[2] != "time"}


def held(site):
    return site.ask("objects", all_users=True)


def test_calls_with_references_run_at_another_site_and_the_object_ends_with_them(pair):
    london, paris = pair
    before = moved_bytes(paris)  # by other tests
    with london.client() as client:
        array = np.arange(float(SIZE))
        ref = client.put(array)
        there = client.options(sites=["paris"])
        assert there.submit(whose, ref).result(WAIT_S) == (float(array.sum()), False, False)
        assert list(there.map(summed, [ref] * 50, range(50), timeout=WAIT_S)) == [
            float(array.sum()) + n for n in range(50)
        ]
        pools = {row[0] for row in client.ask("report", kind="usage", by=["pool"])["rows"]}
        assert "paris/local" in pools
    size = array.nbytes
    wait_until(
        lambda: size <= moved_bytes(paris) - before < size + 10_000, "it is in the books of Paris"
    )
    wait_until(lambda: not held(paris), "paris lets go of it after its contract")
    theirs = {("london", "default", "held"), ("london", "default", "moved")}
    wait_until(lambda: kinds_by_origin(paris) == theirs, "both are in its books as London's")
    wait_until(lambda: not held(london), "london lets go of it with its client")


def test_each_of_several_objects_goes_once(pair):
    london, paris = pair
    with london.client() as client:
        arrays = [np.full(200_000, float(n)) for n in range(8)]
        refs = [client.put(each) for each in arrays]
        there = client.options(sites=["paris"])
        found = list(there.map(summed, refs, timeout=WAIT_S))
        assert found == [float(each.sum()) for each in arrays]
        digests = {each.digest for each in refs}
        rows = [each for each in held(paris) if each["digest"] in digests]
        assert len(rows) <= 8  # one of a test before may still be held for its contract
        assert {row["project"] for row in rows} <= {"default\u00a0@london"}
    wait_until(lambda: not held(paris), "paris lets go of them")


def test_results_that_nobody_can_fetch_are_not_paid_and_their_tasks_run_elsewhere(tmp_path):
    """Paris names a bulk port where nobody listens: its results exist for nobody."""
    members = (
        MemberSite(tmp_path, "london", 1, "4 USD"),
        MemberSite(tmp_path, "paris", 2, "0.04 USD", start=False),
    )
    london, paris = members
    text = paris.config.read_text()
    port = 'bulk_listen = "tls+tcp://127.0.0.1:0"'
    assert port in text
    paris.config.write_text(text.replace(port, f'{port}\nbulk_advertise = "{NOWHERE}"'))
    paris.start()
    with federated(*members):
        with london.client() as client:
            found = client.submit(grown, 3, 500_000)
            assert float(found.result(WAIT_S).sum()) == 1_500_000.0
            pools = client.ask("report", kind="cost", by=["pool"], whose="all")["rows"]
        assert {each[0] for each in pools} == {"local", "objects"}
        wait_until(lambda: paris.deals("sell").keys() == {"void"}, "paris hears that it is void")
        assert "settled" not in london.deals("buy")
        for site in members:
            run("audit", "--config", str(site.config))  # fails where anything is wrong


def test_explain_says_why_objects_stay_where_there_is_no_bulk_port(tmp_path):
    members = (
        MemberSite(tmp_path, "london", 1, "4 USD", start=False),
        MemberSite(tmp_path, "paris", 2, "0.04 USD"),
    )
    london, _ = members
    text = london.config.read_text()
    changed = text.replace('bulk_listen = "tls+tcp://127.0.0.1:0"', 'bulk_listen = ""')
    assert changed != text
    london.config.write_text(changed)
    london.start()
    with federated(*members), london.client() as client:
        ref = client.put(np.arange(1000.0))
        there = client.options(sites=["paris"]).submit(summed, ref)
        assert there.why_waiting()
        found = client.ask("explain", job=there.node[0])
        assert "objects-stay" in str(found)
        assert "bulk_listen" in str(found)
        assert there.cancel()
        assert client.submit(summed, ref).result(WAIT_S) == float(np.arange(1000.0).sum())


def test_a_carrier_that_is_killed_half_way_loses_no_call(pair):
    london, paris = pair
    with london.client() as client:
        array = np.random.default_rng(1).random(8_000_000)
        ref = client.put(array)
        there = client.options(sites=["paris"])
        future = there.submit(napped, ref, 0.5)
        for site in (paris, london):
            for pid in carriers(site):
                os.kill(pid, signal.SIGKILL)
        assert future.result(WAIT_S) == float(array[0])


def carriers(site):
    """The processes that carry objects for a site: children of its gateway."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read().split(b"\0")
            with open(f"/proc/{pid}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if b"gateway.objects.bulk.carrier" in command and parent == site.gateway.process.pid:
            found.append(int(pid))
    return found


def grown(number, size):
    """A result of its own, far over what a message may have."""
    return np.full(size, float(number))


def test_large_results_come_from_another_site_also_above_the_size_of_a_message(pair):
    london, paris = pair
    with london.client() as client:
        there = client.options(sites=["paris"])
        large = there.submit(grown, 7, 9_000_000).result(WAIT_S)  # 72 MB
        assert large.size == 9_000_000
        assert float(large[0]) == float(large[-1]) == 7.0
        found = list(there.map(grown, range(6), [500_000] * 6, timeout=WAIT_S))
        assert [float(each.sum()) for each in found] == [n * 500_000.0 for n in range(6)]
        equal = list(there.map(grown, [1] * 4, [300_000] * 4, timeout=WAIT_S))
        assert [float(each[-1]) for each in equal] == [1.0] * 4
        mixed = list(there.map(grown, range(4), [3, 300_000, 5, 300_000], timeout=WAIT_S))
        assert [each.size for each in mixed] == [3, 300_000, 5, 300_000]
        wait_until(lambda: settled(london, paris), "the books to agree")
    assert moved_bytes(london) > 10_000_000  # equal blocks move once
    wait_until(lambda: not held(paris), "paris lets go of the results")
    wait_until(lambda: not held(london), "london lets go of them when they are mapped")
    for site in pair:
        run("audit", "--config", str(site.config))  # fails where anything is wrong


def test_large_results_come_in_messages_where_the_seller_has_no_bulk_port(tmp_path):
    members = (
        MemberSite(tmp_path, "london", 1, "4 USD"),
        MemberSite(tmp_path, "paris", 2, "0.04 USD", start=False),
    )
    london, paris = members
    text = paris.config.read_text()
    paris.config.write_text(text.replace('bulk_listen = "tls+tcp://127.0.0.1:0"', ""))
    paris.start()
    with federated(*members), london.client() as client:
        found = client.options(sites=["paris"]).submit(grown, 3, 500_000).result(WAIT_S)
        assert float(found.sum()) == 1_500_000.0
