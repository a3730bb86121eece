"""The hosts and workers that operators drain."""

from types import SimpleNamespace

import pytest

from gateway.scheduler.model.events import DrainKind, DrainOrdered
from gateway.scheduler.quotas.drains import StandingDrains, host_names


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("Lon3.Example.org.", ("lon3.example.org", "lon3")),
        ("lon3", ("lon3",)),
        ("", ()),
    ],
)
def test_a_host_is_drained_with_or_without_its_domain_and_never_by_no_name(host, names):
    assert host_names(host) == names


def test_a_contract_with_another_site_is_never_drained_by_a_name():
    drains = StandingDrains()
    for target in DrainKind:
        drains.take(DrainOrdered(target, "w", on=True))
    assert drains.cover(SimpleNamespace(name="w", host="", job=""))
    assert drains.cover(SimpleNamespace(name="x", host="w", job=""))
    assert not drains.cover(SimpleNamespace(name="w", host="w", job="j"))
    assert not drains.cover(SimpleNamespace(name="x", host="", job=""))
    drains.take(DrainOrdered(DrainKind.WORKER, "w", on=False))
    assert (len(drains), drains.has(DrainKind.HOST, "w")) == (1, True)
