"""Questions about objects, within the projects that a token covers."""

from types import SimpleNamespace

import pytest

from federation.clocks import UtcS
from federation.objects.manifests import digest_text, make_manifest
from federation.reasons import Reason
from gateway.api.context import BadQuestion
from gateway.api.object_desk import VERBS
from gateway.config.limits import ObjectRoom
from gateway.config.site import SiteConfig
from gateway.objects.billing import HeldSoFar
from gateway.objects.catalogue import ObjectCatalogue, ObjectKey
from gateway.trust.rights import Asker
from policies.costs.holding import HoldPrice

DIGEST = make_manifest([memoryview(b"curves")]).digest


@pytest.fixture
def site():
    catalogue = ObjectCatalogue(ObjectRoom(1_000))
    key = ObjectKey("rates", DIGEST)
    assert catalogue.put(key, 6, "ann", 1, 0.0) == ""
    catalogue.name(key, "ann", "curves", 1e9)

    async def ready():
        return True

    async def settled():
        pass

    objects = SimpleNamespace(
        catalogue=catalogue,
        ready=ready,
        address="@objects",
        pid=1,
        ticket=lambda session, user, scope: f"{session} {user} {scope}".encode(),
        take=lambda session, user, held: (
            catalogue.why_not(held, user) or (not catalogue.take(held.key, session, user)) * "gone"
        ),
        settled=settled,
        unname=lambda held, user, name: not catalogue.unname(held.key.scope, user, name),
        holdings=SimpleNamespace(so_far=lambda *_: HeldSoFar(7, 3), price=HoldPrice(1, "EUR")),
        take_again=lambda session, user, scope, digests: [
            each for each in digests if not catalogue.take(ObjectKey(scope, each), session, user)
        ],
    )
    return SimpleNamespace(objects=objects, config=SiteConfig(name="london"))


QUESTIONS = [
    ("object_host", {}),
    ("object", {"digest": digest_text(DIGEST)}),
    ("object", {"name": "curves"}),
    ("hold_objects", {"digests": []}),
]


@pytest.mark.parametrize(("verb", "details"), QUESTIONS)
async def test_a_token_opens_the_objects_of_its_projects_alone(site, verb, details):
    details = {"project": "rates", **details}
    inside = Asker(1, "ann", projects=frozenset({"rates"}))
    assert await VERBS[verb](site, inside, details)
    outside = Asker(2, "eve", projects=frozenset({"credit"}))
    with pytest.raises(BadQuestion, match="does not cover project rates, but credit: use") as told:
        await VERBS[verb](site, outside, details)
    assert told.value.code == Reason.PROJECT_NOT_ALLOWED


@pytest.mark.parametrize(
    ("kinds", "tags", "is_single", "taken"),
    [
        (["local", "local"], [{"objects": True}], True, True),
        (["local"], [], True, True),  # its workers are yet to come
        (["local"], [{"objects": True}, {}], True, False),
        (["local", "slurm"], [{"objects": True}], True, False),
        (["local"], [{"objects": True}], False, False),
        ([], [], True, False),
    ],
)
async def test_large_arguments_are_objects_only_where_that_keeps_no_call_from_a_slot(
    site, kinds, tags, is_single, taken
):
    workers = {
        at: SimpleNamespace(offer=SimpleNamespace(tags=each)) for at, each in enumerate(tags)
    }
    site.broker = SimpleNamespace(workers=workers)
    site.config = SimpleNamespace(pools=[SimpleNamespace(kind=kind) for kind in kinds])
    site.gossip = None if is_single else object()
    assert await VERBS["large_arguments"](site, Asker(7, "ann"), {}) is taken
    site.objects = None
    assert await VERBS["large_arguments"](site, Asker(7, "ann"), {}) is False


async def test_a_session_holds_again_what_is_here_and_hears_what_is_not(site):
    other = digest_text(make_manifest([memoryview(b"other")]).digest)
    details = {"project": "rates", "digests": [other, digest_text(DIGEST)]}
    assert await VERBS["hold_objects"](site, Asker(7, "ann"), details) == {"lost": [other]}
    assert site.objects.catalogue.find("rates", DIGEST).sessions == {1: 1, 7: 1}
    for wrong in ("b3:00", ["b3:00"], [1], [other] * 10_001, None):
        with pytest.raises(BadQuestion) as told:
            await VERBS["hold_objects"](site, Asker(7, "ann"), {**details, "digests": wrong})
        assert told.value.code == Reason.BAD_REQUEST


