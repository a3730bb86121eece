"""The answers about the federation."""

from types import SimpleNamespace

from support.pure.parts import whole

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
