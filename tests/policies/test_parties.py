"""The parties that a rule means."""

import pytest

from policies.parties import ALL, OTHERS, OURS, Owner, Party, PartyKind, known_party, read_party

ADA = Owner("ada", "quants", "risk")
BEN = Owner("ben@paris", "", "risk", "paris")


@pytest.mark.parametrize(
    ("text", "ada", "ben"),
    [
        ("user:ada", True, False),
        ("user:ben@paris", False, True),
        ("group:quants", True, False),
        ("project:risk", True, True),
        ("site:paris", False, True),
        ("site:lyon", False, False),
        ("ours", True, False),
        ("others", False, True),
        ("all", True, True),
    ],
)
def test_a_party_includes_those_it_names(text, ada, ben):
    party = read_party(text)
    assert (party.includes(ADA), party.includes(BEN)) == (ada, ben)
    assert str(party) == text


def test_a_group_of_ours_is_not_joined_from_another_site():
    there = Owner("ada@paris", "quants", "risk", "paris")
    assert not read_party("group:quants").includes(there)


def test_names_are_read_whole():
    assert read_party("project:a:b") == Party(PartyKind.PROJECT, "a:b")
    assert (read_party("all"), read_party("ours"), read_party("others")) == (ALL, OURS, OTHERS)


@pytest.mark.parametrize(
    "text",
    ["", "ada", "user", "user:", "all:x", "ours:", "site:a\nb", "User:ada", "group:" + "x" * 201],
)
def test_what_names_nobody_is_refused(text):
    with pytest.raises(ValueError, match="is not a party: use one of user:NAME"):
        read_party(text)


@pytest.mark.parametrize(
    ("text", "sign", "alone"),
    [
        ("project:risk guaranteed=80%", "=", "project:risk"),
        ("user:ann, borrows=0", ",", "user:ann"),
        ("site:paris,site:lyon", ",", "site:paris"),
        ("project:fx 80%", "%", "project:fx 80"),
        ("group:quants=3", "=", "group:quants"),
    ],
)
def test_a_setting_that_was_read_as_a_part_of_a_name_is_refused(text, sign, alone):
    with pytest.raises(ValueError, match="is not a party: its name contains") as found:
        read_party(text)
    assert f"{sign!r}; write the party alone ({alone!r})" in str(found.value)
    assert str(known_party(text)) == text  # of a user whose token says so, in books


def test_rights_are_those_of_all_groups_and_the_first_one_counts():
    ann = Owner("ann", "quants", "risk", more_groups=frozenset({"prod"}))
    for group, has_rights, counts in (
        ("quants", True, True),
        ("prod", True, False),
        ("ops", False, False),
    ):
        party = read_party(f"group:{group}")
        assert (party.includes(ann), party.counts(ann)) == (has_rights, counts)
    foreign = Owner("ann@paris", "quants", "risk", "paris", frozenset({"prod"}))
    assert not read_party("group:prod").includes(foreign)
    for text in ("user:ann", "project:risk", "ours", "all", "others", "site:paris"):
        assert read_party(text).counts(ann) is read_party(text).includes(ann)
