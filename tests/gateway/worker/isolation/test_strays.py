"""The owner of things that outlive a process."""

import os
from types import SimpleNamespace

import pytest

from gateway.worker.isolation import host_environments, strays


@pytest.fixture
def on_node(monkeypatch):
    def go(name):
        monkeypatch.setattr(strays.os, "uname", lambda: SimpleNamespace(nodename=name))

    return go


def test_who_is_gone_is_told_from_who_is_elsewhere(on_node):
    on_node("node1")
    mine = strays.owner_of(os.getpid())
    _, began, whereabouts = mine.split("-")
    assert strays.lives(mine)
    assert not strays.lives(f"{os.getpid()}-{int(began) + 1}-{whereabouts}")
    assert strays.lives(f"{os.getpid()}-{began}-7")
    assert not strays.lives("nonsense")


def test_an_agent_lets_folders_of_other_nodes_be(on_node, tmp_path, monkeypatch):
    """Where TMPDIR is on a disk that a cluster's nodes share; each has the same first namespace."""
    monkeypatch.setattr(host_environments.tempfile, "gettempdir", lambda: str(tmp_path))
    gone = {}
    for node in ("node1", "node2"):
        on_node(node)
        pid, _, whereabouts = strays.owner_of(os.getpid()).split("-")
        gone[node] = tmp_path / f"{host_environments.PREFIX}{pid}-1-{whereabouts}-abc"
        gone[node].mkdir()
    # We are node2, and this process is not the one that began first.
    host_environments._remove_strays()
    assert [each.exists() for each in gone.values()] == [True, False]
