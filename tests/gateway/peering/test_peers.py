"""Gateways among themselves, over real sockets with mutual TLS: admission, and messages."""

import contextlib
import math
from dataclasses import replace

import pytest
import trio
from support.peers import PeerSite, federation, meet, try_to_come_in, until
from support.pure.site_keys import card

from federation.messages.messages import Answer, Ask, SignedDeclarations
from federation.sessions.handshake import Opened
from federation.sessions.nng import NngLink, NngPort
from federation.signed.declarations import sign
from federation.transport import TlsSettings
from gateway.peering.orders import shown
from gateway.sessions.inbox import TURN_MAX
from gateway.sessions.links import LinkDown, LinkSaid, LinkUp
from gateway.sessions.listener import PeerLeft
from gateway.trust import introduction
from gateway.trust.book import BookError
from gateway.trust.card_rates import REOPEN_MIN_S
from gateway.trust.certificates import fetch_leaf, make_leaf, to_pem
from gateway.trust.hearsay import PER_SOURCE_MAX
from gateway.trust.identity_store import pack_words
from gateway.trust.keys import Rotation
from gateway.trust.standing import TrustLevel

pytestmark = [pytest.mark.slow, pytest.mark.real]


class Posing:
    """A registry that says it is another site, or in another federation."""

    def __init__(self, registry, **lies):
        self._registry = registry
        self._lies = lies

    def __getattr__(self, name):
        return self._lies.get(name, getattr(self._registry, name))


async def test_two_sites_join_approve_and_talk_each_way(tmp_path):
    async with federation(tmp_path, "london", "paris") as (london, paris):
        joined = await paris.join(london)
        assert (joined["level"], joined["there"]) == ("pending", "pending")
        assert london.level(paris) is TrustLevel.PENDING
        await london.approve(paris)
        await paris.approve(london)
        await until(lambda: london.meets(paris), "a session each way")
        paris.peers.links.post("london", Ask(5, "status", {}))
        paris.peers.flush(trio.current_time())
        await until(lambda: london.said_by(paris), "the question")
        assert london.said_by(paris) == [Ask(5, "status", {})]
        peer = london.peer(paris)
        assert (peer.role, peer.name) == ("gateway", "paris")
        london.peers.answer(peer, Answer(5, "", "", "well"))
        london.peers.flush(trio.current_time())
        await until(lambda: paris.of(LinkSaid), "the answer")
        assert paris.of(LinkSaid) == [LinkSaid("london", Answer(5, "", "", "well"))]


async def test_an_invitation_lets_in_one_site(tmp_path):
    async with federation(tmp_path, "london", "paris", "lyon") as (london, paris, lyon):
        invitation = (await london.order("invite", approve=True))["invitation"]
        joined = await paris.order("join", invitation=invitation, approve=True)
        assert (joined["level"], joined["there"]) == ("approved", "approved")
        with pytest.raises(Exception, match="has used this invitation already"):
            await lyon.order("join", invitation=invitation)
        assert london.told("a request to join was refused: used")
        await until(lambda: london.meets(paris), "a session each way")


async def test_who_is_coming_in_is_not_cut_off_by_new_pins_but_by_a_new_leaf(tmp_path):
    settings = {"rotation_spread_s": 0.2, "rotation_overlap_s": 0.2}
    async with federation(tmp_path, "london", "paris", **settings) as (london, paris):
        leaf = tmp_path / "leaf.pem"
        leaf.write_text(to_pem([london.registry.active.leaf.certificate]))
        tls = TlsSettings(ca_file=str(leaf), server_name="london")
        with contextlib.closing(NngLink(london.registry.join_address, lambda: None, tls)) as link:
            await until(lambda: link.is_up, "a visitor")
            await meet(london, paris)  # for which london has listened anew, with paris' pin
            assert not link.is_lost
            before = _shown_by(london)
            await london.order("rotate")
            await until(lambda: london.registry.active.leaf.certificate != before, "a new leaf")
            new = london.registry.active.leaf.certificate
            await until(lambda: _shown_by(london) == new, "the join server shows it")


def _shown_by(member):
    """The leaf that its join server shows; None while it is being opened anew."""
    port = int(member.registry.join_address.rpartition(":")[2])
    with contextlib.suppress(OSError):
        return fetch_leaf("127.0.0.1", port, 5.0)


