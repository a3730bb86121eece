"""The reference engine, in this very process: it does all that engines may do, good and bad."""

import contextlib
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import cloudpickle
import trio

from gateway.grids.delegating import Begun, Broken, Cancelled, Done, Found, Lost, News, Parcel, Room
from gateway.grids.delegation.delegate import Delegate, DelegateSettings

READY_S = 300.0
# What functions of tests share with them: they are pickled by value, and import this module.
ran: Counter[int] = Counter()
gate = threading.Event()


@dataclass
class ReferenceEngine:
    """Runs parcels in threads, `slots` at a time.

    `early`: the outcome is told before `send` has returned, where nothing blocks. `echoes`: every
    outcome is told twice.
    """

    slots: int = 2
    early: bool = False
    echoes: bool = False
    python: str = ""
    round_trip_s: float = 0.0
    sent: list[Parcel] = field(default_factory=list)
    bodies: dict[bytes, bytes] = field(default_factory=dict)
    closed: bool = False

    def __post_init__(self):
        self._waiting: dict[str, Parcel] = {}
        self._running: dict[str, trio.CancelScope] = {}
        self._tell: Callable[[News], None] = lambda news: None
        self._more = trio.Event()
        self.python = self.python or f"{sys.version_info[0]}.{sys.version_info[1]}"

    async def check(self) -> str:
        return "the reference engine"

    async def run(self, tell):
        self._tell = tell
        tell(Room(self.slots))
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    while self._waiting and len(self._running) < self.slots:
                        name = next(iter(self._waiting))
                        parcel = self._waiting.pop(name)
                        self._running[name] = trio.CancelScope()
                        nursery.start_soon(self._run, parcel, self._running[name])
                    await self._more.wait()
                    self._more = trio.Event()
        finally:
            self.closed = True
            self._waiting.clear()
            self._running.clear()

    async def _run(self, parcel, scope):
        self._tell(Begun(parcel.name))
        with scope:
            done = await trio.to_thread.run_sync(self._do, parcel, abandon_on_cancel=True)
        if self._running.pop(parcel.name, None) is not None:
            self._say(done if not scope.cancelled_caught else Cancelled(parcel.name))
        self._more.set()

    def _do(self, parcel):
        function = cloudpickle.loads(self.bodies[parcel.function])
        values, failures = [], []
        for payload in parcel.arguments:
            try:
                values.append(cloudpickle.dumps(function(*cloudpickle.loads(payload))))
            except Exception as error:
                failures.append([len(values), "error", f"{type(error).__name__}: {error}", b""])
                values.append(b"")
        return Done(parcel.name, values, failures, [], 1_000 * len(values), 500, 1 << 20)

    def _say(self, news):
        self._tell(news)
        if self.echoes:
            self._tell(news)

    def put(self, digest, body):
        self.bodies[digest] = body

    def forget(self, digest):
        del self.bodies[digest]

    def send(self, parcel):
        self.sent.append(parcel)
        if self.early:
            self._say(self._do(parcel))
            return
        self._waiting[parcel.name] = parcel
        self._more.set()

    def cancel(self, names: Collection[str], *, running: bool):
        for name in names:
            if self._waiting.pop(name, None) is not None:
                self._say(Cancelled(name))
            elif running and name in self._running:
                self._running[name].cancel()

    def holds(self, name):
        return name in self._waiting or name in self._running

    # --- what befalls it ---

    def resize(self, slots):
        self.slots = slots
        self._tell(Room(slots))
        self._more.set()

    def reclaim(self, rng: random.Random):
        """Take a slot away, also a busy one."""
        if self._running:
            name = rng.choice(sorted(self._running))
            self._running.pop(name).cancel()
            self._say(Lost(name, "its slot was reclaimed"))
            self._more.set()

    def crash(self, name):
        self._running.pop(name).cancel()
        self._say(Broken(name, "its host went down"))

    def vanish(self, name):
        """Forget a parcel without a word."""
        self._running.pop(name).cancel()


class Farm:
    """Hosts that outlive the senders of parcels."""

    def __init__(self):
        self.tasks: dict = {}
        self.bodies: dict[bytes, bytes] = {}
        self.pool = ThreadPoolExecutor(4)


class KeepingEngine(ReferenceEngine):
    """Leaves its parcels at a farm, and finds them there in its next life."""

    def __init__(self, farm: Farm, slots: int = 2, take_up_s: float = 20.0, detaches: bool = True):
        super().__init__(slots, bodies=farm.bodies)
        self.farm, self.take_up_s, self.detaches = farm, take_up_s, detaches

    async def run(self, tell):
        self._tell = tell
        for name, (label, _) in self.farm.tasks.items():
            tell(Found(name, label))
        tell(Room(self.slots))
        try:
            while True:
                for name, (_, future) in list(self.farm.tasks.items()):
                    if future.done():
                        del self.farm.tasks[name]
                        tell(future.result())
                await trio.sleep(0.01)
        finally:
            self.closed = True
            if not self.detaches:
                self.farm.tasks.clear()

    def forget(self, digest):
        pass

    def send(self, parcel):
        self.sent.append(parcel)
        future = self.farm.pool.submit(self._do, parcel)
        self.farm.tasks[parcel.name] = (parcel.label, future)

    def cancel(self, names, *, running):
        for name in names:
            if name in self.farm.tasks:
                if running:
                    del self.farm.tasks[name]
                self._tell(Cancelled(name) if running else Begun(name))

    def holds(self, name):
        return name in self.farm.tasks


class InnerDelegate:
    """A delegate in a thread of this process, for an engine whose parts a test can hold."""

    def __init__(self, address: str, engine, pool: str = "workers", name: str = "grid"):
        self.engine = engine
        self.said: list[str] = []
        settings = DelegateSettings(address, pool, name)
        self.delegate = Delegate(settings, engine, self.said.append)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,))
        self._thread.start()
        assert self._ready.wait(READY_S)

    async def _run(self):
        self._token = trio.lowlevel.current_trio_token()
        self._scope = trio.CancelScope()
        self._ready.set()
        with self._scope:
            await self.delegate.run()

    def call(self, function, *arguments):
        """Run something in the delegate's own thread."""
        return trio.from_thread.run_sync(function, *arguments, trio_token=self._token)

    def stop_politely(self):
        """End it as a signal does."""
        self.call(self.delegate.stop)
        self._thread.join(READY_S)
        assert not self._thread.is_alive()

    def stop(self):
        """End it at once."""
        if self._thread.is_alive():
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._scope.cancel)
        self._thread.join(READY_S)
        assert not self._thread.is_alive()
