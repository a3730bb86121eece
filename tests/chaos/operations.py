"""Actions of operators and users under load: reload, rotation, versions, crowds of clients."""

import subprocess
import time

from support.processes import Process

from tests.chaos import processes
from tests.chaos.faults import Act, Fault, Stage
from tests.chaos.sites import NAMES, PRICES

SECOND_S = 90.0
CROWD_S = 300.0


class Reload(Fault):
    """The price in the configuration changes, and the gateway reads it again."""

    name, lanes, weight = "reload", NAMES, 1.0

    def do(self, stage: Stage, act: Act) -> None:
        site = stage.site(act.target)
        head, mark, tail = site.config.read_text().rpartition('price = "')
        _, quote, rest = tail.partition('"')
        price = float(PRICES[act.target].split()[0]) * (0.8 + act.number / 2)
        site.config.write_text(f"{head}{mark}{price:.4f} USD{quote}{rest}")
        done = site.order("reload", "--gateway", site.socket)
        if done.returncode:
            stage.complain(f"reload at {act.target}: {done.stderr.strip() or done.stdout.strip()}")


class Rotate(Fault):
    """Keys and TLS leaf are rotated; links hold, or come back."""

    name, lanes, weight = "rotate", NAMES, 0.5

    def do(self, stage: Stage, act: Act) -> None:
        site = stage.site(act.target)
        done = site.order("rotate", *site.where)
        if done.returncode and "in progress already" not in done.stderr:
            stage.complain(f"rotate at {act.target}: {done.stderr.strip()}")


def refuses_open_books(text: str) -> bool:
    """Whether a gateway says that another process has its books open.

    Tokyo begins as another version, whose words for it differ. Both versions name the process.
    """
    return any("with process id " in line and " open" in line for line in text.splitlines())


class SecondGateway(Fault):
    """A second gateway is started on the same folder; it refuses, and the first goes on."""

    name, lanes, weight = "second-gateway", NAMES, 0.5

    def do(self, stage: Stage, act: Act) -> None:
        site = stage.site(act.target)
        second: Process = site.launch_gateway()
        try:
            code = second.process.wait(SECOND_S)
            if code == 0 or not refuses_open_books(second.text()):
                stage.complain(
                    f"a second gateway at {act.target} ends {code}: {second.text()[-300:]}"
                )
        except subprocess.TimeoutExpired:
            stage.complain(f"a second gateway runs on the folder of {act.target}")
        finally:
            processes.end(processes.family(second.pid))
            second.kill()


class OldAgent(Fault):
    """The agent is of another version for a while: an old worker at a new gateway."""

    name, lanes, weight = "old-agent", NAMES, 0.5
    hold_leases = (0.5, 2.0)

    def missing(self, stage: Stage) -> str:
        return "" if stage.old_source else "no other version (--old-version none)"

    def do(self, stage: Stage, act: Act) -> None:
        self._restart(stage, act, stage.old_source)

    def undo(self, stage: Stage, act: Act) -> None:
        self._restart(stage, act, "")

    def _restart(self, stage: Stage, act: Act, source: str) -> None:
        site = stage.site(act.target)
        assert site.worker is not None
        site.worker.stop()
        site.around.worker_source = source
        site.start_worker()


class Upgrade(Fault):
    """Tokyo's gateway, which begins as the other version, is killed and started as this one."""

    name, lanes, weight = "upgrade", ("tokyo",), 0.3
    kills = True

    def missing(self, stage: Stage) -> str:
        return OldAgent().missing(stage)

    def do(self, stage: Stage, act: Act) -> None:
        site = stage.site(act.target)
        site.kill_gateway()
        stage.count_kills()
        if site.around.gateway_source:
            stage.upgraded[act.target] = time.time()
        site.around.gateway_source = ""

    def undo(self, stage: Stage, act: Act) -> None:
        stage.site(act.target).start()


class Crowd(Fault):
    """Many clients come at once, each with one task."""

    name, lanes, weight = "crowd", ("clients",), 0.5

    def do(self, stage: Stage, act: Act) -> None:
        site = stage.site(act.target)
        log = stage.folder / f"crowd-{act.target}.log"
        crowd = processes.Script("tests.chaos.work.crowd", [site.socket, str(stage.crowd)], log)
        try:
            code: int | None = crowd.process.wait(CROWD_S)
        except subprocess.TimeoutExpired:
            code = None
            crowd.kill()
        if code != 0:
            said = log.read_text(errors="replace")[-600:]
            stage.complain(f"a crowd at {act.target} ended {code} within {CROWD_S:.0f} s: {said}")


KINDS: list[Fault] = [
    Reload(),
    Rotate(),
    SecondGateway(),
    OldAgent(),
    Upgrade(),
    Crowd(),
]
