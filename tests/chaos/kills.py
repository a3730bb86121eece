"""Faults that end processes with signal 9, or stop them for a while."""

import signal

from tests.chaos import processes
from tests.chaos.faults import Act, Fault, Stage
from tests.chaos.sites import NAMES


class SlotKill(Fault):
    """A slot is killed; its agent starts another."""

    name, lanes, weight, kills = "slot-kill", NAMES, 4.0, True

    def do(self, stage: Stage, act: Act) -> None:
        site = stage.site(act.target)
        slots = site.slots()
        if slots:
            chosen = slots[int(act.number * len(slots))]
            site.killed_slots.add(chosen)
            processes.send([chosen], signal.SIGKILL)
            stage.count_kills()


class AgentKill(Fault):
    """The agent that does the work is killed with its slots; another is started."""

    name, lanes, weight, kills = "agent-kill", NAMES, 4.0, True
    hold_leases = (0.0, 0.5)

    def do(self, stage: Stage, act: Act) -> None:
        stage.site(act.target).kill_worker()
        stage.count_kills()

    def undo(self, stage: Stage, act: Act) -> None:
        stage.site(act.target).start_worker()


class GatewayKill(Fault):
    """The gateway is killed, and with it the agent that it has started."""

    name, lanes, weight, kills = "gateway-kill", NAMES, 4.0, True
    hold_leases = (0.0, 0.5)

    def do(self, stage: Stage, act: Act) -> None:
        stage.site(act.target).kill_gateway()
        stage.count_kills()

    def undo(self, stage: Stage, act: Act) -> None:
        stage.site(act.target).start()


class SiteKill(Fault):
    """All processes of a site are killed at once, for longer than a lease at times."""

    name, lanes, weight, kills = "site-kill", NAMES, 1.0, True
    hold_leases = (0.0, 1.5)

    def do(self, stage: Stage, act: Act) -> None:
        site = stage.site(act.target)
        assert site.worker is not None
        pids = [site.gateway.pid, site.worker.pid]
        below = [each.pid for pid in pids for each in processes.family(pid)]
        stage.count_kills(len(below))
        processes.send(below, signal.SIGKILL)
        site.kill_gateway()
        site.kill_worker()

    def undo(self, stage: Stage, act: Act) -> None:
        site = stage.site(act.target)
        site.start()
        site.start_worker()


class _Stop(Fault):
    """Processes are stopped for a while, and go on."""

    hold_leases = (0.1, 1.5)
    waits_for_lease = True

    def pids(self, stage: Stage, act: Act) -> list[int]:
        """The processes to stop."""
        raise NotImplementedError

    def do(self, stage: Stage, act: Act) -> None:
        processes.send(self.pids(stage, act), signal.SIGSTOP)

    def undo(self, stage: Stage, act: Act) -> None:
        processes.send(self.pids(stage, act), signal.SIGCONT)


class GatewayStop(_Stop):
    """The gateway is stopped (SIGSTOP) and goes on."""

    name, lanes = "gateway-stop", NAMES

    def pids(self, stage: Stage, act: Act) -> list[int]:
        return [stage.site(act.target).gateway.pid]


class AgentStop(_Stop):
    """The agent that does the work is stopped with its slots, and goes on."""

    name, lanes = "agent-stop", NAMES

    def pids(self, stage: Stage, act: Act) -> list[int]:
        worker = stage.site(act.target).worker
        return [] if worker is None else [each.pid for each in processes.family(worker.pid)]


class DatabaseKill(Fault):
    """The PostgreSQL server of London's books is killed with all its sessions."""

    name, lanes, weight, kills = "database-kill", ("london",), 2.0, True
    hold_leases = (0.0, 0.5)

    def missing(self, stage: Stage) -> str:
        return "" if stage.federation.database is not None else "no site is on PostgreSQL"

    def do(self, stage: Stage, act: Act) -> None:
        assert stage.federation.database is not None
        stage.federation.database.kill()
        stage.count_kills()

    def undo(self, stage: Stage, act: Act) -> None:
        assert stage.federation.database is not None
        stage.federation.database.start()


class DatabaseStop(_Stop):
    """The PostgreSQL server is stopped with its sessions, and goes on."""

    name, lanes = "database-stop", ("london",)
    hold_leases = (0.1, 0.8)

    def missing(self, stage: Stage) -> str:
        return DatabaseKill().missing(stage)

    def pids(self, stage: Stage, act: Act) -> list[int]:
        server = stage.federation.database
        assert server is not None
        assert server.process is not None
        return [each.pid for each in processes.family(server.process.pid)]


class ClientKill(Fault):
    """A client is killed, and another takes its place."""

    name, lanes, weight, kills = "client-kill", ("clients",), 3.0, True

    def do(self, stage: Stage, act: Act) -> None:
        stage.clients.kill(act.target, act.number)
        stage.count_kills()

    def undo(self, stage: Stage, act: Act) -> None:
        stage.clients.replace(act.target)


class ClientStop(Fault):
    """A client is stopped for longer than its session lasts, and goes on."""

    name, lanes, weight = "client-stop", ("clients",), 1.0
    hold_leases = (0.1, 1.5)

    def do(self, stage: Stage, act: Act) -> None:
        stage.clients.send(act.target, act.number, signal.SIGSTOP)

    def undo(self, stage: Stage, act: Act) -> None:
        stage.clients.send(act.target, act.number, signal.SIGCONT)


KINDS: list[Fault] = [
    SlotKill(),
    AgentKill(),
    GatewayKill(),
    SiteKill(),
    GatewayStop(),
    AgentStop(),
    DatabaseKill(),
    DatabaseStop(),
    ClientKill(),
    ClientStop(),
]