async def test_a_third_site_is_known_by_hearsay_and_approved_without_an_invitation(tmp_path):
    async with federation(tmp_path, "london", "paris", "lyon") as (london, paris, lyon):
        await meet(london, paris)
        await lyon.join(paris)
        await paris.approve(lyon)
        await lyon.approve(paris)
        await until(lambda: london.level(lyon) is TrustLevel.KNOWN, "lyon's card at london")
        await until(lambda: lyon.level(london) is TrustLevel.KNOWN, "london's card at lyon")
        await london.approve(lyon)
        await lyon.approve(london)
        await until(lambda: london.meets(lyon), "a session each way")


async def test_an_approved_site_can_not_take_another_ones_name(tmp_path):
    async with federation(tmp_path, "london", "paris", "lyon") as (london, paris, lyon):
        await meet(london, paris, lyon)
        posing = Posing(lyon.registry, site="paris")
        assert await try_to_come_in(london, lyon, own=posing) == "bad-signature"
        await until(lambda: london.told("gateway 'paris' was refused: bad-signature"), "a line")


async def test_a_member_of_another_federation_is_refused_even_with_a_pinned_leaf(tmp_path):
    async with federation(tmp_path, "london", "paris") as (london, paris):
        await meet(london, paris)
        posing = Posing(paris.registry, federation="others-1111")
        assert await try_to_come_in(london, paris, own=posing) == "wrong-federation"
        await until(lambda: london.told("wrong-federation"), "a line")


async def test_a_stranger_does_not_get_past_tls(tmp_path):
    async with federation(tmp_path, "london", "paris", "essex") as (london, paris, essex):
        await meet(london, paris)
        # It knows london's leaf, and whatever else can be known.
        essex.registry.note([("card", london.registry.book.own.card.raw)])
        pins = london.registry.book.own.card.content.leaves
        (essex.registry.folder / "pins" / "london.pem").write_text(to_pem(pins))
        with trio.move_on_after(1.0):
            found = await try_to_come_in(london, essex)
            assert found is None


async def test_a_client_does_not_get_in_by_the_port_for_gateways(tmp_path):
    async with federation(tmp_path, "london", "paris") as (london, paris):
        await meet(london, paris)
        hello = introduction.hello(paris.registry)
        hello = type(hello)([], "client", "ada", "ada", b"", "", 0, {})
        assert await try_to_come_in(london, paris, hello=hello) == "role"


async def test_who_is_expelled_is_out_at_once_and_the_others_follow(tmp_path):
    settings = {"follow_expulsions": "any"}
    async with federation(tmp_path, "london", "paris", "lyon", **settings) as (london, paris, lyon):
        await meet(london, paris, lyon)
        await london.order("expel", site="lyon", reason="too loud")
        await until(lambda: paris.level(lyon) is TrustLevel.EXPELLED, "the word at paris")
        for site in (london, paris):
            await until(lambda: "lyon" not in site.peers.links.up, "the end of the link")  # noqa: B023
            assert "lyon" not in [each.name for each in site.peers.listener.peers.values()]
        await until(
            lambda: lyon.told("this site is expelled by london: too loud"), "a line at lyon"
        )
        await until(lambda: paris.told("london expels lyon: too loud"), "a line at paris")
        assert london.told("order: expulsion of site lyon: too loud")
        assert any(each.peer.name == "lyon" for each in london.of(PeerLeft))
        assert london.meets(paris)


async def test_who_leaves_is_gone_everywhere_and_may_come_back_with_an_invitation(tmp_path):
    async with federation(tmp_path, "london", "paris", "lyon") as (london, paris, lyon):
        await meet(london, paris, lyon)
        await lyon.order("leave")
        await until(lambda: london.level(lyon) is TrustLevel.LEFT, "the farewell at london")
        await until(lambda: paris.level(lyon) is TrustLevel.LEFT, "the farewell at paris")
        await until(lambda: not lyon.peers.links.sites, "the end of lyon's links")
        await until(lambda: not lyon.peers.listener.peers, "the end of lyon's sessions")
        assert london.meets(paris)
        await lyon.join(paris)
        await paris.approve(lyon)
        await lyon.approve(paris)
        await until(lambda: lyon.meets(paris), "a session each way")


