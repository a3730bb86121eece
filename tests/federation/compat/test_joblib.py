"""joblib, and scikit-learn under it, on a real gateway: results equal those of a plain loop."""

import multiprocessing
import threading
import time
import weakref

import joblib
import numpy as np
import pytest
from joblib import Parallel, delayed, parallel_config
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

from federation import ObjectLost
from federation.compat import joblib as backend
from federation.errors import RemoteTraceback

pytestmark = pytest.mark.real
LIMIT_S = 300.0


@pytest.fixture
def grid(client):
    backend.register(client)
    with parallel_config(backend="gridfed"):
        yield client


def square(x):
    return x * x


def facts(array, more=None):
    """The sum of an array, whether it is a view of an object, and the class."""
    inner = array if more is None else more["arrays"][0]
    return float(inner.sum()), inner.flags.writeable, type(inner).__name__


def inner_loop(n):
    def name(x):
        from joblib.parallel import get_active_backend

        return type(get_active_backend()[0]).__name__

    return Parallel(n_jobs=2)(delayed(name)(x) for x in range(n))


def chosen_inner_loop(n):
    from federation.compat.joblib import register

    register()
    with parallel_config(backend="gridfed", n_jobs=-1):
        return sum(Parallel()(delayed(square)(x) for x in range(n)))


def fail(x):
    if x == 3:
        raise ValueError("no price for 3")
    return x


def wait_for(path, begun):
    begun.touch()
    while not path.exists():
        time.sleep(0.01)


def test_all_slots_are_used_by_default(grid):
    assert joblib.effective_n_jobs(-1) == grid._max_workers == 2
    assert joblib.effective_n_jobs(5) == 5
    with pytest.raises(ValueError, match="n_jobs == 0"):
        Parallel(n_jobs=0)(delayed(square)(x) for x in range(2))
    assert Parallel()(delayed(square)(x) for x in range(10)) == [x * x for x in range(10)]
    (job,) = grid.jobs(1)
    assert job["name"] == "square"


def test_small_calls_go_in_batches(grid):
    view = grid.options(name="batched")
    with parallel_config(backend="gridfed", client=view):
        assert Parallel()(delayed(square)(x) for x in range(2_000)) == [x * x for x in range(2_000)]
    (job,) = grid.jobs(1, name="square")
    assert 2 <= job["tasks"] < 1_000


def test_one_job_runs_in_this_process(grid):
    here = threading.get_ident()
    assert set(Parallel(n_jobs=1)(delayed(threading.get_ident)() for _ in range(3))) == {here}


def test_large_arguments_are_objects_wherever_they_are(grid):
    large, small = np.ones(300_000), np.ones(10)
    found = Parallel()(delayed(facts)(each) for each in [large, small, large])
    assert found == [(3e5, False, "ndarray"), (10.0, True, "ndarray"), (3e5, False, "ndarray")]
    inside = Parallel()(delayed(facts)(small, more={"arrays": [large]}) for _ in range(2))
    assert inside == [(3e5, False, "ndarray")] * 2
    assert (
        Parallel(max_nbytes=None)(delayed(facts)(large) for _ in range(2))
        == [(3e5, True, "ndarray")] * 2
    )


def test_a_mapped_file_is_an_object_too(grid, tmp_path):
    joblib.dump(np.ones(300_000), tmp_path / "cube")
    mapped = joblib.load(tmp_path / "cube", mmap_mode="r")
    assert Parallel()(delayed(facts)(mapped) for _ in range(3)) == [(3e5, False, "ndarray")] * 3


def test_arguments_travel_in_calls_where_no_object_can_be_put(grid, monkeypatch):
    from federation import ObjectRefused

    def refuse(*_args, **_named):
        raise ObjectRefused("no room")

    monkeypatch.setattr(type(grid), "put", refuse)
    found = Parallel()(delayed(facts)(np.ones(300_000)) for _ in range(2))
    assert found == [(3e5, True, "ndarray")] * 2


def test_objects_are_let_go_of_after_the_loop(grid):
    array = np.full(300_000, 7.0)
    Parallel()(delayed(facts)(array) for _ in range(2))
    reference = grid.put(array)
    digest = reference.digest
    assert reference.where()
    reference.release()
    assert digest.partition(":")[0] in {"b3", "s2"}
    with pytest.raises(ObjectLost):
        reference.result()


