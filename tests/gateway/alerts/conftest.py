"""A place that webhooks are posted to."""

import socket
from collections.abc import Iterator

import pytest
from support.alerts import WebhookServer


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def door() -> Iterator[WebhookServer]:
    made = WebhookServer()
    yield made
    made.close()


@pytest.fixture
def dead_url() -> Iterator[str]:
    """An address where nothing listens, and that no other process gets meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/"
