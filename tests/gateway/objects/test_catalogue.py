"""The holders of each object (gateway.objects.catalogue)."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from federation.clocks import UtcS
from federation.objects.labels import read_label
from federation.objects.manifests import SHA256, digest_text
from federation.objects.room import no_room
from gateway.config.limits import ObjectRoom
from gateway.objects import catalogue
from gateway.objects.catalogue import ObjectCatalogue, ObjectKey, sums

NOW = UtcS(1000.0)


def key(number, scope="risk"):
    return ObjectKey(scope, bytes([SHA256]) + bytes([number]) * 32)


def put(found, number, *, session=1, scope="risk", size=10):
    return found.put(key(number, scope), size, "ann", session, NOW)


def test_an_object_is_dropped_once_its_session_and_jobs_and_name_are_over():
    found = ObjectCatalogue(ObjectRoom(100))
    assert put(found, 1) == ""
    found.hold("job", "ann", "risk", [key(1).digest])
    assert found.name(key(1), "ann", "book", UtcS(2000.0)) == []
    assert found.session_ended(1) == []
    assert found.sweep(set(), NOW) == []
    assert found.bytes == 10
    assert found.sweep(set(), UtcS(2000.0)) == [key(1)]
    assert (len(found), found.bytes) == (0, 0)
    assert found.named("risk", "ann", "book") is None


def test_an_object_must_fit_memory_also_where_others_go_to_disk():
    found = ObjectCatalogue(ObjectRoom(100, spill=1 << 50, spill_dir="/spill"))
    assert found.refuses(key(1), 100, "ann") == ""
    for size in (101, 1 << 40):
        assert "100 bytes of objects in memory, and this one" in found.refuses(key(1), size, "ann")
    for number in range(5):
        assert put(found, number, size=100) == ""  # the others are on disk
    assert found.refuses(key(9), 100, "ann", coming=1 << 49) == ""  # those come one by one


def test_a_result_is_held_by_its_job_until_its_client_has_it():
    found = ObjectCatalogue(ObjectRoom(100))
    assert found.put_result(key(1), 10, "ann", "job", NOW) == ""
    assert found.sweep({"job"}, NOW) == []
    assert found.deliver(key(1), "job", 5) == []
    assert found.find("risk", key(1).digest).to_plain()["jobs"] == []
    assert found.let_go(5, "risk", key(1).digest) == [key(1)]
    assert found.deliver(key(1), "job", 5) == []  # not a second time
    assert found.sweep(set(), NOW) == []


def test_equal_results_are_delivered_one_by_one_and_lost_ones_go_with_their_job():
    found = ObjectCatalogue(ObjectRoom(100))
    for _ in range(3):
        found.put_result(key(1), 10, "ann", "job", NOW)
    found.deliver(key(1), "job", 5)
    assert found.let_go(5, "risk", key(1).digest) == []  # two are on their way
    assert found.deliver(key(1), "job", None) == []  # its client has gone
    assert found.sweep({"job"}, NOW) == []
    assert found.sweep(set(), NOW) == [key(1)]  # the report of the last was late
    assert found.bytes == 0


def test_a_result_that_is_an_argument_of_its_own_job_stays_with_it():
    found = ObjectCatalogue(ObjectRoom(100))
    found.put_result(key(1), 10, "ann", "job", NOW)
    found.hold("job", "ann", "risk", [key(1).digest])
    assert found.deliver(key(1), "job", None) == []
    assert found.sweep({"job"}, NOW) == []
    assert found.sweep(set(), NOW) == [key(1)]


def test_results_need_room_as_others_do():
    found = ObjectCatalogue(ObjectRoom(100))
    assert "room for 100" in found.put_result(key(1), 101, "ann", "job", NOW)
    assert len(found) == 0


def test_an_object_of_a_lost_gateway_waits_for_its_holders_for_a_time():
    found = ObjectCatalogue(ObjectRoom(100))
    for number in (1, 2, 3):
        found.adopt(key(number), 10, "ann", NOW, UtcS(1060.0))
    found.name(key(2), "ann", "book", UtcS(2000.0))
    assert found.take(key(1), 5, "ann")
    assert found.sweep(set(), UtcS(1059.0)) == []
    assert found.bytes == 30
    assert found.sweep(set(), UtcS(1060.0)) == [key(3)]
    assert found.let_go(5, "risk", key(1).digest) == [key(1)]
    assert found.named("risk", "ann", "book").user == "ann"
    assert found.sweep(set(), UtcS(2000.0)) == [key(2)]
    assert (len(found), found.bytes) == (0, 0)


def test_a_session_holds_an_object_as_often_as_it_has_put_it():
    found = ObjectCatalogue(ObjectRoom(100))
    put(found, 1)
    put(found, 1)
    assert found.bytes == 10
    assert found.let_go(1, "risk", key(1).digest) == []
    assert found.let_go(2, "risk", key(1).digest) == []
    assert found.let_go(1, "risk", key(1).digest) == [key(1)]
    assert found.let_go(1, "risk", key(1).digest) == []


def test_equal_bytes_of_two_projects_are_two_objects():
    found = ObjectCatalogue(ObjectRoom(100))
    put(found, 1, scope="risk")
    put(found, 1, scope="fx")
    assert found.bytes == 20
    found.hold("job", "ann", "fx", [key(1).digest, key(2).digest])
    assert found.session_ended(1) == [key(1)]
    assert found.find("fx", key(1).digest) is not None


def test_more_than_there_is_room_for_is_refused_and_an_object_that_is_here_is_not(monkeypatch):
    found = ObjectCatalogue(ObjectRoom(25))
    put(found, 1)
    put(found, 2)
    assert "room for 25 bytes" in put(found, 3)
    assert put(found, 2, session=2) == ""
    monkeypatch.setattr(catalogue, "OBJECTS_MAX", 2)
    assert "2 objects already" in put(found, 3, size=1)


def test_a_name_is_its_users_own():
    """Else a user could put a pickle of their own under the name that another reads."""
    found = ObjectCatalogue(ObjectRoom(100))
    put(found, 1)
    put(found, 2)
    found.name(key(1), "ann", "book", UtcS(2000.0))
    assert found.name(key(2), "eve", "book", UtcS(2000.0)) == []
    assert [found.named("risk", user, "book").key for user in ("ann", "eve")] == [key(1), key(2)]
    found.name(key(1), "eve", "book", UtcS(1500.0))
    assert [each["user"] for each in found.named("risk", "ann", "book").to_plain()["names"]] == [
        *("ann", "eve")
    ]
    found.sweep(set(), UtcS(1600.0))
    assert found.named("risk", "eve", "book") is None
    assert found.named("risk", "ann", "book").key == key(1)


def test_a_name_that_is_given_again_leaves_the_object_that_had_it():
    found = ObjectCatalogue(ObjectRoom(100))
    put(found, 1)
    put(found, 2)
    found.name(key(1), "ann", "book", UtcS(2000.0))
    found.let_go(1, "risk", key(1).digest)
    assert found.name(key(2), "ann", "book", UtcS(2000.0)) == [key(1)]
    held = found.named("risk", "ann", "book")
    assert held is not None
    assert held.to_plain()["digest"] == digest_text(key(2).digest)
    assert found.take(key(1), 3, "ann") is False
    assert found.take(key(2), 3, "ann") is True


steps = st.tuples(
    st.sampled_from(["put", "take", "let_go", "end", "hold", "sweep", "name"]),
    st.integers(0, 3),
    st.integers(0, 2),
)


@given(st.lists(steps, max_size=40))
def test_an_object_is_here_exactly_as_long_as_something_holds_it(given_steps):
    found = ObjectCatalogue(ObjectRoom(1 << 40))
    sessions, jobs, names = Counter(), set(), {}
    here, clock = set(), 0.0
    for what, number, who in given_steps:
        clock += 1.0
        now, each, gone = UtcS(clock), key(number), []
        if what == "put":
            assert found.put(each, 10, user_of(who), who, now) == ""
            sessions[who, each] += 1
            here.add(each)
        elif what == "take" and found.take(each, who, user_of(who)):
            sessions[who, each] += 1
        elif what == "let_go":
            gone = found.let_go(who, each.scope, each.digest)
            sessions[who, each] = max(0, sessions[who, each] - 1)
        elif what == "end":
            gone = found.session_ended(who)
            for pair in list(sessions):
                if pair[0] == who:
                    del sessions[pair]
        elif what == "hold":
            found.hold(f"job {who}", user_of(who), each.scope, [each.digest])
            if each in here:
                jobs.add((f"job {who}", each))
        elif what == "sweep":
            left = {f"job {who}"}
            gone = found.sweep(left, now)
            jobs = {pair for pair in jobs if pair[0] in left}
            names = {name: pair for name, pair in names.items() if pair[1] > clock}
        elif what == "name" and each in here:
            gone = found.name(each, "ann", f"name {who}", UtcS(clock + 3))
            names[f"name {who}"] = each, clock + 3
        wanted = {each for (_, each), count in sessions.items() if count}
        wanted |= {each for _, each in jobs} | {each for each, _ in names.values()}
        assert set(gone) == here - wanted
        here = wanted
        assert {each.key for each in found} == here
        assert found.bytes == 10 * len(here)
        check_users(found, sessions, jobs, names)


def check_users(found, sessions, jobs, names):
    by_user = {(user_of(who), each) for (who, each), count in sessions.items() if count}
    by_user |= {(user_of(int(job[-1])), each) for job, each in jobs}
    by_user |= {("ann", each) for each, _ in names.values()}
    for user in ("ann", "bob"):
        own = sum(each == user for each, _ in by_user)
        assert (found._by_owner["user", user], found._objects_of[user]) == (10 * own, own)


def user_of(number):
    return ("ann", "bob")[number % 2]


def test_an_object_counts_for_each_user_who_holds_it_and_for_no_other(monkeypatch):
    found = ObjectCatalogue(ObjectRoom(1000, user=30))
    put(found, 1, size=20)
    held = found.find("risk", key(1).digest)
    found.put(key(2), 15, "bob", 2, NOW)
    assert "of user bob, holds 15" in found.why_not(held, "bob")
    assert found.why_not(held, "ann") == ""
    assert "of user bob" in found.put(key(1), 20, "bob", 2, NOW)
    found.let_go(2, "risk", key(2).digest)
    assert found.take(key(1), 2, "bob")  # as by its name
    assert found.let_go(1, "risk", key(1).digest) == []
    assert put(found, 3, size=30) == ""  # bob holds the first one, on bob's account
    assert "of user bob, holds 20" in found.put(key(4), 11, "bob", 2, NOW)
    monkeypatch.setattr(catalogue, "USER_OBJECTS_MAX", 1)
    assert "user bob holds 1 objects already" in found.put(key(4), 1, "bob", 2, NOW)


def test_users_and_projects_have_room_of_their_own():
    found = ObjectCatalogue(ObjectRoom(100, user=30, project=40))
    put(found, 1, size=20)
    assert "room for 30 bytes of objects of user ann, holds 20" in put(found, 2, size=11)
    assert "of user ann" in found.put_result(key(2), 11, "ann", "job", NOW)
    assert put(found, 2, size=10) == ""
    assert put(found, 1, session=2, size=20) == ""  # it is there already
    assert found.put(key(3), 10, "bob", 3, NOW) == ""
    assert "bytes of objects of project risk, holds 40" in found.put(key(4), 1, "bob", 3, NOW)
    assert found.put(key(4, "fx"), 20, "bob", 3, NOW) == ""
    found.session_ended(1)
    assert put(found, 2, size=10) == ""  # the room of what was let go of is free again
    found.clear(NOW)
    assert put(found, 1, size=30) == ""


def test_others_are_to_be_released_only_where_that_helps():
    assert no_room(100, 50, 50) == ""
    assert "release others first" in no_room(100, 50, 51)
    for whose, key in (
        ("of user ann", "(`user` in [objects])"),
        ("of project fx", "(`project` in [objects])"),
        ("in memory", "(`memory` in [objects])"),
        ("", "(`memory`, or `spill` where objects go to disk, in [objects])"),
    ):
        assert no_room(100, 0, 101, whose).endswith(f"ask the operator for more room {key}")
    assert "release" not in no_room(100, 50, 101)
    assert "put it in parts" in no_room(100, 0, 101)


def test_what_was_lost_is_remembered_for_a_time(monkeypatch):
    found = ObjectCatalogue(ObjectRoom(100))
    put(found, 1)
    put(found, 2)
    found.name(key(2), "ann", "book", UtcS(2000.0))
    found.clear(UtcS(1500.0))
    one, other = (each.to_plain() for each in found.lost)
    assert (one["digest"], one["lost_at_s"]) == (digest_text(key(1).digest), 1500.0)
    assert [each["name"] for each in other["names"]] == ["book"]
    found.lost.extend(list(found.lost) * catalogue.LOST_MAX)
    assert len(found.lost) == catalogue.LOST_MAX


def test_sums_of_projects_and_of_the_users_that_hold_objects():
    found = ObjectCatalogue(ObjectRoom(1000))
    put(found, 1, size=10)
    put(found, 2, size=5, scope="fx")
    put(found, 3, size=20, scope="fx")
    found.take(key(1), 7, "bob")
    found.name(key(1), "ann", "book", UtcS(2000.0))
    assert sums(found, "project") == [
        {"project": "fx", "objects": 2, "bytes": 25, "named": 0},
        {"project": "risk", "objects": 1, "bytes": 10, "named": 1},
    ]
    assert sums(found, "user") == [
        {"user": "ann", "objects": 3, "bytes": 35, "named": 1},
        {"user": "bob", "objects": 1, "bytes": 10, "named": 1},
    ]


def test_equal_bytes_have_the_labels_of_all_who_put_them():
    found = ObjectCatalogue(ObjectRoom(100))
    eu, german = read_label(["EU", "DE"]), read_label(["DE", "site:berlin"])
    assert found.put(key(1), 10, "ann", 1, NOW, eu) == ""
    assert put(found, 1, session=2) == ""  # one without a label widens nothing
    assert found.labels_of("risk", [key(1).digest, key(2).digest])[0].words == ("DE", "EU")
    found.labelled.clear()
    assert found.put(key(1), 10, "ben", 3, NOW, german) == ""
    held = found.find("risk", key(1).digest)
    assert held.to_plain()["residency"] == ["DE", "site:berlin"]
    assert found.labelled == [held]
    why = found.put(key(1), 10, "ann", 1, NOW, read_label(["US"]).named("the value"))
    assert "the value may lie only in US" in why
    assert "which is here, may lie only in DE, at berlin" in why
    assert found.labels_of("risk", [key(2).digest]) == []


def test_a_result_has_the_label_of_its_job_and_an_adopted_object_its_own():
    found = ObjectCatalogue(ObjectRoom(100))
    label = read_label(["EU"])
    assert found.put_result(key(1), 10, "ann", "job", NOW, label) == ""
    found.adopt(key(2), 10, "ann", NOW, UtcS(2000.0), label)
    found.name(key(2), "ann", "book", UtcS(2000.0))
    names = [each.of for each in found.labels_of("risk", [key(1).digest, key(2).digest])]
    assert names[1] == ("object book",)
    assert names[0][0].startswith("object s2:")
