"""The agent: keeps a host's slots, and runs the tasks that a gateway assigns to it.

    Agent.run
    ├── WorkerConversation    dials, resumes, receives and sends (gateway.worker.conversation)
    ├── _keep_slot            one per slot: starts a process, relays its messages, starts another
    ├── _watch                time limits, memory limits, pulses
    ├── KeptResults           results that stay at the site (gateway.worker.kept_results)
    └── WindingUp             signals, interruptions, the goodbye (gateway.worker.winding_up)

The books (gateway.worker.task_book) make the decisions. The agent outlives its slots, names the
task at fault when a slot dies, and never opens a payload. The gateway decides whether a failed task
is retried.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import trio

from federation.address import AddressError
from federation.clocks import MonoS
from federation.errors import GatewayUnreachable, GridError, ProtocolError, SessionRefused
from federation.messages.environments import unwrap
from federation.messages.messages import (
    Assign,
    BegunTasks,
    Bye,
    Drain,
    NeedFunction,
    Notice,
    Preparing,
    Pulse,
    PutFunction,
    Recall,
    Report,
    Returned,
)
from federation.messages.printed import parted
from federation.objects.left import LEFT
from federation.objects.references import objects_of
from federation.ranges import Range, RangeSet
from federation.sessions.handshake import Opened
from federation.words import count
from gateway.base import stderr_lines
from gateway.base.child import collect_seldom, first_of
from gateway.sessions.conversation import Lapsed
from gateway.worker.conversation import WorkerConversation
from gateway.worker.environments import Environments
from gateway.worker.fault import End, judge
from gateway.worker.held_objects import HeldObjects
from gateway.worker.isolation.adoption import Reaper, adopt_strays
from gateway.worker.isolation.devices import Devices, gpus_held, share_cores
from gateway.worker.isolation.homes import BARE, SlotHome
from gateway.worker.isolation.host_environments import EnvironmentUnavailable, HostEnvironments
from gateway.worker.isolation.limits import die_with_parent
from gateway.worker.isolation.secrecy import PRIVATE_VARIABLES, hide_memory
from gateway.worker.kept_results import KeptResults
from gateway.worker.live_output import FLUSH_S, OUTBOX_CHARS_MAX, LiveOutput
from gateway.worker.outbox import WorkerOutbox
from gateway.worker.oversight import busy_s, newly_begun, oversee, pulse_of
from gateway.worker.pieces import AssignmentTerms, SlotBook, SlotBundle
from gateway.worker.settings import AgentSettings, parse_tags, read_arguments
from gateway.worker.slot.cells import SETTLE_S
from gateway.worker.slot.channel import are_said, is_part
from gateway.worker.slot.functions import FunctionCache
from gateway.worker.slot.lent_objects import LENT_MAX
from gateway.worker.slot.meter import Attention, Moment
from gateway.worker.slot.process import NOBODY, KillReason, SlotProcess
from gateway.worker.task_book import ALL_TASKS, LEVEL_S, TaskBook
from gateway.worker.winding_up import WindingUp

__all__ = ["AgentSettings", "main", "run_agent"]

WATCH_S: Final = 0.05
START_AGAIN_S: Final = 1.0
NOTICE_MAX_S: Final = 30 * 86_400.0
# Exit codes of sysexits.h: batch systems show them, and they don't look like a fault of the node.
NO_GATEWAY, REFUSED = 69, 77
FETCH_S: Final = 30.0  # time for the object host to hand out objects, after which they are lost
WRONG: Final = 2  # usage, as of every command
GPU_TAG: Final = "gpu"
GPU_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"


class Agent:
    """A worker: a number of slots for one gateway."""

    def __init__(
        self,
        settings: AgentSettings,
        say: Callable[[str], None],
        host: HostEnvironments,
        on_joined: Callable[[str, str], None] | None = None,
    ) -> None:
        self._settings = settings
        self._on_joined = on_joined
        self._say = say
        self._host = host
        self._devices = Devices(settings.gpus)
        self._cores: list[frozenset[int]] = []
        if settings.confines.pin:
            self._cores = share_cores(os.sched_getaffinity(0), settings.slots)
        self._task_book = TaskBook(
            settings.slots,
            len(settings.gpus),
            keeps_apart=host.keeps_apart,
            usual=host.usual,
        )
        self._processes: list[SlotProcess] = []
        self._output = [LiveOutput() for _ in range(settings.slots)]
        self._attention = Attention(time.monotonic_ns())
        self._outbox = WorkerOutbox()
        self._environments = Environments(
            self._task_book,
            host,
            self._processes,
            fail=self._outbox.add_failure,
            hand_back=self._give_back,
            feed=lambda: self._feed(),
            busy_s=self._busy_s,
            say=say,
        )
        self._functions = FunctionCache()
        self._objects = HeldObjects(settings.objects, settings.objects_ticket, self._dropped)
        # Assignments that wait for objects, each with the messages about it that came meanwhile.
        self._fetching: dict[int, list[Recall | Notice]] = {}
        self._site = ""
        self._asked: set[bytes] = set()
        self._is_levelling = False
        self._gateway = WorkerConversation(
            address=settings.address,
            tls=settings.tls,
            credentials=settings.credentials,
            hello=settings.hello(host.tags),
            outbox=self._outbox,
            give_up_s=settings.give_up_s,
            hear=self._hear,
            say=say,
        )
        self._results = KeptResults(self._objects, self._outbox, self._gateway)
        self.ending = WindingUp(
            *(settings, self._task_book, self._outbox, self._gateway),
            reclaim=self._reclaim,
            is_reporting=lambda: self._results.is_waiting,
            stop_all_in=self._stop_all_in,
            say=say,
        )

    async def run(self) -> None:
        """Work until told to stop. Raises GridError without a gateway to work for."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.ending.begin(nursery)
            for index in range(self._settings.slots):
                self._processes.append(self._start(index, BARE))
                nursery.start_soon(self._keep_slot, index)
            nursery.start_soon(self._watch)
            nursery.start_soon(self._gateway.run)

    # --- messages of the gateway ---------------------------------------------------------------

    def _hear(self, messages: list[Any]) -> None:
        for message in messages:
            match message:
                case Opened():
                    self._opened(message)
                case Lapsed(reason):
                    self._drop_all(reason)
                case Assign():
                    self._assigned(message)
                case Recall() | Notice() if message.assignment in self._fetching:
                    self._fetching[message.assignment].append(message)
                case PutFunction(digest, body):
                    self._got_function(digest, body)
                case Recall():
                    self._recalled(message)
                case Notice():
                    self._noticed(message)
                case Drain(on):
                    self.ending.is_draining = on
                case Bye(reason):
                    self._drop_all(f"the gateway ended the session: {reason}")
        self._feed()

    def _opened(self, opened: Opened) -> None:
        self._site = opened.site
        if not opened.resumed:
            self._drop_all("the gateway opened a new session")
            slots = self._settings.slots
            self._say(f"works for site {opened.site} with {count(slots, 'slot')}")
            if self._on_joined is not None:
                self._on_joined(opened.site, self._gateway.address)
            self._environments.tell_again()

    def _assigned(self, message: Assign) -> None:
        number, first = message.assignment, message.first
        if self.ending.is_draining:
            stop = first + len(message.arguments)
            self._outbox.add(Returned(number, [[first, stop]]))
            return
        if message.objects and message.assignment not in self._fetching:
            lacking = self._objects.lacks(message.objects, objects_of(message.arguments))
            if lacking:
                self._fetching[message.assignment] = []
                self._nursery.start_soon(self._fetch, message, lacking)
                return
        self._take_up(message)

    async def _fetch(self, message: Assign, lacking: list[bytes]) -> None:
        """Fetch the objects of an assignment, then take up its tasks, and what came meanwhile."""
        since = self._fetching[message.assignment]
        with trio.move_on_after(FETCH_S):
            await self._objects.fetch(message.objects, lacking, self._nursery)
        if self._fetching.get(message.assignment) is not since:
            return  # the tasks are the gateway's again
        del self._fetching[message.assignment]
        self._assigned_late(message, since)

    def _assigned_late(self, message: Assign, since: list[Recall | Notice]) -> None:
        if self.ending.is_draining or self.ending.is_stopping:
            stop = message.first + len(message.arguments)
            self._outbox.add(Returned(message.assignment, [[message.first, stop]]))
        else:
            self._take_up(message)
        self._hear(list(since))

    def _take_up(self, message: Assign) -> None:
        """Queue the tasks of an assignment; the objects that they refer to are here, or lost."""
        number, first, function = message.assignment, message.first, message.function
        terms = AssignmentTerms(
            *(number, message.job, function, message.timeout_s, message.prints),
            *(message.origin, self._gpus_of(message.holds)),
            task_pass=self._settings.pass_of(message.job, message.pass_key),
            wary=message.wary,
            logs=message.logs,
            objects=message.objects,
            results=message.results if self._settings.objects else "",
            project=message.project,
            chained=message.chained,
        )
        is_much = bool(message.objects) and len(objects_of(message.arguments)) > LENT_MAX
        self._task_book.assign(terms, first, message.arguments, alone=is_much)
        if function not in self._functions:
            if function not in self._asked:
                self._asked.add(function)
                self._outbox.add(NeedFunction(function))
        elif function not in self._task_book.known:
            self._environments.wanted(function, self._nursery)

    def _gpus_of(self, holds: str) -> int:
        if not self._settings.gpus or not holds:
            return 0
        return gpus_held(float(parse_tags(holds).get(GPU_TAG, 0)))

    def _got_function(self, digest: bytes, body: bytes) -> None:
        self._asked.discard(digest)
        try:
            environment, function = unwrap(body)
        except ProtocolError as error:
            self._environments.refuse(digest, str(error))
            return
        for gone in self._functions.put(digest, function, self._task_book.functions):
            self._environments.forget(gone)
        self._environments.arrived(digest, environment, self._nursery)

    def _give_back(self, functions: frozenset[bytes]) -> None:
        """Return tasks of these functions to the gateway while their environment is being made."""
        self._outbox.add(Preparing(sorted(functions)))
        for number, held in list(self._task_book.held.items()):
            if held.terms.function in functions:
                taken = self._task_book.withdraw(number, 0, ALL_TASKS)
                if taken:
                    self._outbox.add(Returned(number, [list(span) for span in taken]))
        self._gateway.flush()

    def _drop_all(self, reason: str) -> None:
        """Drop all tasks: the gateway has placed them elsewhere, or will."""
        self.ending.is_draining = False
        self._fetching.clear()
        self._results.drop_all()
        self._asked.clear()
        self._outbox.take()
        if not self._task_book.is_idle:
            self._say(f"dropped its tasks: {reason}")
        for slot in self._task_book.drop_all():
            self._processes[slot.index].kill()

    # --- messages of the slots -----------------------------------------------------------------

    def _slot_says(self, index: int, messages: list[list[Any]]) -> None:
        slot, process = self._task_book.slots[index], self._processes[index]
        moment = self._attention.at(time.monotonic_ns())
        for message in messages:
            if slot.is_forsaken or process.is_breached:  # what it says later counts no more
                return
            match message:
                case ["ready"] if not slot.is_ready:
                    slot.is_ready = True
                    process.came_up()
                    self._environments.started(slot.home)
                case ["said", rows] if are_said(rows):
                    self._take_said(slot, rows)
                case ["left", int(size)] if self._results.may_take(index, process, size):
                    self._results.take(index, process, size)
                case ["part", int(), *rest] if is_part(rest):
                    if not self._take_part(slot, process, message, moment):
                        break
                case _:
                    process.distrust()
                    break
        self._feed()

    def _take_part(
        self, slot: SlotBook, process: SlotProcess, message: list[Any], moment: Moment
    ) -> bool:
        _, number, values, failures, prints, wall_ns, cpu_ns, peak, is_over = message
        has_left = slot.index in self._results.files
        if process.leaves and values.count(LEFT) != has_left:
            process.distrust()
            return False
        wall_ns = slot.meter.charge(wall_ns, len(values), moment)
        if slot.bundles and slot.bundles[0].piece.terms.logs:
            process.take_output()  # its processes' output until now is of these tasks
        found = self._task_book.report(slot, number, len(values), wall_ns)
        if found is None:
            process.distrust()
            return False
        if values:
            terms, first = found
            self._flush_output(slot.index)
            used, (prints, streams) = (wall_ns, cpu_ns, peak), parted(prints)
            report = Report(terms.assignment, first, values, failures, prints, *used, streams)
            if has_left:
                self._results.report(slot.index, terms, report, self._nursery)
            else:
                self._outbox.add_report(report)
        if is_over and not self._task_book.may_finish(slot):
            process.distrust()
            return False
        if is_over:
            self._outbox.add_cancelled(self._task_book.finish(slot))
            if slot.freeze is None:
                process.limit()
        return True

    def _take_said(self, slot: SlotBook, rows: list[list[Any]]) -> None:
        """Keep what tasks have printed until it is sent; a task may name any task of its bundle."""
        for number, text, stream in rows:
            running = self._task_book.running(slot, number)
            if running is not None and running[0].logs:
                self._output[slot.index].add(running[0].assignment, running[1], stream, text)

    def _take_raw(self, index: int, stream: int, data: bytes) -> None:
        """Keep what a slot's processes have written to a file descriptor while a task runs."""
        process, slot = self._processes[index], self._task_book.slots[index]
        bundle = slot.bundles[0] if slot.bundles else None
        if bundle is None or not bundle.piece.terms.logs:
            return
        # The slot may be at its next bundle already: of this one the last task has written it.
        number = min(max(bundle.reported, process.started), bundle.live - 1)
        running = self._task_book.running(slot, number)
        if running is not None:
            text = data.decode(errors="replace")
            self._output[index].add(running[0].assignment, running[1], stream, text)

    def _flush_output(self, index: int) -> None:
        """Send the output of a slot's tasks, unless the gateway is far behind."""
        if self._output[index] and self._outbox.output_chars < OUTBOX_CHARS_MAX:
            for message in self._output[index].take():
                self._outbox.add_output(message)

    # --- feeding slots, and taking tasks back --------------------------------------------------

    def _feed(self) -> None:
        """Feed slots that have room, level out what is left, and flush messages to the gateway."""
        for number, tasks in self._task_book.take_returning():
            self._outbox.add(Returned(number, [list(tasks)]))
        if not self.ending.is_stopping:
            for slot, bundle in self._task_book.feed():
                if bundle.piece.terms.wary:
                    self._tell_before(slot, bundle)
                self._send_bundle(self._processes[slot.index], bundle)
                slot.meter.hand(self._attention.at(time.monotonic_ns()))
            self._environments.move()
            if not self._is_levelling and self._task_book.is_uneven(self._started()):
                self._is_levelling = True
                self._nursery.start_soon(self._level)
        self._gateway.flush()

    def _tell_before(self, slot: SlotBook, bundle: SlotBundle) -> None:
        """Report a task as begun before it starts: it may have ended a worker, and may end this."""
        slot.told = bundle.number
        assignment = bundle.piece.terms.assignment
        self._outbox.add(BegunTasks([[assignment, bundle.piece.first, 0]]))
        self._gateway.flush()

    def _send_bundle(self, process: SlotProcess, bundle: SlotBundle) -> None:
        terms = bundle.piece.terms
        process.bound(self._gateway.part_bytes_max)
        is_new, forgotten = process.functions.lend(terms.function)
        if forgotten is not None:
            process.send(["forget", forgotten])
        if is_new:
            process.send(["function", terms.function, self._functions.get(terms.function)])
        if terms.task_pass != process.task_pass:
            process.task_pass = terms.task_pass
            process.send(["pass", terms.task_pass])
        if terms.objects or process.objects:
            self._lend(process, bundle)
        if terms.results:
            process.leaves = True
        process.send(
            [
                *("chunk", bundle.number, terms.function, bundle.piece.arguments),
                *(terms.prints, terms.job, self._gateway.result_bytes_max, terms.timeout_s),
                *(bundle.piece.first, self._settings.label(terms.job), terms.logs),
                *(terms.results, terms.chained),
            ]
        )

    def _lend(self, process: SlotProcess, bundle: SlotBundle) -> None:
        """Hand a slot the objects that its next tasks refer to, unless it has them."""
        scope = bundle.piece.terms.objects
        new, dropped = process.objects.lend(scope, objects_of(bundle.piece.arguments))
        if dropped is not None:
            process.send(["drop", dropped])
        for digest in new:
            segment = self._objects.find(scope, digest)
            if segment is not None:
                process.send(["object", digest, segment.size], segment.descriptor)
            else:
                text = f"it is not held at site {self._site or 'of this worker'} any more"
                process.send(["lost", digest, text])
                process.objects.drop([digest])  # asked for again the next time

    def _dropped(self, digests: list[bytes]) -> None:
        """Have the slots let go of objects that are held no more."""
        for process in self._processes:
            had = process.objects.drop(digests)
            if had:
                process.send(["drop", had])

    def _started(self) -> list[int]:
        return [process.started for process in self._processes]

    def _busy_s(self) -> list[float]:
        moment = self._attention.at(time.monotonic_ns())
        pairs = zip(self._task_book.slots, self._processes, strict=True)
        return [busy_s(slot, process, moment) for slot, process in pairs]

    async def _level(self) -> None:
        """While a slot is dry, give it tasks that another slot would not reach soon."""
        while self._task_book.is_uneven(started := self._started()):
            donor = self._task_book.donor(started, self._busy_s())
            if donor is None:
                await trio.sleep(LEVEL_S)
            else:
                await self._reclaim([donor])
                self._feed()
        self._is_levelling = False

    async def _reclaim(self, slots: Iterable[SlotBook]) -> None:
        """Take back unstarted tasks from slots; the module task_book explains why this is safe."""
        frozen = []
        for slot in slots:
            process = self._processes[slot.index]
            freeze = self._task_book.freeze(slot, process.started)
            process.limit(freeze.bound)
            frozen.append((slot, process, freeze))
        await trio.sleep(SETTLE_S)
        for slot, process, freeze in frozen:
            self._outbox.add_cancelled(self._task_book.reclaim(slot, freeze, process.started))

    def _relieve(self) -> None:
        """Take back tasks queued behind longer ones than expected, and move slots to run them."""
        stuck = self._task_book.stuck(self._started(), self._busy_s())
        if stuck and not self._is_levelling:
            self._is_levelling = True
            self._nursery.start_soon(self._take_back, stuck)
        self._environments.move()

    async def _take_back(self, stuck: list[SlotBook]) -> None:
        await self._reclaim(stuck)
        self._is_levelling = False
        self._feed()

    def _recalled(self, message: Recall) -> None:
        span = (message.assignment, message.first, message.stop)
        taken = self._task_book.withdraw(*span)
        if self._task_book.holders(*span, self._started()):
            self._nursery.start_soon(self._recall, message, taken)
        else:
            self._hand_back(message, taken)

    def _noticed(self, message: Notice) -> None:
        """Notify tasks of a coming stop at once: they may have little time left."""
        span, in_s = (message.assignment, message.first, message.stop), message.in_s
        self._task_book.note_stop(*span, None if in_s is None else _moment_ns(in_s))
        self._oversee()

    def _stop_all_in(self, in_s: float) -> None:
        """Have all tasks stop so many seconds from now."""
        at_ns = _moment_ns(in_s)
        for number in self._task_book.held:
            self._task_book.note_stop(number, 0, ALL_TASKS, at_ns)
        self._oversee()

    def _oversee(self) -> None:
        limit_bytes = self._settings.memory_bytes
        moment = self._attention.at(time.monotonic_ns())
        oversee(self._task_book, self._processes, limit_bytes, moment)

    async def _recall(self, message: Recall, taken: list[Range]) -> None:
        span = (message.assignment, message.first, message.stop)
        # Compute the holders again: slots may have become idle or busy since this trio task was
        # started.
        await self._reclaim(self._task_book.holders(*span, self._started()))
        taken += self._task_book.withdraw(*span)
        self._hand_back(message, taken)
        self._feed()

    def _hand_back(self, message: Recall, taken: list[Range]) -> None:
        ranges = [[first, stop] for first, stop in RangeSet(taken)]
        self._outbox.add(Returned(message.assignment, ranges))
        if not message.kill:
            return
        self._task_book.cancel(message.assignment, message.first, message.stop)
        for slot, process in zip(self._task_book.slots, self._processes, strict=True):
            number = self._task_book.at(slot, process.started)
            running = self._task_book.running(slot, number)
            if running is None or running[0].assignment != message.assignment:
                continue
            if message.first <= running[1] < message.stop:
                process.kill(KillReason(number, "cancelled", "stopped on request"))

    # --- starting and ending slots -------------------------------------------------------------

    def _start(self, index: int, home: SlotHome) -> SlotProcess:
        settings = self._settings
        environment = dict(os.environ)
        # A task may be a client of the grid with the pass of its job, but not with the credentials
        # of this worker or of the process that started it, which would grant it more than any task
        # should have.
        dialled = settings.tasks_dial if self._host.has_user else ""
        environment["GRIDFED_GATEWAY"] = dialled or settings.address
        for name in PRIVATE_VARIABLES:
            environment.pop(name, None)
        environment |= settings.tls.environment()
        if settings.gpus:
            environment[GPU_VARIABLE] = ",".join(self._devices.hold(index, home.gpus))
        cores = self._cores[index] if self._cores else None
        return SlotProcess(self._host.launch(home, environment, cores))

    async def _keep_slot(self, index: int) -> None:
        """Keep a process for one slot for as long as the agent runs."""
        while True:
            process = self._processes[index]
            try:
                await process.run(
                    lambda messages: self._slot_says(index, messages),
                    lambda stream, data: self._take_raw(index, stream, data),
                )
                self._bury(self._task_book.slots[index], process)
            finally:
                await process.close()
            self._devices.release(index)
            home = self._task_book.slots[index].home
            while self._devices.free < home.gpus:  # noqa: ASYNC110 - they are being released
                await trio.sleep(WATCH_S)
            self._processes[index] = await self._start_again(index, home)

    async def _start_again(self, index: int, home: SlotHome) -> SlotProcess:
        """Restart a slot as soon as this host allows it: tasks may use up all its processes."""
        said = ""
        while True:
            try:
                return self._start(index, home)
            except OSError as error:
                if str(error) != said:
                    said = str(error)
                    self._say(f"can't start a slot, retrying: {said}")
                await trio.sleep(START_AGAIN_S)

    def _bury(self, slot: SlotBook, process: SlotProcess) -> None:
        """Handle the end of a slot's process: report the task at fault, if it was running one."""
        is_bad = not slot.is_ready and slot.moves_to is None
        if is_bad and not self._environments.not_started(slot, process):
            self.ending.end(f"gives up, as its slots can't start: {process.describe_end()}", 1)
        now_ns = time.monotonic_ns()
        moment = self._attention.at(now_ns)
        started, since_ns, kill_reason = process.started, process.since_ns, process.kill_reason
        silent_ns = slot.meter.silent_ns(moment) - (now_ns - (process.mute_since_ns or now_ns))
        wall_ns = max(0, now_ns - since_ns) if since_ns else 0
        wall_ns = slot.meter.charge(wall_ns, 1, moment) if slot.unsettled is not None else 0
        doomed = None if kill_reason is None or kill_reason.number == NOBODY else kill_reason.number
        end = End(started, since_ns > 0, doomed, process.is_breached, silent_ns, wall_ns)
        number, is_at_fault = judge(slot, end)
        running = self._task_book.running(slot, number)
        cancelled = self._task_book.died(slot, number, is_at_fault=is_at_fault)
        self._results.slot_ended(slot.index)
        self._flush_output(slot.index)
        if running is not None and is_at_fault:
            self._outbox.add_failure(*running, process.failure, process.describe_end(), wall_ns)
        self._outbox.add_cancelled(cancelled)
        self._feed()

    # --- timers --------------------------------------------------------------------------------

    async def _watch(self) -> None:
        pulse_s = output_s = MonoS(0.0)
        reaper = Reaper()
        while True:
            await trio.sleep(WATCH_S)
            now_ns, mono_s = time.monotonic_ns(), MonoS(time.monotonic())
            moment = self._attention.at(now_ns)
            reaper.look([each.leader for each in self._processes], mono_s)
            self._oversee()
            if not self.ending.is_stopping:
                self._relieve()
            if mono_s - output_s > FLUSH_S:
                output_s = mono_s
                for index in range(len(self._processes)):
                    self._flush_output(index)
            begun = newly_begun(self._task_book, self._processes, moment)
            if begun:
                self._outbox.add(BegunTasks(begun))
            is_heard = self._gateway.is_open and not self.ending.has_said_bye
            if is_heard and mono_s - pulse_s > self._gateway.pulse_s:
                pulse_s = mono_s
                self._outbox.add(Pulse(pulse_of(self._task_book, self._processes, moment)))
            self._gateway.tick()


