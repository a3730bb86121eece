"""A worker's findings on its host, and its texts about missing parts."""

import os

import pytest

from gateway.config.environments import Confines
from gateway.worker.isolation import host_environments
from gateway.worker.isolation.cgroups import CgroupLimits, CgroupsUnavailable
from gateway.worker.isolation.homes import BARE
from gateway.worker.isolation.host_environments import EnvironmentUnavailable, HostEnvironments


def no_groups(_pid):
    raise CgroupsUnavailable("/sys/fs/cgroup/memory/gridfed: Permission denied")


def test_where_no_group_may_be_made_it_says_what_does_not_hold_and_goes_on(monkeypatch):
    monkeypatch.setattr(host_environments, "open_cgroups", no_groups)
    said: list[str] = []
    found = HostEnvironments(None, 100 << 20, said.append, Confines(cpus=1.0))
    found.open()
    assert said == [
        "runs without control groups: /sys/fs/cgroup/memory/gridfed: Permission denied; "
        "memory is monitored, cpus and pids_max are not enforced"
    ]
    launch = found.launch(BARE, os.environ)
    assert launch.group is None
    assert launch.memory_bytes == 100 << 20  # watched, and bounded as address space
    with pytest.raises(EnvironmentUnavailable, match='cgroups = "required" is not possible: /sys'):
        HostEnvironments(None, 100 << 20, said.append, Confines(cgroups="required")).open()


def test_who_wants_no_limit_is_not_told_of_control_groups(monkeypatch):
    monkeypatch.setattr(host_environments, "open_cgroups", no_groups)
    said: list[str] = []
    HostEnvironments(None, 0, said.append).open()
    assert said == []


def test_the_lower_limit_holds_and_none_is_no_limit():
    assert CgroupLimits(5, 0.0, 9).within(CgroupLimits(0, 1.5, 3)) == CgroupLimits(5, 1.5, 3)
    assert CgroupLimits().within(CgroupLimits()) == CgroupLimits()
