"""The contract suite finds the defect of a grid: each of these has one."""

import signal
from dataclasses import replace

import pytest
from fakes.grids import ProcessesBench

from gateway.grids import checks, contract, marked
from gateway.grids.contract import FailureClass, GridFault, Limits, PilotState
from gateway.grids.processes import ProcessesConfig, ProcessGrid
from gateway.worker.isolation.secrecy import PILOT_VARIABLE

pytestmark = pytest.mark.real


class Nameless(ProcessGrid):
    async def check(self):
        return "all is well"


class Unlimited(ProcessGrid):
    async def limits(self):
        return Limits(pilots_max=0)


class Generous(ProcessGrid):
    async def capacity(self, shape):
        return replace(await super().capacity(shape), slots_max=0)


class Trusting(ProcessGrid):
    """It takes any order for a good one."""

    async def start(self, order):
        await self.limits()


class Blaming(ProcessGrid):
    """It says that the same may work later, for any fault."""

    async def start(self, order):
        try:
            await super().start(order)
        except GridFault as fault:
            raise GridFault(FailureClass.AGAIN, str(fault)) from fault


class Babbling(ProcessGrid):
    async def check(self):
        return f"processes, by {self._launch.environment['GRIDFED_SECRET']}"


class Bare(ProcessGrid):
    """It hands over nothing of the environment but the secrets."""

    def _spawn(self, name, shape):
        kept = self._launch
        bare = {each: kept.environment[each] for each in ("GRIDFED_SECRET", "GRIDFED_TOKEN")}
        self._launch = replace(kept, environment=bare)
        try:
            return super()._spawn(name, shape)
        finally:
            self._launch = kept


class Talkative(ProcessGrid):
    """Its command line has the secret."""

    def _command(self, name, shape):
        secret = self._launch.environment["GRIDFED_SECRET"]
        return [
            "/bin/sh",
            "-c",
            'shift; sleep 1; exec "$@"',
            "sh",
            secret,
            *super()._command(name, shape),
        ]


class Forgetful(ProcessGrid):
    """It starts an order as often as it is told to."""

    wait_s = 60.0  # for all those processes

    def _start(self, order):
        (self._launch.folder / f"{order.name}.order").unlink(missing_ok=True)
        super()._start(order)


class Shy(ProcessGrid):
    """It knows only the pilots that this object has started."""

    wait_s = 5.0

    def _pilots(self):
        mine = set(self._children.values())
        return [each for each in super()._pilots() if each.name in mine]


class Greedy(ProcessGrid):
    """Its stop() takes a name for the beginning of one."""

    async def stop(self, names):
        shown = {each.name for each in await self.pilots()}
        await super().stop({each for each in shown if any(each.startswith(name) for name in names)})


class Lazy(ProcessGrid):
    """Its stop() stops nothing."""

    wait_s = 5.0

    async def stop(self, names):
        self._ending.update(names)

    def _pilots(self):
        return [each for each in super()._pilots() if each.name not in self._ending]


class Backward(ProcessGrid):
    """Its pilots queue again once they have run."""

    looks = 0

    def _pilots(self):
        self.looks += 1
        stand = PilotState.QUEUED if self.looks % 2 else PilotState.STARTING
        return [replace(each, state=stand, paid_at_s=None) for each in super()._pilots()]


class Patient(ProcessGrid):
    """Its pilots look for their gateway for ever."""

    wait_s = 5.0

    def _command(self, name, shape):
        command = super()._command(name, shape)
        command[command.index("--give-up-s") + 1] = "0"
        return command


class Eager(ProcessGrid):
    """It wants all its pilots to end, at all times."""

    async def leaving(self):
        return {each.name: "maintenance" for each in await self.pilots()}


class Bench(ProcessesBench):
    """Of a class of grids; it waits for missing events no longer than a good grid takes."""

    def __init__(self, cls):
        self.wait_s = getattr(cls, "wait_s", 60.0)
        self._cls = cls
        self.marks = set()

    def open(self, launch):
        self.marks.add(launch.mark)
        return self._cls(ProcessesConfig(40), launch)

    def kill_all(self):
        """The leftovers of a broken grid."""
        for mark in self.marks:
            for process in marked.find(PILOT_VARIABLE, f"{mark}/"):
                marked.send(process, signal.SIGKILL)


