"""Sites that other members alone tell of: bounded, apart from the book, no squatting of names."""

import json
import threading
from types import SimpleNamespace

import pytest
from support.pure.site_keys import FEDERATION, NOW_S, card, folder_of_london, key

from federation.signed.declarations import DeclarationOrder, Farewell, sign
from federation.signed.identity import TrustRefusal, Untrusted, fingerprint
from gateway.peering.orders import BadOrder, perform
from gateway.trust import book_file
from gateway.trust.book import TrustBook
from gateway.trust.hearsay import FORGOTTEN_MAX, PER_SOURCE_MAX, TOLD_MAX, Hearsay
from gateway.trust.identity_store import HEARSAY_FILE, TRUST_FILE, Registry
from gateway.trust.invitations import Invitations
from gateway.trust.permissions import ANY
from gateway.trust.standing import TrustLevel


@pytest.fixture
def book():
    """London's, with Paris and Berlin approved."""
    made = TrustBook(card("london"))
    for site in ("paris", "berlin"):
        made.admit(card(site), NOW_S, approve=True)
    return made


def tell(book, source, site, by=None, **details):
    """A member passes on a card; `by` is the name of the key."""
    return book.note("card", card(site, [by or site], **details).raw, NOW_S, source)


def refusal(call, *args, **details):
    with pytest.raises(Untrusted) as caught:
        call(*args, **details)
    return caught.value.refusal


def print_of(site, by):
    return fingerprint(site, key(by).public)


def test_what_a_member_tells_is_known_and_not_in_the_book(book):
    assert tell(book, "paris", "lyon") is DeclarationOrder.NEWER
    assert tell(book, "berlin", "lyon") is DeclarationOrder.NEWER
    assert tell(book, "paris", "lyon") is DeclarationOrder.SAME
    assert book.level("lyon") is TrustLevel.KNOWN
    assert book.keys_of("lyon") == (key("lyon").public,)
    assert "lyon" not in book.members
    assert book.hearsay.sources_of("lyon") == ["berlin", "paris"]


def test_a_member_tells_of_so_many_and_takes_no_room_of_others(book):
    for number in range(PER_SOURCE_MAX):
        tell(book, "berlin", f"made-up-{number}")
    assert refusal(tell, book, "berlin", "one-more") is TrustRefusal.FULL
    assert tell(book, "berlin", "made-up-0", serial=200) is DeclarationOrder.NEWER
    assert tell(book, "paris", "lyon") is DeclarationOrder.NEWER
    assert (
        tell(book, "berlin", "paris", serial=200) is DeclarationOrder.NEWER
    )  # of whom we know there is room


def test_what_is_over_the_bound_is_not_verified(book):
    for number in range(PER_SOURCE_MAX):
        tell(book, "berlin", f"made-up-{number}")
    raw = bytearray(card("one-more").raw)
    raw[-1] ^= 1
    assert refusal(book.note, "card", bytes(raw), NOW_S, "berlin") is TrustRefusal.FULL


def test_all_members_together_tell_of_so_many():
    hearsay = Hearsay()
    for number in range(TOLD_MAX):
        source, site = f"source-{number // PER_SOURCE_MAX}", f"site-{number % PER_SOURCE_MAX}"
        hearsay.put(source, _member(site))
    assert refusal(hearsay.check_room, "another", "site-x") is TrustRefusal.FULL
    hearsay.drop_source("source-0")
    hearsay.check_room("another", "site-x")


def _member(site):
    return SimpleNamespace(card=SimpleNamespace(content=SimpleNamespace(site=site)))


def test_a_name_is_not_squatted_by_who_tells_of_it_first(book):
    tell(book, "berlin", "tokyo", by="a liar's")
    tell(book, "paris", "tokyo")
    assert book.find("tokyo").fingerprint == print_of("tokyo", "a liar's")  # one each: the first
    book.approve("tokyo", print_of("tokyo", "tokyo"))  # but an operator has compared
    assert book.keys_of("tokyo") == (key("tokyo").public,)
    assert refusal(tell, book, "berlin", "tokyo", by="a liar's", serial=900) is (
        TrustRefusal.NOT_SUCCESSOR
    )


