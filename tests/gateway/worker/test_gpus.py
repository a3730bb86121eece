"""GPUs are given out by CUDA_VISIBLE_DEVICES, and cores by slot."""

import os
import sys
import time

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.worker.isolation.devices import Devices, gpus_held, share_cores

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def visible():
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def visible_to_both(folder, number):
    """It ends when there are two of it."""
    (folder / str(number)).touch()
    while len(os.listdir(folder)) < 2:
        time.sleep(0.01)
    return os.environ.get("CUDA_VISIBLE_DEVICES")


@pytest.mark.real
def test_a_task_sees_the_gpus_that_it_holds_and_no_others(gateway, start_agent, tmp_path):
    start_agent(gateway, 3, "--tags", "gpu=2", "--gpus", "GPU-a,GPU-b", CUDA_VISIBLE_DEVICES="7")
    worker = gateway.worker()
    assert gateway.assign(worker, visible, [()]).wait().values() == {0: ""}
    folder = tmp_path / "both"
    folder.mkdir()
    works = [
        gateway.assign(worker, visible_to_both, [(folder, each)], holds="gpu=1")
        for each in range(2)
    ]
    assert {work.wait().values()[0] for work in works} == {"GPU-a", "GPU-b"}
    # Both are held by processes that wait: they let go.
    both = gateway.assign(worker, visible, [()], holds="gpu=2").wait().values()
    assert both == {0: "GPU-a,GPU-b"}
    half = gateway.assign(worker, visible, [()], holds="gpu=0.5,ram=3").wait().values()
    assert half[0] in ("GPU-a", "GPU-b")
    assert gateway.assign(worker, visible, [()]).wait().values() == {0: ""}


@pytest.mark.real
def test_a_worker_without_gpus_leaves_the_variable_alone(gateway, start_agent):
    start_agent(gateway, 1, CUDA_VISIBLE_DEVICES="7")
    work = gateway.assign(gateway.worker(), visible, [()], holds="gpu=1")
    assert work.wait().values() == {0: "7"}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=30))
def test_no_gpu_is_held_twice(steps):
    devices = Devices(["a", "b", "c"])
    held = {}
    for slot, gpus in steps:
        devices.release(slot)
        held.pop(slot, None)
        if gpus <= devices.free:
            held[slot] = devices.hold(slot, gpus)
        given_out = [name for names in held.values() for name in names]
        assert len(given_out) == len(set(given_out))
        assert len(given_out) + devices.free == 3


@pytest.mark.parametrize(("amount", "gpus"), [(0, 0), (0.5, 1), (1, 1), (1.5, 2), (2, 2)])
def test_who_asks_for_a_part_has_all_of_it(amount, gpus):
    assert gpus_held(amount) == gpus


@pytest.mark.parametrize(
    ("cores", "slots", "expected"),
    [
        ({0, 1, 2, 3}, 2, [{0, 1}, {2, 3}]),
        ({0, 1, 2}, 2, [{0}, {1, 2}]),
        ({4, 9}, 2, [{4}, {9}]),
        ({4, 9}, 3, [{4}, {9}, {4}]),
        ({5}, 1, [{5}]),
    ],
)
def test_cores_are_shared_out(cores, slots, expected):
    assert share_cores(cores, slots) == expected