QUICK = [
    (Nameless, checks.check_names_itself, "does not name the grid"),
    (Unlimited, checks.check_names_itself, "allow no pilot in an order"),
    (Generous, checks.check_names_itself, "more slots now than at most"),
    (Babbling, checks.check_names_itself, "the secret appears in what check"),
    (Trusting, checks.check_hostile_names, "no GridFault"),
    (Blaming, checks.check_too_large, "the failure class is again, not never"),
]
THOROUGH = [
    (Lazy, checks.check_stop_at_once, "left behind, and charged"),
    (Bare, checks.check_life, "has GRIDFED_CHECK ="),
    (Talkative, checks.check_life, "the secret appears in the list of processes"),
    (Forgetful, checks.check_started_once, "twice"),
    (Shy, checks.check_found_again, "timed out after 5 s"),
    (Greedy, checks.check_stop_of_nothing, "a name that does not exist stopped"),
    (Backward, checks.check_life, "went back from starting to queued"),
    (Eager, checks.check_leaving, "names pilots of hosts in service"),
    (Patient, checks.check_lonely_pilots_end, "timed out after 5 s"),
]


@pytest.mark.parametrize(
    ("cls", "check", "said"),
    [
        *QUICK,
        *(
            pytest.param(*each, id=each[0].__name__, marks=pytest.mark.thorough)
            for each in THOROUGH
        ),
    ],
)
async def test_a_defect_is_found_and_named(cls, check, said):
    bench = Bench(cls)
    try:
        with pytest.raises(AssertionError, match=said):
            await checks.run(check, bench)
    finally:
        bench.kill_all()


@pytest.mark.parametrize(("old", "new"), [("Stand", "PilotState"), ("Blame", "FailureClass")])
def test_a_class_of_the_contract_is_found_by_its_former_name_with_a_warning(old, new):
    with pytest.warns(DeprecationWarning, match=f"{old} is named {new} now"):
        assert getattr(contract, old) is getattr(contract, new)


def test_a_sighting_and_a_fault_have_the_former_names_of_their_fields_with_a_warning():
    with pytest.warns(DeprecationWarning, match=r"Sighting\(stand=…\) is named state now"):
        seen = contract.Sighting("a.0", stand=PilotState.RUNNING, grid_id="1", slots=1)
    with pytest.warns(DeprecationWarning, match="Sighting.stand is named state now"):
        assert seen.stand is seen.state is PilotState.RUNNING
    with pytest.warns(DeprecationWarning, match="GridFault.*blame.* is named failure_class now"):
        fault = contract.GridFault(blame=FailureClass.AGAIN, text="the grid does not answer")
    with pytest.warns(DeprecationWarning, match="GridFault.blame is named failure_class now"):
        assert fault.blame is fault.failure_class is FailureClass.AGAIN


@pytest.mark.parametrize("name", ["paid", "begins", "ends"])
def test_the_instants_of_a_sighting_have_their_former_names_with_a_warning(name):
    warned = f"{name}_s.* is named {name}_at_s now"
    with pytest.warns(DeprecationWarning, match=warned):
        seen = contract.Sighting("a.0", PilotState.RUNNING, "1", 1, **{f"{name}_s": 5.0})
    with pytest.warns(DeprecationWarning, match=warned):
        assert getattr(seen, f"{name}_s") == getattr(seen, f"{name}_at_s") == 5.0
    with pytest.warns(DeprecationWarning, match=warned):
        assert getattr(replace(seen, **{f"{name}_s": 7.0}), f"{name}_at_s") == 7.0


def test_the_beginning_in_a_capacity_has_its_former_name_with_a_warning():
    warned = "begins_s.* is named begins_at_s now"
    with pytest.warns(DeprecationWarning, match=warned):
        found = contract.Capacity(0, 4, begins_s=5.0)
    with pytest.warns(DeprecationWarning, match=warned):
        assert found.begins_s == found.begins_at_s == 5.0
