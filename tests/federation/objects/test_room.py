"""The texts about room (federation.objects.room)."""

import pytest

from federation.objects.room import too_large, with_advice

TEXT = too_large("builtins.bytes", 70_000_000, 67_108_864)


def test_a_result_that_is_too_large_says_what_helps_anyone():
    assert TEXT == (
        "the result, of type builtins.bytes, has 70,000,000 bytes, the limit is 67,108,864: return "
        "less data, or write it to a file and return its name"
    )


@pytest.mark.parametrize(
    ("results", "advice"),
    [
        (None, "submit_job keeps results as values; of submit and map large results stay"),
        ("", 'with results="auto" in a client on the own host of the gateway large results stay'),
        ("auto", "it ran where no result can stay as an object: at another host, or another site"),
        ("ref", "it ran where no result can stay as an object"),
    ],
)
def test_the_client_adds_what_it_can_do(results, advice):
    said = with_advice(f"{TEXT}\nat worker w", results)
    first, second = said.split("\n")
    assert first.startswith(f"{TEXT}; {advice}")
    assert second == "at worker w"


@pytest.mark.parametrize(
    "text", ["the result, of type a.b, can't be pickled: no", f"{TEXT}, or by an older worker"]
)
def test_other_texts_stay(text):
    assert with_advice(text, None) == text
