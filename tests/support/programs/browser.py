"""A real browser for tests: Debian's chromium without a window, driven over a pipe.

It speaks the DevTools protocol, JSON messages that end in a zero byte: no library is needed.
"""

import base64
import fcntl
import io
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pytest
from PIL import Image

DEADLINE_S: Final = 300.0
_FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe"),
)


class Browser:
    """One page in a browser of its own: its requests, its errors, and its looks."""

    def __init__(self, profile: Path) -> None:
        program = shutil.which("chromium")
        if program is None:
            pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
        asks_r, asks_w = os.pipe()
        answers_r, answers_w = os.pipe()
        ours = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (asks_r, answers_w)]

        def as_three_and_four() -> None:
            os.dup2(ours[0], 3)
            os.dup2(ours[1], 4)

        self._process = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=as_three_and_four,
            start_new_session=True,
        )
        for fd in (asks_r, answers_w, *ours):
            os.close(fd)
        self._asks, self._answers = asks_w, answers_r
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._loaded = False

    def __enter__(self) -> "Browser":
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
            self.resize(1100, 900)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser, which is a group of processes that we started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(DEADLINE_S)
        os.close(self._asks)
        os.close(self._answers)

    def open(self, file: Path) -> None:
        """Load a file, and wait until it is there with all that it needs."""
        self._loaded = False
        self.call("Page.navigate", url=file.as_uri())
        deadline_s = time.monotonic() + DEADLINE_S
        while not self._loaded:
            self._take(self._read(deadline_s))

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the window, and the user's preferences."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def picture(self, x: float, y: float, width: float, height: float) -> Image.Image:
        """How a part of the page looks, wherever it is."""
        clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
        shot = self.call(
            "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
        )
        return Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")

    def call(self, method: str, **parameters: Any) -> Any:
        """Ask the browser for something."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._asks, json.dumps(message).encode() + b"\0")
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            answer = self._read(deadline_s)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._take(answer)

    def _read(self, deadline_s: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left_s = max(0.0, deadline_s - time.monotonic())
            ready, _, _ = select.select([self._answers], [], [], left_s)
            assert ready, "the browser did not answer in time"
            data = os.read(self._answers, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _take(self, event: dict[str, Any]) -> None:
        details = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(details["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(details["entry"]["text"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(details))