async def test_a_name_is_looked_for_among_the_askers_own_unless_another_user_is_named(site):
    details = {"project": "rates", "name": "curves"}
    with pytest.raises(BadQuestion, match="user 'bob' has named no object 'curves' here"):
        await VERBS["object"](site, Asker(2, "bob"), details)
    found = await VERBS["object"](site, Asker(2, "bob"), {**details, "user": "ann"})
    assert found["names"] == [{"name": "curves", "user": "ann", "ends_at_s": 1e9}]
    with pytest.raises(BadQuestion, match="name and user must be texts"):
        await VERBS["object"](site, Asker(2, "bob"), {**details, "user": 7})


async def test_objects_are_listed_for_those_that_put_or_hold_them_alone_or_as_sums(site):
    listed, catalogue = VERBS["objects"], site.objects.catalogue
    [row] = await listed(site, Asker(1, "ann"), {})
    assert (row["digest"], row["site"]) == (digest_text(DIGEST), "london")
    assert await listed(site, Asker(2, "bob"), {}) == []
    catalogue.take(ObjectKey("rates", DIGEST), 2, "bob")
    assert len(await listed(site, Asker(2, "bob"), {})) == 1
    assert await listed(site, Asker(2, "bob"), {"by": "user"}) == [
        {"user": "bob", "objects": 1, "bytes": 6, "named": 1}
        | {"held_byte_s": 7, "cost_nanos": 3, "currency": "EUR"}
    ]
    [row] = await listed(site, Asker(1, "ann"), {"by": "project"})
    assert (row["project"], row["bytes"]) == ("rates", 6)
    assert await listed(site, Asker(1, "ann"), {"by": "project", "project": "fx"}) == []
    with pytest.raises(BadQuestion, match="'project' or 'user'"):
        await listed(site, Asker(1, "ann"), {"by": "day"})


async def test_lost_objects_are_listed_for_those_that_held_them(site):
    listed, catalogue = VERBS["objects"], site.objects.catalogue
    assert await listed(site, Asker(1, "ann"), {"lost": True}) == []
    catalogue.clear(UtcS(2000.0))
    [row] = await listed(site, Asker(1, "ann"), {"lost": True})
    assert (row["digest"], row["lost_at_s"]) == (digest_text(DIGEST), 2000.0)
    assert await listed(site, Asker(2, "bob"), {"lost": True}) == []
    assert await listed(site, Asker(1, "ann"), {}) == []


async def test_a_name_is_dropped_by_its_user_and_what_holds_the_object_still_is_told(site):
    drop, catalogue = VERBS["drop_object"], site.objects.catalogue
    details = {"project": "rates", "name": "curves"}
    with pytest.raises(BadQuestion, match="user 'bob' has named no object 'curves' here"):
        await drop(site, Asker(2, "bob"), details)
    catalogue.hold("01abc", "ann", "rates", [DIGEST])
    found = await drop(site, Asker(1, "ann"), details)
    assert found["text"] == (
        "object 'curves' of ann in project rates dropped: still held by 1 client session, job 01abc"
    )
    assert (found["freed"], found["names"]) == (False, [])
    with pytest.raises(BadQuestion, match="has named no object"):
        await drop(site, Asker(1, "ann"), details)


async def test_an_operator_alone_drops_the_names_of_others(site):
    drop, catalogue = VERBS["drop_object"], site.objects.catalogue
    details = {"project": "rates", "name": "curves", "user": "ann"}
    with pytest.raises(BadQuestion, match="are theirs, or an operator's, to drop") as told:
        await drop(site, Asker(2, "bob"), details)
    assert told.value.code == Reason.SCOPE_MISSING
    catalogue.session_ended(1)
    found = await drop(site, Asker(3, "root", is_operator=True), details)
    assert found["freed"]
    assert found["text"].endswith("dropped: 6 bytes freed")
    assert not len(catalogue)
    with pytest.raises(BadQuestion, match="must be texts"):
        await drop(site, Asker(1, "ann"), {"name": 7})
