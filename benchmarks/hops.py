"""The time of a lone task by hops: stamps at each hop of its way, in all processes, by one clock.

`python -m benchmarks hops`. The monotonic clock is the same in every process of a machine, so
stamps taken where frames are received and sent can be put in order and subtracted.
"""

import atexit
import contextlib
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.floor import empty
from benchmarks.harness import BenchSeries, machine, save
from benchmarks.ours import start
from federation import Client

Stamps = list[tuple[int, str]]
WAYS = {
    ("client: begins", "client: sends"): "client: seal, book and encode",
    ("client: sends", "gateway: has it"): "the hop to the gateway (nng, a wake-up)",
    ("gateway: has it", "gateway: sends"): "gateway: decode, decide, (store,) encode",
    ("gateway: sends", "agent: has it"): "the hop to the agent",
    ("agent: has it", "agent: to slot"): "agent: decode, book, encode",
    ("agent: to slot", "agent: from slot"): "the slot: there, unpickle, run, pickle, and back",
    ("agent: from slot", "agent: sends"): "agent: decode, book, encode the report",
    ("agent: sends", "gateway: has it"): "the hop back to the gateway",
    ("gateway: sends", "client: has it"): "the hop back to the client",
    ("client: has it", "client: ends"): "client: decode, book, resolve the future",
}


def _stamp(stamps: Stamps, owner: Any, name: str, tag: str, *, after: bool = False) -> None:
    """Make a method leave a stamp when it is called, or when it returns something."""
    method: Callable[..., Any] = getattr(owner, name)

    def stamped(*args: Any, **kwargs: Any) -> Any:
        if not after:
            stamps.append((time.perf_counter_ns(), tag))
        result = method(*args, **kwargs)
        if after and result:
            stamps.append((time.perf_counter_ns(), tag))
        return result

    setattr(owner, name, stamped)


def _serve(role: str, path: str, arguments: list[str]) -> None:
    """Run a gateway or a worker that keeps stamps, and writes them when it ends."""
    from federation.sessions.nng import NngLink, NngPort
    from gateway.command import main
    from gateway.worker.agent import Agent
    from gateway.worker.slot.process import SlotProcess

    stamps: Stamps = []
    if role == "gateway":
        _stamp(stamps, NngPort, "receive", "gateway: has it", after=True)
        _stamp(stamps, NngPort, "send", "gateway: sends")
    else:
        _stamp(stamps, NngLink, "receive", "agent: has it", after=True)
        _stamp(stamps, SlotProcess, "send", "agent: to slot")
        _stamp(stamps, Agent, "_slot_says", "agent: from slot")
        _stamp(stamps, NngLink, "send", "agent: sends")
    atexit.register(lambda: Path(path).write_text("\n".join(f"{at} {tag}" for at, tag in stamps)))
    sys.argv = ["gridfed", role, *arguments]
    main()


def _read(path: Path) -> Stamps:
    lines = path.read_text().splitlines()
    return [(int(at), tag) for at, _, tag in (line.partition(" ") for line in lines)]


def hops(repeats: int, quick: bool) -> None:
    """Time a lone task's way, hop by hop, and save it as a table."""
    del repeats  # every task is one
    facts = machine()
    stamps: Stamps = []
    with tempfile.TemporaryDirectory(prefix="gridfed-hops-") as name:
        folder = Path(name)
        address = f"ipc://{folder}/gateway.sock"
        me = [sys.executable, "-m", "benchmarks.hops"]
        listen = ["--listen", address, "--state", str(folder / "state")]
        gateway = start([*me, "gateway", str(folder / "g"), *listen])
        while not (folder / "gateway.sock").exists():
            time.sleep(0.02)
        join = ["--gateway", address, "--slots", "1"]
        worker = start([*me, "worker", str(folder / "w"), *join])
        with Client(address) as client:
            client.submit(empty, 0).result()
            _watch_client(stamps)
            for at in range(300 if quick else 3000):
                stamps.append((time.perf_counter_ns(), "client: begins"))
                client.submit(empty, at).result()
                stamps.append((time.perf_counter_ns(), "client: ends"))
        for process in (worker, gateway):
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
        stamps += _read(folder / "g") + _read(folder / "w")
    save("hops", facts, _series(sorted(stamps)), ["Each row is one step of the way, in order."])


def _watch_client(stamps: Stamps) -> None:
    from federation.sessions.nng import NngLink

    _stamp(stamps, NngLink, "receive", "client: has it", after=True)
    _stamp(stamps, NngLink, "send", "client: sends")


def _series(stamps: Stamps) -> list[BenchSeries]:
    """Return the stretches of the tasks that went the commonest way, in order, and their sum."""
    ways: dict[tuple[str, ...], list[list[int]]] = defaultdict(list)
    way: Stamps = []
    for stamp in stamps:
        if stamp[1] == "client: begins":
            way = []
        way.append(stamp)
        if stamp[1] == "client: ends":
            ways[tuple(tag for _, tag in way)].append([at for at, _ in way])
    tags, _ = Counter({tags: len(found) for tags, found in ways.items()}).most_common(1)[0]
    taken = ways[tags]
    series = []
    for at, (one, other) in enumerate(itertools.pairwise(tags)):
        what = f"{at + 1:02} {WAYS.get((one, other), f'{one} to {other}')}"
        values = [(times[at + 1] - times[at]) / 1000 for times in taken]
        series.append(BenchSeries("gridfed", what, "µs", [statistics.median(values)]))
    whole = [(times[-1] - times[0]) / 1000 for times in taken]
    series.append(BenchSeries("gridfed", "all of it", "µs", [statistics.median(whole)]))
    return series


if __name__ == "__main__":
    os.setpgid(0, 0)  # a Ctrl-C of the benchmark's terminal is not meant for this process
    _serve(sys.argv[1], sys.argv[2], sys.argv[3:])
