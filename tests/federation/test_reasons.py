"""Each named reason has a sentence: people never see a bare code."""

import pytest

from federation.reasons import TEXTS, Reason, reason_text


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_has_a_sentence(reason: Reason) -> None:
    text = reason_text(reason.value)
    assert text == TEXTS[reason]
    assert " " in text
    assert reason.value not in text.split() or "-" not in reason.value


def test_a_code_of_a_newer_party_is_told_as_such() -> None:
    assert reason_text("moon-phase") == "a newer version's reason, 'moon-phase'"