async def test_keys_rotate_and_no_message_is_lost(tmp_path):
    settings = {"rotation_spread_s": 1.0, "rotation_overlap_s": 1.0}
    async with federation(tmp_path, "london", "paris", **settings) as (london, paris):
        await meet(london, paris)
        old = london.registry.active
        await london.order("rotate")
        with pytest.raises(Exception, match="in progress already"):
            await london.order("rotate")
        sent = 0

        def send():
            nonlocal sent
            sent += 1
            for one, other in ((london, paris), (paris, london)):
                one.peers.links.post(other.site, Ask(sent, "status", {}))
                one.peers.flush(trio.current_time())

        with trio.fail_after(300):
            while london.registry.ring.current == old or london.registry.rotation != Rotation.NONE:
                send()
                await trio.sleep(0.01)
        send()
        await until(lambda: len(london.said_by(paris)) >= sent, "all of paris' messages")
        await until(lambda: len(paris.said_by(london)) >= sent, "all of london's messages")
        for one, other in ((london, paris), (paris, london)):
            assert [each.request for each in one.said_by(other)] == list(range(1, sent + 1))
            assert one.of(LinkDown) == []
        new = london.registry.active
        assert new != old
        await until(lambda: paris.registry.keys_of("london") == (new.key.public,), "the new card")
        assert paris.registry.book.pins()["london"] == (new.leaf.certificate,)
        assert paris.level(london) is TrustLevel.APPROVED
        assert any(up.resumed for up in paris.of(LinkUp)), "the port was opened anew"


async def test_a_compromised_key_counts_no_more_at_once(tmp_path):
    async with federation(tmp_path, "london", "paris") as (london, paris):
        await meet(london, paris)
        old = london.registry.active
        await london.order("rotate", compromised=True)
        await until(lambda: old.key.public not in paris.registry.keys_of("london"), "the new card")
        assert old.key.public not in paris.registry.book.lasting_keys_of("london")
        posing = Posing(london.registry, signing_key=old.key)
        assert await try_to_come_in(paris, london, own=posing) in ("bad-signature", None)
        await until(lambda: london.meets(paris), "a session each way")


QUICK = {"rotation_spread_s": 0.1, "rotation_overlap_s": 0.1, "give_up_s": 2.0}


async def rotated(member, old):
    """A member's rotation has come to its end."""
    await until(
        lambda: member.registry.ring.current != old and member.registry.rotation is Rotation.NONE,
        "the end of the rotation",
    )


async def away(tmp_path, nursery):
    """London, and Paris, which knows London and is not there."""
    london, paris = (PeerSite(tmp_path, site, **QUICK) for site in ("london", "paris"))
    for member in (london, paris):
        await member.start(nursery)
        member.settle_down()
    await meet(london, paris)
    await until(lambda: london.registry.book.members["paris"].acknowledged, "its word")
    await paris.stop()
    return london, paris


async def test_new_keys_are_not_used_before_all_have_acknowledged_them(tmp_path):
    async with trio.open_nursery() as nursery:
        london, paris = await away(tmp_path, nursery)
        old = london.registry.ring.current
        assert (await london.order("rotate"))["awaited"] == ["paris"]
        with pytest.raises(BookError, match="in progress already, waiting for paris"):
            await london.order("rotate")
        await london.stop()
        await trio.sleep(5 * QUICK["rotation_spread_s"])  # nothing happens meanwhile: it is down
        await london.start(nursery)
        assert london.registry.turn() == ""
        assert london.registry.rotation is Rotation.SPREADING
        assert (await london.order("known"))["awaited"] == ["paris"]
        await paris.start(nursery)
        await rotated(london, old)
        assert london.told("the new keys are in use")
        new = london.registry.ring.current.key.public
        await until(lambda: paris.registry.keys_of("london") == (new,), "the new card")
        await until(lambda: london.meets(paris), "a session, once ports are open anew")
        await until(lambda: not london.registry.ring.retired, "the end of the old keys")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("rotations", [1, 3])
async def test_who_was_away_while_keys_were_rotated_is_met_by_the_old_and_told(tmp_path, rotations):
    async with trio.open_nursery() as nursery:
        london, paris = await away(tmp_path, nursery)
        for _ in range(rotations):
            old = london.registry.ring.current
            assert (await london.order("rotate", force=True))["awaited"] == ["paris"]
            await rotated(london, old)
        await london.stop()
        await london.start(nursery)
        new = london.registry.ring.current.key.public
        await paris.start(nursery)
        assert new not in paris.registry.keys_of("london")
        await until(lambda: paris.registry.keys_of("london") == (new,), "the new card")
        await until(lambda: london.meets(paris), "a session each way")
        assert paris.level(london) is TrustLevel.APPROVED
        await until(lambda: not london.registry.ring.retired, "the end of the old keys")
        assert not list(london.registry.folder.glob("leaf-*.pem"))
        nursery.cancel_scope.cancel()


