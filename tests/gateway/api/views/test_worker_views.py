"""The list of workers: its rows, filters and pages."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from gateway.api.views import worker_views
from gateway.api.views.worker_views import WorkerFilter
from gateway.scheduler.model.jobs import Owner


def test_the_user_of_another_site_is_shown_with_its_site_once():
    spec = SimpleNamespace(name="risk")
    whose = Owner("root@london", "", "risk", "london")
    job = SimpleNamespace(id="12ab", spec=spec, whose=whose)
    worker = MagicMock()
    worker.assignments = {1: SimpleNamespace(job=job, left=[1, 2])}
    worker.offer.tags, worker.free, worker.drained_by = {}, {}, ()
    [shown] = worker_views.worker_view(worker, 1.0, [], lambda _job: True)["jobs"]
    assert shown == {"id": "12ab", "name": "risk", "user": "root@london", "tasks": 2}


def worker(handle, name, pool="local", host="h1", *, draining=False):
    offer = SimpleNamespace(pool=pool)
    return SimpleNamespace(handle=handle, name=name, offer=offer, host=host, draining=draining)


WORKERS = [
    worker(5, "d"),
    worker(1, "b", pool="spot", host="h2"),
    worker(2, "c", draining=True),
    worker(3, "a", host="h2"),
    worker(4, "b"),  # of two sessions
]


def shown(**wanted):
    return [each.handle for each in WorkerFilter(**wanted).page(WORKERS)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, [3, 1, 4, 2, 5]),
        ({"pool": "spot"}, [1]),
        ({"host": "h2"}, [3, 1]),
        ({"state": "draining"}, [2]),
        ({"state": "up", "host": "h1"}, [4, 5]),
        ({"after": "b"}, [2, 5]),
        ({"limit": 1}, [3]),
        ({"limit": 2}, [3, 1, 4]),
        ({"limit": 9}, [3, 1, 4, 2, 5]),
        ({"limit": 1, "after": "b", "state": "up"}, [5]),
    ],
)
def test_a_list_has_the_workers_asked_for_in_the_order_of_their_names(wanted, expected):
    assert shown(**wanted) == expected


def test_pages_one_after_the_other_show_each_worker_once():
    seen, after = [], ""
    while page := WorkerFilter(after=after, limit=1).page(WORKERS):
        seen += [each.handle for each in page]
        after = page[-1].name
    assert sorted(seen) == [1, 2, 3, 4, 5]