def test_of_two_keys_the_one_counts_that_most_members_tell_of(book):
    book.admit(card("cork"), NOW_S, approve=True)
    tell(book, "berlin", "tokyo", by="a liar's", serial=900)
    tell(book, "paris", "tokyo")
    tell(book, "cork", "tokyo", serial=101)
    assert book.keys_of("tokyo") == (key("tokyo").public,)
    assert book.find("tokyo").card.content.serial == 101


def test_cards_of_one_rotation_are_of_one_site(book):
    book.admit(card("cork"), NOW_S, approve=True)
    tell(book, "berlin", "tokyo", by="a liar's")
    book.note("card", card("tokyo", ["tokyo", "t2"], serial=150).raw, NOW_S, "paris")
    after = card("tokyo", ["t2"], serial=200, past=(key("tokyo").public,))
    book.note("card", after.raw, NOW_S, "cork")
    assert book.keys_of("tokyo") == (key("t2").public,)


def test_an_invitation_takes_the_place_of_hearsay(book):
    tell(book, "berlin", "tokyo", by="a liar's")
    tell(book, "paris", "tokyo", by="another liar's")
    assert book.admit(card("tokyo"), NOW_S, approve=False) is TrustLevel.PENDING
    assert book.keys_of("tokyo") == (key("tokyo").public,)
    assert "tokyo" not in book.hearsay


def test_a_site_about_which_the_operator_decides_goes_into_the_book(book):
    for site in ("lyon", "rome", "oslo"):
        tell(book, "paris", site)
    book.welcome("lyon", users=True)
    book.trust("rome", [])
    book.approve("oslo", book.find("oslo").fingerprint)
    assert {"lyon", "rome", "oslo"} <= book.members.keys()
    assert len(book.hearsay) == 0
    book.trust(ANY, [])


def test_a_farewell_is_the_end_of_hearsay_of_who_signed_it(book):
    tell(book, "paris", "lyon")
    tell(book, "berlin", "lyon", by="another")
    tell(book, "paris", "rome")
    said = sign(Farewell(FEDERATION, "lyon", 500, NOW_S), key("lyon"))
    assert book.note("farewell", said.raw, NOW_S, "paris") is DeclarationOrder.OLDER
    assert book.hearsay.sources_of("lyon") == ["berlin"]
    assert book.hearsay.sites == ["lyon", "rome"]


def test_what_an_expelled_member_told_is_forgotten(book):
    tell(book, "berlin", "made-up")
    tell(book, "paris", "lyon")
    book.expel("berlin", "", key("london"), NOW_S)
    assert book.hearsay.sites == ["lyon"]


def test_what_is_forgotten_is_not_taken_again_from_the_same_member(book):
    tell(book, "berlin", "made-up")
    tell(book, "berlin", "lyon")
    assert book.hearsay.forget("berlin") == ["lyon", "made-up"]
    assert book.level("made-up") is None
    assert refusal(tell, book, "berlin", "made-up") is TrustRefusal.FULL
    assert tell(book, "paris", "lyon") is DeclarationOrder.NEWER
    book.hearsay.note_forgotten("berlin", map(str, range(2 * FORGOTTEN_MAX)))
    assert len(book.hearsay.forgotten("berlin")) == FORGOTTEN_MAX


def test_others_are_told_of_what_they_would_take(book):
    for number in range(PER_SOURCE_MAX):
        tell(book, "berlin", f"made-up-{number}")
    for source in ("paris", "berlin"):
        book.hearsay.put(source, book.hearsay.member("made-up-7"))
    for number in range(5):
        tell(book, "paris", f"z-{number}")
    passed = book.hearsay.to_pass_on()
    assert len(passed) == PER_SOURCE_MAX
    assert passed[0] == "made-up-7"


# --- on disk -------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    return folder_of_london(tmp_path / "federation")


def opened(folder):
    return Registry(folder, clock=lambda: NOW_S)


def words(count, name="made-up"):
    return [("card", card(f"{name}-{number}").raw) for number in range(count)]


