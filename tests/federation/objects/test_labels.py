"""Labels of objects (federation.objects.labels)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.objects.labels import UNLABELLED, DataLabel, conflict, meet, read_label

WORDS = st.lists(
    st.sampled_from(["EU", "UK", "DE", "site:paris", "site:rome", "not-site:rome", "not-site:oslo"])
)
PLACES = [(site, where) for site in ("paris", "rome", "oslo") for where in ("EU", "UK", "DE", "")]


def labels():
    """Labels that were read, whatever their words leave."""

    def read(words):
        try:
            return read_label(words)
        except ValueError:
            return UNLABELLED

    return WORDS.map(read)


def allowed(label):
    return {place for place in PLACES if not label.why_not(*place)}


@given(labels(), labels(), labels())
def test_labels_only_narrow(one, two, three):
    both = one.within(two)
    assert allowed(both) == allowed(one) & allowed(two)
    assert both.is_within(one)
    assert both.is_within(two)
    assert meet([one, two, three]).words == meet([three, two, one]).words
    assert one.is_within(both) == (one.words == both.words)
    if both.is_nowhere:
        assert not allowed(both)
    assert bool(conflict([one, two])) == both.is_nowhere


@given(labels())
def test_the_words_of_a_label_are_that_label(label):
    assert read_label(label.words) == label
    assert bool(label) == bool(label.words)
    assert bool(label) == (label != UNLABELLED)


def test_home_is_the_site_that_an_object_is_put_at():
    assert read_label(["home"], "paris") == DataLabel(sites=frozenset({"paris"}))
    with pytest.raises(ValueError, match="home"):
        read_label(["home"])


@pytest.mark.parametrize(
    ("words", "error", "text"),
    [
        ("EU", TypeError, "must be a list"),
        (None, TypeError, "must be a list"),
        ([7], TypeError, "has 7"),
        (["site:"], ValueError, "has 'site:'"),
        (["region:EU"], ValueError, "'region:EU'"),
        ([" EU"], ValueError, "' EU'"),
        (["a/b"], ValueError, "'a/b'"),
        (["x" * 61], ValueError, "it must be"),
        (["a\nb"], ValueError, "it must be"),
        (["X"] * 65, ValueError, "the limit is 64"),
        (["site:rome", "not-site:rome"], ValueError, "no place is left"),
    ],
)
def test_what_is_wrong_with_a_label_is_said(words, error, text):
    with pytest.raises(error, match=text):
        read_label(words)


def test_a_label_says_why_data_may_not_go_to_a_site():
    label = read_label(["EU", "not-site:rome"]).named("object book")
    assert label.why_not("paris", "EU") == ""
    assert label.why_not("tokyo", "JP") == (
        "object book may lie only in EU, not at rome, and site tokyo is in JP"
    )
    assert "an unknown jurisdiction" in label.why_not("paris", "")
    assert label.why_not("rome", "EU")


def test_two_labels_without_a_common_place_are_named():
    eu, us = read_label(["EU"]).named("object a"), read_label(["US"]).named("object b")
    assert conflict([eu, us]) == (
        "object a may lie only in EU, and object b may lie only in US: no place is left for a task "
        "of both"
    )
    assert conflict([eu, eu, UNLABELLED]) == ""
    three = [read_label([f"not-site:{site}"]) for site in ("a", "b")]
    assert "of all" in conflict([*three, read_label(["site:a", "site:b"])])


def test_a_label_that_leaves_no_place_forbids_all_and_is_read_back():
    nowhere = meet([read_label(["EU"]), read_label(["US"])]).named("object a")
    other = read_label(["site:paris"]).within(read_label(["site:rome"]))
    for label in (nowhere, other):
        assert label
        assert label.is_nowhere
        assert not allowed(label)
        assert label.words == ("nowhere",)
        assert read_label(label.words).is_nowhere
        assert label.within(UNLABELLED).is_nowhere
        assert not UNLABELLED.is_within(label)
        assert label.is_within(read_label(["DE"]))
    assert conflict([nowhere]) == "no place is left for a task of all: object a may lie nowhere"
    assert "object a may lie nowhere" in nowhere.why_not("paris", "EU")


def test_labels_of_more_words_than_a_message_may_have_are_refused_together():
    """Their words closed the session of the client that was told them with a result."""
    one, two = (
        read_label([f"not-site:{side}{at}" for at in range(40)]).named(f"object {side}")
        for side in "ab"
    )
    assert "labels of object a, object b have 80 words together, the limit is 64" in conflict(
        [one, two]
    )
    assert conflict([one]) == ""
