"""The words of the commands about trust for a site's level."""

import pytest

from gateway.cli.operate.trust.members import _level_of


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({"level": "approved", "rules": [{"may_send": True}]}, "site paris is approved"),
        ({"level": "approved", "rules": [], "rules_of_all": [1]}, "site paris is approved"),
        (
            {"level": "approved", "rules": []},
            "site paris is approved; no rule permits it anything yet: see `gridfed trust --help`",
        ),
        (
            {"level": "known"},
            "site paris is known: approve it (`gridfed approve paris FINGERPRINT`), then say what "
            "it may do",
        ),
        (
            {"level": "pending", "rules": [{"may_send": True}]},
            "site paris is pending: approve it (`gridfed approve paris FINGERPRINT`), then say "
            "what it may do",
        ),
    ],
)
def test_a_level_comes_with_what_is_to_be_done_next(found, text):
    assert _level_of("paris", found) == text
