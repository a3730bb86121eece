"""The clients of a run, each a process: started, killed, replaced, and told to come to an end."""

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.chaos import processes
from tests.chaos.journal import read_journal
from tests.chaos.processes import Script
from tests.chaos.sites import BUYERS, NAMES, ChaosSite

EACH = {"london": 3, "paris": 1, "tokyo": 1}


class Clients:
    """So many clients at each site at any time, until told to stop."""

    def __init__(self, folder: Path, sites: dict[str, ChaosSite], seed: int) -> None:
        self._folder, self._sites, self._seed = folder, sites, seed
        self.scripts: dict[str, list[Script]] = {name: [] for name in NAMES}
        self._probes: list[Script] = []
        self._large: Script | None = None
        self._lives = 0
        self._lock = threading.Lock()
        self.killed: set[str] = set()  # the names of clients that did not live to their end
        self._names: dict[int, str] = {}  # by process id
        (folder / "journals").mkdir()
        (folder / "flaky").mkdir()

    def start(self, large_tasks: int) -> None:
        """Start them, the probes, and the one that has so many tasks in one map."""
        for name in NAMES:
            for _ in range(EACH[name]):
                self.scripts[name].append(self._client(name))
            targets = [name, *([BUYERS[name]] if name in BUYERS else [])]
            self._probes.append(
                self._script("tests.chaos.work.probe", f"probe-{name}", name, targets=targets)
            )
        if large_tasks:
            self._large = self._client("london", tasks=large_tasks)

    def _client(self, site: str, **details: object) -> Script:
        with self._lock:
            self._lives += 1
            name = f"{site}-c{self._lives}"
        return self._script(
            "tests.chaos.work.client", name, site, seed=f"{self._seed}-{name}", **details
        )

    def _script(self, module: str, name: str, site: str, **details: object) -> Script:
        settings = {
            "folder": str(self._folder),
            "site": site,
            "name": name,
            "address": self._sites[site].socket,
            **details,
        }
        path = self._folder / f"{name}.json"
        path.write_text(json.dumps(settings))
        script = Script(module, [str(path)], self._folder / f"{name}.log")
        self._names[script.pid] = name
        return script

    def _chosen(self, site: str, number: float) -> int:
        return int(number * len(self.scripts[site]))

    def kill(self, site: str, number: float) -> None:
        """Kill one of a site's clients; `replace` puts another in its place."""
        script = self.scripts[site].pop(self._chosen(site, number))
        script.kill()
        self.killed.add(self._names[script.pid])

    def replace(self, site: str) -> None:
        """Start a client in place of one that was killed."""
        self.scripts[site].append(self._client(site))

    def send(self, site: str, number: float, what: signal.Signals) -> None:
        """Send one of a site's clients a signal."""
        processes.send([self.scripts[site][self._chosen(site, number)].pid], what)

    def tell_to_stop(self) -> None:
        """Have clients finish their current job, and end."""
        (self._folder / "stop").touch()

    def all(self) -> list[Script]:
        """Those that are to end by themselves."""
        found = [each for scripts in self.scripts.values() for each in scripts]
        return [*found, *([self._large] if self._large is not None else [])]

    def end_probes(self) -> None:
        """End the probes; drop unanswered ones."""
        (self._folder / "quiet").touch()
        for each in self._probes:
            try:
                each.process.wait(processes.END_S)
            except TimeoutError:
                pass
            except Exception:
                each.kill()

    def left(self) -> list[str]:
        """The names of those that have not come to their end."""
        return [self._names[each.pid] for each in self.all() if not each.has_ended]

    def failed(self) -> Iterator[str]:
        """The outputs of clients that ended with an error."""
        for each in self.all():
            if each.has_ended and each.process.returncode:
                yield f"client {self._names[each.pid]} ended {each.process.returncode}, see its log"

    def journals(self) -> Iterator[tuple[str, Path]]:
        """The name of each client that there was, and its journal."""
        for path in sorted((self._folder / "journals").glob("*.jsonl")):
            yield path.stem, path


class Answers:
    """When probes were answered, by buyer and target, as they come in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "journals"

    def first_after(self, site: str, to: str, since_s: float) -> float | None:
        """When the first probe was done that was sent after a moment; None: none yet."""
        path = self._folder / f"probe-{site}.probes"
        done = [
            each["done_s"]
            for each in read_journal(path)
            if each["what"] == "answered" and each["to"] == to and each["sent_s"] >= since_s
        ]
        return min(done, default=None)

    def failures(self, site: str) -> list[tuple[float, str]]:
        """Probes that ended in an error, and when, UTC: they have none of their own."""
        path = self._folder / f"probe-{site}.probes"
        return [
            (each["at_s"], f"a probe from {site} to {each['to']} ended: {each['error']}")
            for each in read_journal(path)
            if each["what"] == "failed"
        ]