async def test_both_may_have_rotated_while_they_were_parted(tmp_path):
    async with trio.open_nursery() as nursery:
        london, paris = await away(tmp_path, nursery)
        for one in (london, paris):
            if one is paris:
                await london.stop()
                await paris.start(nursery)
            old = one.registry.ring.current
            await one.order("rotate", force=True)
            await rotated(one, old)
        await london.start(nursery)
        await until(lambda: london.meets(paris), "a session each way")
        nursery.cancel_scope.cancel()


async def test_who_only_dials_learns_the_new_keys_where_it_dials(tmp_path):
    async with trio.open_nursery() as nursery:
        london = PeerSite(tmp_path, "london", **QUICK)
        paris = PeerSite(tmp_path, "paris", **{**QUICK, "listen": ""})
        for member in (london, paris):
            await member.start(nursery)
        london.settle_down()
        await paris.join(london)
        await paris.approve(london)
        await london.approve(paris)
        await until(lambda: "london" in paris.peers.links.up, "a session")
        await until(lambda: london.registry.book.members["paris"].acknowledged, "its word")
        await paris.stop()
        old = london.registry.ring.current
        await london.order("rotate", force=True)
        await rotated(london, old)
        await paris.start(nursery)
        await until(lambda: "london" in paris.peers.links.up, "a session")
        assert paris.told("shows a TLS leaf")
        assert paris.registry.keys_of("london") == (london.registry.ring.current.key.public,)
        nursery.cancel_scope.cancel()


async def test_whose_cards_do_not_lead_to_its_new_keys_is_not_let_in_and_the_log_says_so(tmp_path):
    async with trio.open_nursery() as nursery:
        london, paris = await away(tmp_path, nursery)
        await london.order("rotate", compromised=True)
        london.registry.book.own.lineage.clear()  # nor does it have the cards in between
        london.registry.save()
        known = london.registry.book.own.card.content.keys
        await paris.start(nursery)
        await until(lambda: paris.told("no cards that lead from the known one"), "the refusal")
        assert paris.told("shows a TLS leaf")
        assert paris.registry.keys_of("london") != known
        assert not london.meets(paris)
        # Its operator reads the fingerprint of the new ones to the operator of Paris.
        shown = london.registry.book.own.fingerprint
        assert paris.told("run `gridfed approve london FINGERPRINT --new-keys`")
        await until(lambda: london.told(f"`gridfed approve london {shown} --new-keys`"), "its line")
        (problem,) = paris.peers.key_problems().values()
        assert "no cards that lead" in problem
        await paris.order("approve", site="london", fingerprint=shown, new_keys=True)
        await until(lambda: london.meets(paris), "a session each way")
        assert paris.registry.keys_of("london") == known
        assert paris.peers.key_problems() == {}
        nursery.cancel_scope.cancel()


async def test_a_gateway_that_starts_anew_is_met_anew(tmp_path):
    async with trio.open_nursery() as nursery:
        london, paris = PeerSite(tmp_path, "london"), PeerSite(tmp_path, "paris")
        await london.start(nursery)
        await paris.start(nursery)
        await meet(london, paris)
        boot = paris.registry.boot
        await paris.stop()
        await until(lambda: london.of(LinkDown), "paris' goodbye")
        await paris.start(nursery)
        assert paris.registry.boot > boot
        assert paris.level(london) is TrustLevel.APPROVED
        await until(lambda: london.meets(paris), "a session each way")
        nursery.cancel_scope.cancel()


async def test_declarations_that_are_not_believed_change_nothing_and_are_logged(tmp_path):
    async with federation(tmp_path, "london", "paris", "essex") as (london, paris, essex):
        await meet(london, paris)
        forged = essex.registry.book.own.card.raw
        noise = SignedDeclarations([forged, b"noise"], [b"\xc1"], [b""], [b"\x93"])
        for _ in range(2):
            paris.peers.links.post("london", noise)
        paris.peers.links.post("london", Ask(1, "status", {}))
        paris.peers.flush(trio.current_time())
        await until(lambda: london.said_by(paris), "what came after it")
        assert london.told("paris passed on an invalid notice: wrong-federation")
        assert set(london.registry.book.members) == {"paris"}
        assert london.meets(paris)