def test_hearsay_is_in_a_file_of_its_own_and_comes_back(folder):
    registry = opened(folder)
    assert registry.note(words(3), "berlin") == []
    registry.book.hearsay.note_forgotten("paris", ["ghost"])
    assert not (folder / HEARSAY_FILE).exists()  # nothing is written in the loop
    registry.take_noted()()
    assert "made-up" not in (folder / TRUST_FILE).read_text()
    again = opened(folder)
    assert again.book.hearsay.told_by("berlin") == ["made-up-0", "made-up-1", "made-up-2"]
    assert again.book.hearsay.forgotten("paris") == ["ghost"]
    assert again.book.level("made-up-1") is TrustLevel.KNOWN
    assert (folder / HEARSAY_FILE).stat().st_mode & 0o777 == 0o600


def test_a_flood_of_invented_cards_takes_little_and_leaves_little(folder):
    registry = opened(folder)
    before = (folder / TRUST_FILE).stat().st_size
    refused = registry.note(words(PER_SOURCE_MAX + 300), "berlin")
    assert {error.refusal for error in refused} == {TrustRefusal.FULL}
    assert len(refused) == 300
    assert len(registry.take_news()) == PER_SOURCE_MAX
    registry.take_noted()()
    assert registry.take_noted() is None
    assert (folder / TRUST_FILE).stat().st_size == before
    assert len([kind for kind, _ in registry.words() if kind == "card"]) == 3 + PER_SOURCE_MAX


def test_what_is_written_late_does_not_undo_what_was_written_since(folder):
    registry = opened(folder)
    registry.note(words(1), "berlin")
    late = registry.take_noted()
    registry.book.approve("made-up-0", registry.book.find("made-up-0").fingerprint)
    registry.save()
    thread = threading.Thread(target=late)
    thread.start()
    thread.join()
    again = opened(folder)
    assert again.level("made-up-0") is TrustLevel.APPROVED
    assert len(again.book.hearsay) == 0


def test_a_file_of_an_earlier_version_loses_all_but_some_of_its_hearsay(folder):
    registry = opened(folder)
    plain = book_file.to_plain(registry.book, Invitations())
    template = plain["sites"]["paris"] | {"level": "known", "level_serial": 0}
    for number in range(500):
        raw = card(f"old-{number}").raw
        plain["sites"][f"old-{number}"] = template | {"card": book_file._base64(raw)}
    (folder / TRUST_FILE).write_text(json.dumps(plain))
    again = opened(folder)
    assert set(again.book.members) == {"paris", "berlin"}
    assert len(again.book.hearsay.told_by("")) == PER_SOURCE_MAX
    again.save()
    assert "old-" not in (folder / TRUST_FILE).read_text()
    assert len(opened(folder).book.hearsay) == PER_SOURCE_MAX


def test_a_damaged_file_of_hearsay_may_be_removed(folder):
    (folder / HEARSAY_FILE).write_text("{}")
    (folder / HEARSAY_FILE).chmod(0o600)
    with pytest.raises(book_file.TrustFileError, match="remove the file"):
        opened(folder)
    (folder / HEARSAY_FILE).unlink()
    opened(folder)


# --- the operator --------------------------------------------------------------------------------


async def test_an_operator_lists_what_a_member_has_told_and_forgets_it(folder):
    registry = opened(folder)
    registry.note(words(2), "berlin")
    registry.note(words(1, "other"), "paris")
    every = {each["site"]: each for each in (await perform(registry, "known", {}))["sites"]}
    assert every["made-up-0"]["from"] == ["berlin"]
    assert every["paris"]["from"] == []
    told = await perform(registry, "known", {"from": "berlin"})
    assert [each["site"] for each in told["sites"]] == ["made-up-0", "made-up-1"]
    await perform(registry, "known", {"from": "berlin", "forget": True})
    again = opened(folder)
    assert again.book.hearsay.sites == ["other-0"]
    assert again.book.hearsay.forgotten("berlin") == ["made-up-0", "made-up-1"]
    with pytest.raises(BadOrder, match="reports: paris"):
        await perform(registry, "known", {"from": "berlin", "forget": True})
    with pytest.raises(BadOrder, match="forget needs"):
        await perform(registry, "known", {"forget": True})
