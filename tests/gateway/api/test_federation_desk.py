"""The answers about the federation."""

from types import SimpleNamespace

from support.pure.parts import whole

from federation.client import EXPLAINED
from gateway.api import federation_desk
from gateway.trust.rights import Asker
from policies.parties import Owner


def test_another_users_job_is_as_if_it_never_was():
    live = SimpleNamespace(whose=Owner("ada", project="risk"))
    site = SimpleNamespace(
        runtime=SimpleNamespace(utc_s=lambda: 1.0),
        broker=SimpleNamespace(jobs={"j-8": live}),
        exchange=SimpleNamespace(refresh=lambda utc_s, without: None),
    )
    for name in ("j-7", "j-8"):
        assert whole(federation_desk.explain(site, {"job": name}, Asker(1, "bob"))) is None


def test_a_client_asks_with_all_terms_that_are_explained():
    """A term that is left out would be explained as its default: the answer would be another's."""
    assert set(EXPLAINED) == set(federation_desk._TERMS)