def _moment_ns(in_s: float) -> int:
    return time.monotonic_ns() + round(min(in_s, NOTICE_MAX_S) * 1e9)


async def run_agent(
    settings: AgentSettings, on_joined: Callable[[str, str], None] | None = None
) -> int:
    """Run a worker until it is stopped; return its exit code.

    `on_joined` is called with the site's name at each new session.
    """

    def say(line: str) -> None:
        stderr_lines.say(f"gridfed: worker {settings.name} {line}")

    if settings.die_with_parent:
        die_with_parent(settings.die_with_parent)
    adopt_strays()
    if settings.token or settings.secret:
        hide_memory()
    collect_seldom()
    host = HostEnvironments(settings.rules, settings.memory_bytes, say, settings.confines)
    try:
        host.open()
    except EnvironmentUnavailable as error:
        host.close()
        say(f"can't start: {error}")
        return 1
    agent = Agent(settings, say, host, on_joined)
    try:
        await agent.run()
    except* GridError as errors:
        cause = first_of(errors)
        say(f"gives up: {cause}")
        codes = {GatewayUnreachable: NO_GATEWAY, SessionRefused: REFUSED, AddressError: WRONG}
        agent.ending.exit_code = codes.get(type(cause), 1)
    finally:
        host.close()
    return agent.ending.exit_code


def main() -> None:
    """Start an agent for a local pool; people use `gridfed worker`."""
    sys.exit(trio.run(run_agent, read_arguments()))


if __name__ == "__main__":
    main()
