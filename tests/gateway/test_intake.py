"""What guests may say of themselves."""

import pytest

from gateway.intake import BadWorker, worker_joined


def joins(pool, *pools):
    about = {"slots": 1, "pool": pool, "python": "3.11", "tags": {}}
    return worker_joined(about, 7, "w", {name: {} for name in pools}).pool


def test_a_worker_that_names_no_pool_joins_the_only_one():
    assert joins("", "local") == "local"


def test_a_worker_that_names_no_pool_joins_the_usual_one_of_several():
    assert joins("", "local", "workers") == "workers"


@pytest.mark.parametrize("pool", ["", "nope"])
def test_a_worker_is_told_how_to_choose_a_pool(pool):
    with pytest.raises(BadWorker, match=r"--pool; there are a, b"):
        joins(pool, "a", "b")