def test_values_of_batches_that_have_ended_are_let_go_of_within_the_loop(grid, monkeypatch):
    put, values, leases = type(grid).put, [], weakref.WeakSet()
    most = {"values": 0, "objects": 0}

    def noted(client, value, **named):
        reference = put(client, value, **named)
        leases.add(reference.lease)
        return reference

    def scenarios():
        for number in range(50):
            array = np.full(200_000, float(number))
            values.append(weakref.finalize(array, int))
            most["values"] = max(most["values"], sum(each.alive for each in values))
            most["objects"] = max(most["objects"], len(leases))
            yield delayed(facts)(array)

    monkeypatch.setattr(type(grid), "put", noted)
    found = Parallel(batch_size=1)(scenarios())
    assert [each[0] for each in found] == [2e5 * number for number in range(50)]
    assert most["values"] <= 15, most
    assert most["objects"] <= 15, most


def test_a_value_that_all_calls_share_is_put_once(grid, monkeypatch):
    put, puts, book = type(grid).put, [], np.ones(300_000)

    def noted(client, value, **named):
        puts.append(len(puts))
        return put(client, value, **named)

    monkeypatch.setattr(type(grid), "put", noted)
    found = Parallel(batch_size=1, pre_dispatch=1)(delayed(facts)(book) for _ in range(20))
    assert found == [(3e5, False, "ndarray")] * 20
    assert puts == [0]


@pytest.mark.parametrize("inner", [inner_loop, chosen_inner_loop])
def test_loops_within_tasks_end(grid, inner):
    """More of them than slots, and each waits for its own."""
    found = Parallel()(delayed(inner)(n) for n in range(8))
    if inner is inner_loop:
        assert found == [["SequentialBackend"] * n for n in range(8)]
    else:
        assert found == [sum(x * x for x in range(n)) for n in range(8)]


def test_an_error_ends_the_loop_and_the_next_one_works(grid):
    with pytest.raises(ValueError, match="no price for 3") as caught:
        Parallel()(delayed(fail)(x) for x in range(1_000))
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert Parallel()(delayed(square)(x) for x in range(3)) == [0, 1, 4]


def test_a_loop_that_times_out_leaves_no_slot_busy(grid, tmp_path):
    never, begun = tmp_path / "never", tmp_path / "begun"
    with pytest.raises(multiprocessing.TimeoutError):
        Parallel(timeout=0.2)(delayed(wait_for)(never, begun) for _ in range(4))
    assert Parallel()(delayed(square)(x) for x in range(3)) == [0, 1, 4]


def test_results_as_they_come(grid):
    found = Parallel(return_as="generator_unordered")(delayed(square)(x) for x in range(20))
    assert sorted(found) == [x * x for x in range(20)]
    with Parallel() as parallel:
        for _ in range(3):
            assert parallel(delayed(square)(x) for x in range(4)) == [0, 1, 4, 9]


def test_options_of_the_client_are_options_of_the_backend(grid):
    with parallel_config(backend="gridfed", project="risk", priority=3):
        assert Parallel()(delayed(square)(x) for x in range(2)) == [0, 1]
        large = np.ones(300_000)
        assert Parallel()(delayed(facts)(large) for x in range(2))[0][1] is False
    assert [job["project"] for job in grid.jobs(2)] == ["risk", "risk"]


def test_without_a_client_one_is_made(shared_site, monkeypatch):
    monkeypatch.setenv("GRIDFED_GATEWAY", shared_site.address)
    monkeypatch.setattr(backend, "_shared", None)
    backend.register()
    with parallel_config(backend="gridfed"):
        assert Parallel()(delayed(square)(x) for x in range(3)) == [0, 1, 4]
        made = backend._default_client()
        assert backend._default_client() is made
        made.shutdown()
        assert Parallel()(delayed(square)(x) for x in range(3)) == [0, 1, 4]
    backend._default_client().shutdown()


def models():
    x, y = make_classification(n_samples=8_000, n_features=20, random_state=0)
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0, 10.0]}, cv=3).fit(x, y)
    scores = cross_val_score(RandomForestClassifier(8, random_state=1), x[:900], y[:900], cv=3)
    forest = RandomForestClassifier(8, random_state=2).fit(x, y)
    return (
        search.best_params_,
        search.cv_results_["mean_test_score"].tolist(),
        scores.tolist(),
        forest.predict_proba(x[:50]).tolist(),
    )


def test_models_of_scikit_learn_are_those_of_a_plain_loop(client):
    plain = models()
    backend.register(client)
    with parallel_config(backend="gridfed"):
        assert models() == plain
    names = {job["name"] for job in client.jobs(10)}
    assert {"_fit_and_score", "_parallel_build_trees"} <= names