async def test_a_member_that_renews_its_card_without_end_cuts_off_nobody(tmp_path, monkeypatch):
    async with federation(tmp_path, "london", "paris", "lyon") as (london, paris, lyon):
        await meet(london, paris, lyon)
        reopening = london.peers._reopening
        await until(lambda: not reopening._is_wanted, "the last new pins")
        opened, port = [], london.peers._port
        monkeypatch.setattr(
            port, "reopen", lambda tls: (opened.append(0), NngPort.reopen(port, tls))
        )
        was, key = lyon.registry.book.own.card.content, lyon.registry.signing_key
        begun_s = trio.current_time()
        for number in range(1, 36):  # 7 a second
            leaves = (*was.leaves, make_leaf("lyon", ["127.0.0.1"], was.issued_s).certificate)
            new = sign(replace(was, leaves=leaves, serial=was.serial + number), key)
            london.peers._learn("paris", pack_words([("card", new.raw)]))
            await trio.sleep(1 / 7)
        await until(lambda: opened, "the first of the new pins")
        took_s = trio.current_time() - begun_s
        # It waits twice as long each time, from a second on: four in five seconds.
        assert len(opened) <= 2 + math.log2(1 + took_s / REOPEN_MIN_S)
        await until(lambda: london.meets(paris), "a session each way")


async def test_a_flood_of_invented_cards_is_read_in_slices_and_most_of_it_left(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("gateway.peering.peers.SLICE_S", 0.0)  # one declaration at a time
    async with federation(tmp_path, "london", "paris") as (london, paris):
        await meet(london, paris)
        invented = [
            card(f"made-up-{number}", federation=london.registry.federation).raw
            for number in range(2 * PER_SOURCE_MAX)
        ]
        paris.peers.links.post("london", SignedDeclarations(invented, [], [], []))
        paris.peers.links.post("london", Ask(1, "status", {}))
        paris.peers.flush(trio.current_time())
        await until(lambda: london.said_by(paris), "what came after it")
        assert len(london.registry.book.hearsay) < PER_SOURCE_MAX  # before all of it was read
        await until(
            lambda: london.told(f"has reported {PER_SOURCE_MAX} sites by hearsay"),
            "the end of the flood",
        )
        await until(lambda: (london.registry.folder / "hearsay.json").exists(), "the file")
        assert set(london.registry.book.members) == {"paris"}
        assert london.meets(paris)
        await london.order("known", **{"from": "paris", "forget": True})
        assert len(london.registry.book.hearsay) == 0


async def test_a_flood_of_messages_is_heard_part_by_part_both_ways(tmp_path):
    many = 3_000
    async with federation(tmp_path, "london", "paris") as (london, paris):
        await meet(london, paris)
        heard = london.news, paris.link_news
        most, is_over = 0, False

        async def count():
            nonlocal most
            while not is_over:
                before = [len(each) for each in heard]
                await trio.lowlevel.checkpoint()  # all others that can run run once
                most = max(most, *(len(e) - b for e, b in zip(heard, before, strict=True)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            for number in range(many):
                paris.peers.links.post("london", Ask(number, "status", {}))
                london.peers.answer(london.peer(paris), Answer(number, "", "", None))
            london.peers.flush(trio.current_time())
            paris.peers.flush(trio.current_time())
            await until(lambda: len(london.said_by(paris)) == many, "all that Paris asks")
            await until(lambda: len(paris.of(LinkSaid)) == many, "all that London answers")
            is_over = True
        assert [each.request for each in london.said_by(paris)] == list(range(many))
        assert [each.message.request for each in paris.of(LinkSaid)] == list(range(many))
        assert most <= 4 * TURN_MAX  # several tasks may each have a turn between two looks


async def test_a_new_session_of_a_site_ends_its_old_one(tmp_path):
    async with federation(tmp_path, "london", "paris") as (london, paris):
        await meet(london, paris)
        first = london.peer(paris)
        assert isinstance(await try_to_come_in(london, paris), Opened)
        await until(lambda: any(each.peer is first for each in london.of(PeerLeft)), "its end")
        names = [each.name for each in london.peers.listener.peers.values()]
        assert names.count("paris") == 1


def test_an_order_is_logged_without_what_lets_somebody_in():
    line = shown("join", {"invitation": "gfi1_secret", "approve": True, "reason": None})
    assert line == "order: join a federation with an invitation"
    assert shown("known", {}) == ""
    assert len(shown("trust", {"site": "x" * 10_000})) < 1000
