"""A provisioning grid on Amazon EC2; see gateway.grids.ec2.launching for how an order is made.

The pure modules beside this one make the decisions. Each call of the contract is one function in a
thread, with a time limit. Starts go one after another, under a file lock: so the same order is
looked up and made by one object of this host at a time.
"""

import contextlib
import fcntl
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from federation.clocks import MonoS, UtcS
from federation.words import count, duration_text
from gateway.grids.contract import (
    Capacity,
    FailureClass,
    GridFault,
    Launch,
    Limits,
    Order,
    PilotState,
    Shape,
    Sighting,
    check_order,
)
from gateway.grids.ec2 import events, faults
from gateway.grids.ec2.calls import ATTEMPTS, Ec2Calls
from gateway.grids.ec2.ceilings import InstanceRelease, surplus
from gateway.grids.ec2.launching import (
    MARK_TAG,
    PILOTS_TAG,
    as_tags,
    fleet_request,
    groups,
    instances_of,
    name_rest,
    pilot_name,
    tags_of,
    template_data,
    template_name,
    user_data,
)
from gateway.grids.ec2.prices import (
    CeilingRoom,
    InstanceOffer,
    PriceBook,
    PriceError,
    by_price,
    cheap_enough,
    read_file,
    read_products,
    read_spot,
    within,
)
from gateway.grids.ec2.seen import Ec2Instance, read_instance, spend_nanos
from gateway.grids.ec2.settings import Ec2Config, Ec2Market, Place

ORDER_MAX: Final = 500  # instances of one order
ORDERS_MAX: Final = 30  # in a minute
CALL_S: Final = 180.0  # the time limit of a call of the contract
VISIBLE_S: Final = 300.0  # EC2 shows a started instance within this time, or it does not exist
EVENTS_S: Final = 60.0  # how old the list of scheduled events may be
SPOT_S: Final = 300.0  # how old a spot price may be
LIST_S: Final = 86_400.0  # and the price list
LATE_S: Final = 600.0  # an instance that starts slowly counts its time from later than we do
TIDY_AGE_S: Final = 3_600.0  # an unused launch template of ours is deleted after this age
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Type:
    """The properties of an instance type."""

    slots: int
    memory_bytes: int
    gpus: int


@dataclass(frozen=True, slots=True)
class _Facts:
    """Unchanging facts, asked for once."""

    types: Mapping[str, _Type]
    places: tuple[Place, ...]
    template: Mapping[str, Any]

    @property
    def slots(self) -> dict[str, int]:
        """The slots of each type."""
        return {kind: each.slots for kind, each in self.types.items()}


@dataclass(slots=True)
class _Started:
    """An instance that we have started: EC2 may not show it, or its tags, yet."""

    order: str
    number: int
    kind: str
    at_s: MonoS
    is_told: bool = False  # it has its tag with the number


class Ec2Grid:
    """Rents instances. `attempts`: of each of EC2's calls."""

    def __init__(self, config: Ec2Config, launch: Launch, attempts: int = ATTEMPTS) -> None:
        self._config = config
        self._launch = launch
        self._calls = Ec2Calls(config, attempts)
        self._facts: _Facts | None = None
        self._started: dict[str, _Started] = {}
        self._templates: set[str] = set()
        self._listed: tuple[MonoS, Mapping[str, int]] | None = None
        self._spots: tuple[MonoS, Mapping[tuple[str, str], int]] | None = None
        self._leaving: dict[str, InstanceRelease] = {}
        self._shown: Mapping[str, tuple[str, ...]] = {}  # by instance: its pilot, at the last look
        self._events: tuple[MonoS, list[Mapping[str, Any]]] | None = None
        self._is_tidy = False
        self._said = ""

    # --- the contract --------------------------------------------------------------------------

    async def check(self) -> str:
        """Check that we may start instances as configured; remove leftovers."""
        return await _in_thread(self._check)

    async def limits(self) -> Limits:
        """Return the limits of an order, which is one fleet."""
        return Limits(min(self._config.max_instances, ORDER_MAX), ORDERS_MAX)

    async def capacity(self, shape: Shape) -> Capacity:
        """Return the room below our ceilings: EC2 does not publish its capacity."""
        return await _in_thread(self._capacity, shape)

    async def pilots(self) -> Sequence[Sighting]:
        """Return our instances; ended ones for as long as EC2 shows them."""
        return await _in_thread(self._pilots)

    async def start(self, order: Order) -> None:
        """Start one instance for each pilot, as many as ceilings and EC2 allow.

        Raises GridFault also if only some were started, and says so: they are shown.
        """
        check_order(order, await self.limits())
        await _in_thread(self._start, order)

    async def stop(self, names: Collection[str]) -> None:
        """Terminate instances."""
        if names:
            await _in_thread(self._stop, frozenset(names))

    async def leaving(self) -> Mapping[str, str]:
        """Return the pilots whose instance has a scheduled event within 15 minutes."""
        return await _in_thread(self._withdrawn)

    async def price_nanos(self) -> tuple[int, str] | None:
        """Return the average slot-hour of running instances; without any, the cheapest offer."""
        return await _in_thread(self._price)

    # --- in a thread: queries ------------------------------------------------------------------

    def _check(self) -> str:
        config, shape = self._config, Shape()
        offers = self._offers(shape)
        request = fleet_request(
            config, self._launch.mark, Order("check", 1, shape), "gridfed-check", offers[:1], 1
        )
        try:
            self._calls.create_fleet({**request, "DryRun": True})
        except faults.Ec2Fault as fault:
            # Permissions are checked first; the absence of the template is expected.
            if fault.code not in (faults.DRY_RUN, faults.TEMPLATE_GONE):
                raise
        self._tidy()
        there = sum(not each.is_over for each in self._look())
        most = f"{there} of at most {config.max_instances} instances exist"
        cheapest = offers[0].slot_nanos
        currency = self._book(is_needed=False).currency
        price = "" if cheapest is None else f", from {cheapest / 1e9:.4f} {currency}"
        kinds = ", ".join(sorted({each.kind for each in offers}))
        return f"EC2 in {config.region}: {kinds}, {config.market}{price} a slot-hour; {most}"

    def _look(self) -> list[Ec2Instance]:
        """Return our instances, with the numbers that we know they have been given."""
        found = []
        for body in self._calls.instances(MARK_TAG, self._launch.mark):
            if tags_of(body).get(MARK_TAG) != self._launch.mark:
                continue  # verify the mark: shown instances may be stopped
            each = read_instance(body)
            known = self._started.get(each.id)
            if known is not None:
                each = replace(each, order=known.order, number=known.number)
            elif not each.order:  # started by hand from our template
                each = replace(each, order=each.id, number=0)
            found.append(each)
        return found

    def _hidden(self, shown: Collection[Ec2Instance]) -> Iterator[tuple[str, _Started]]:
        """Yield instances that we have started and EC2 does not show yet."""
        ids, mono_s = {each.id for each in shown}, MonoS(time.monotonic())
        for instance, each in list(self._started.items()):
            if instance not in ids:
                if mono_s - each.at_s < VISIBLE_S:
                    yield instance, each
                else:
                    self._started.pop(instance, None)

    def _pilots(self) -> list[Sighting]:
        shown = self._look()
        if any(map(self._is_untold, shown)):
            with self._alone():  # a concurrent start names its own
                shown = self._name(self._look())
        slots = self._load().slots
        self._keep_to_ceilings(shown)
        found: dict[str, Sighting] = {}
        doubles: list[str] = []
        for each in sorted(shown, key=lambda each: (each.is_over, each.launched_at_s, each.id)):
            if each.number is not None:
                sighting = each.sighting(each.number, slots.get(each.kind, 1))
                if each.id in self._leaving:
                    sighting = self._leaving[each.id].over(sighting)
                first = found.setdefault(sighting.name, sighting)
                is_there = sighting.state in (PilotState.STARTING, PilotState.RUNNING)
                doubles += [each.id] if is_there and first is not sighting else []
        if doubles:  # a service without client tokens was slow to show its first start
            self._say(f"terminates {count(len(doubles), 'duplicate instance')}")
            self._calls.terminate(doubles)
        self._end_late(shown)
        for instance, started in self._hidden(shown):
            body = {"InstanceId": instance, "State": {"Name": "pending"}}
            each = replace(read_instance(body), order=started.order)
            sighting = each.sighting(started.number, slots.get(started.kind, 1))
            found.setdefault(sighting.name, sighting)
        self._shown = {
            each.grid_id: (each.name,)
            for each in found.values()
            if each.state is not PilotState.ENDED
        }
        return list(found.values())

    def _keep_to_ceilings(self, shown: Sequence[Ec2Instance]) -> None:
        """Release instances that exceed the ceilings at present prices."""
        config, ids = self._config, {each.id for each in shown if not each.is_over}
        self._leaving = {one: each for one, each in self._leaving.items() if one in ids}
        try:
            book = self._book(is_needed=True) if config.has_price_ceiling and ids else PriceBook()
        except GridFault as fault:
            self._say(f"the limits of running instances can't be checked: {fault}")
            return
        new = surplus(config, shown, self._leaving.keys(), self._load().slots, book)
        if new:
            self._say(f"releases {count(len(new), 'instance')}: {next(iter(new.values()))}")
            until_s = UtcS(time.time() + config.over_ceiling_s)
            self._leaving |= {one: InstanceRelease(why, until_s) for one, why in new.items()}

    def _end_late(self, shown: Sequence[Ec2Instance]) -> None:
        """Terminate instances whose grace period or time limit is over."""
        utc_s = UtcS(time.time())
        late = [
            each.id
            for each in shown
            if each.state in ("pending", "running")
            and (
                (each.ends_at_s is not None and utc_s >= each.ends_at_s + LATE_S)
                or (each.id in self._leaving and utc_s >= self._leaving[each.id].until_s)
            )
        ]
        if late:
            self._say(f"terminates {count(len(late), 'instance')} beyond the time limit")
            self._calls.terminate(late)

    def _capacity(self, shape: Shape) -> Capacity:
        shown = self._look()
        offers = self._offers(shape)
        room = self._room(offers, self._config.max_instances, shown)
        slots = min((each.slots for each in room.offers), default=0) * room.instances
        return Capacity(slots, slots)

    def _withdrawn(self) -> dict[str, str]:
        """Ask for events once in a while: they are announced days ahead."""
        if not self._shown:
            return {}
        mono_s = MonoS(time.monotonic())
        if self._events is None or mono_s - self._events[0] >= EVENTS_S:
            self._events = mono_s, self._calls.statuses(sorted(events.CODES))
        return events.leaving(self._events[1], self._shown, UtcS(time.time()))

    def _price(self) -> tuple[int, str] | None:
        book = self._book(is_needed=False)
        slots_of = self._load().slots
        running = [each for each in self._look() if each.state == "running"]
        slots = sum(slots_of.get(each.kind, 0) for each in running)
        spend = spend_nanos(running, book)
        if slots and spend is not None:
            return -(-spend // slots), book.currency
        nanos = self._offers(Shape())[0].slot_nanos
        return None if nanos is None else (nanos, book.currency)

    # --- in a thread: starts -------------------------------------------------------------------

    def _start(self, order: Order) -> None:
        with self._alone():
            self._tidy()
            shown = self._look()
            hidden = list(self._hidden(shown))
            made = {each.order for each in shown} | {each.order for _, each in hidden}
            if order.name in made:
                self._name(shown)  # it was made, but its instances may be unnamed
                return
            room = self._room(self._offers(order.shape), order.pilots, shown, len(hidden))
            if not room.instances:
                raise GridFault(FailureClass.ELSEWHERE, f"no instance was started: {room.why}")
            template = self._template(order.shape, order.limit_s)
            request = fleet_request(
                self._config, self._launch.mark, order, template, room.offers, room.instances
            )
            answer = self._ask_for(request, template)
            if answer is not None:
                self._take(order, room, answer)

    def _ask_for(self, request: Mapping[str, Any], template: str) -> Mapping[str, Any] | None:
        try:
            return self._calls.create_fleet(request)
        except faults.Ec2Fault as fault:
            if fault.code == faults.MISMATCH:
                # It was made in a former run, at other prices: it will be shown.
                self._say(
                    "EC2 has this order already, from before the gateway's restart and at other "
                    "prices; its instances are taken over when EC2 lists them"
                )
                return None
            if fault.code == faults.TEMPLATE_GONE:
                self._templates.discard(template)
                raise GridFault(FailureClass.AGAIN, f"{fault}; retried next time") from None
            raise

    def _take(self, order: Order, room: CeilingRoom, answer: Mapping[str, Any]) -> None:
        """Name the started instances; raise a fault for missing ones."""
        kinds = {
            one: str(each.get("InstanceType", ""))
            for each in answer.get("Instances", [])
            for one in each["InstanceIds"]
        }
        numbers = {one: number for number, one in enumerate(instances_of(answer))}
        for one, number in numbers.items():
            self._started[one] = _Started(order.name, number, kinds[one], MonoS(time.monotonic()))
        with contextlib.suppress(faults.Ec2Fault):
            self._tell(numbers)  # one that is not visible everywhere yet is tagged at a later look
        if len(numbers) < room.instances:
            raise faults.unfulfilled(answer.get("Errors", []), len(numbers), order.pilots)
        if room.why:
            text = f"{len(numbers)} of {order.pilots} instances were started: {room.why}"
            raise GridFault(FailureClass.ELSEWHERE, text)

    def _name(self, shown: Sequence[Ec2Instance]) -> list[Ec2Instance]:
        """Tag instances that have not been told their numbers, as their starter could not.

        Those of a former run without a number get free ones.
        """
        named = {each.id: each for each in shown}
        untold = [each for each in shown if self._is_untold(each)]
        for order in sorted({each.order for each in untold}):
            taken = {
                each.id: each.number
                for each in shown
                if each.order == order and each.number is not None
            }
            ours = [each for each in untold if each.order == order]
            numbers = name_rest(taken, (each.id for each in ours if each.number is None))
            for one, number in numbers.items():
                kind = named[one].kind
                self._started[one] = _Started(order, number, kind, MonoS(time.monotonic()))
                named[one] = replace(named[one], number=number)
            try:
                self._tell({each.id: self._started[each.id].number for each in ours})
            except faults.Ec2Fault as fault:  # the next look tags them; until then, they are shown
                self._say(f"could not tag {count(len(ours), 'instance')} with names: {fault}")
        return list(named.values())

    def _is_untold(self, each: Ec2Instance) -> bool:
        known = self._started.get(each.id)
        is_told = each.number is not None if known is None else known.is_told
        return not is_told and not each.is_over

    def _tell(self, numbers: Mapping[str, int]) -> None:
        for instances, tag in groups(numbers):
            self._calls.tag(instances, PILOTS_TAG, tag)
            for each in instances:
                self._started[each].is_told = True

    def _template(self, shape: Shape, limit_s: float | None) -> str:
        """Return the launch template for pilots of a shape and time; make it if needed."""
        facts = self._load()
        script = user_data(self._config, self._launch, shape, facts.slots, limit_s)
        data = template_data(self._config, self._launch, script, facts.template)
        name = template_name(self._launch.mark, data)
        if name not in self._templates:
            self._calls.put_template(name, data, as_tags({MARK_TAG: self._launch.mark}))
            self._templates.add(name)
        return name

    def _stop(self, names: Collection[str]) -> None:
        shown = self._look()
        ids = [
            each.id
            for each in shown
            if not each.is_over
            and each.number is not None
            and pilot_name(each.order, each.number) in names
        ]
        hidden = [
            instance
            for instance, each in self._hidden(shown)
            if pilot_name(each.order, each.number) in names
        ]
        unknown = self._calls.terminate([*ids, *hidden]) if ids or hidden else []
        young = set(unknown) & set(hidden)
        if young:
            text = f"EC2 does not list {len(young)} new instances yet"
            raise GridFault(FailureClass.AGAIN, text)

    def _tidy(self) -> None:
        """Remove leftovers of a former run, once per run."""
        if self._is_tidy:
            return
        mark = self._launch.mark
        try:
            for template in self._calls.templates(MARK_TAG, mark):
                made = template.get("CreateTime")
                age_s = time.time() - made.timestamp() if isinstance(made, datetime) else 0.0
                if template["LaunchTemplateName"] not in self._templates and age_s >= TIDY_AGE_S:
                    self._calls.drop_template(template["LaunchTemplateId"])
            for volume in self._calls.loose_volumes(MARK_TAG, mark):
                self._calls.drop_volume(volume)
        except GridFault as fault:
            if fault.failure_class is FailureClass.AGAIN:
                raise
            self._say(f"leftover resources could not be removed: {fault}")
        self._is_tidy = True

    # --- in a thread: facts and prices ---------------------------------------------------------

    def _load(self) -> _Facts:
        if self._facts is None:
            self._facts = _Facts(self._types(), self._places(), self._base())
        return self._facts

    def _types(self) -> dict[str, _Type]:
        wanted = self._config.types
        bodies = {each["InstanceType"]: each for each in self._calls.instance_types([*wanted])}
        found = {}
        for kind, slots in wanted.items():
            if kind not in bodies:
                raise GridFault(
                    FailureClass.NEVER, f"EC2 has no instance type {kind} in this region"
                )
            body = bodies[kind]
            if body.get("Hypervisor") == "xen":
                text = (
                    f"{kind} is not a Nitro instance type: a running instance can't read its tags"
                )
                raise GridFault(
                    FailureClass.NEVER, f"{text}, which carry its name; use a newer type"
                )
            gpus = sum(each.get("Count", 0) for each in body.get("GpuInfo", {}).get("Gpus", []))
            found[kind] = _Type(
                slots=slots or int(body["VCpuInfo"]["DefaultVCpus"]),
                memory_bytes=int(body["MemoryInfo"]["SizeInMiB"]) << 20,
                gpus=gpus,
            )
        return found

    def _places(self) -> tuple[Place, ...]:
        subnets = [each.subnet for each in self._config.places if each.subnet]
        if not subnets:
            return self._config.places
        zones = self._calls.zones_of(subnets)
        return tuple(Place(zones.get(each, ""), each) for each in subnets)

    def _base(self) -> Mapping[str, Any]:
        """Return the contents of the owner's launch template."""
        name = self._config.launch_template
        if not name:
            return {}
        try:
            found = self._calls.template(name, self._config.launch_template_version)
        except faults.Ec2Fault as fault:
            if fault.code not in faults.NO_TEMPLATE:
                raise
            # Our own templates are made again; the owner's is not.
            raise GridFault(FailureClass.NEVER, f"{fault}; check `launch_template`") from None
        if found.get("UserData"):
            text = f"launch template {name} has user data, which gridfed does not run"
            raise GridFault(FailureClass.NEVER, f"{text}: move it into user_data_head")
        if not self._config.image and not found.get("ImageId"):
            raise GridFault(FailureClass.NEVER, f"launch template {name} has no image: set `image`")
        return found

    def _offers(self, shape: Shape) -> list[InstanceOffer]:
        """Return the possible rentals for pilots of a shape, the cheapest first."""
        facts = self._load()
        fit = {
            kind: each
            for kind, each in facts.types.items()
            if each.slots >= shape.slots
            and each.memory_bytes >= shape.memory_bytes
            and each.gpus >= shape.gpus
        }
        if not fit:
            raise GridFault(
                FailureClass.NEVER,
                f"none of {', '.join(facts.types)} offers {shape.slots} slots, "
                f"{shape.memory_bytes:,} bytes of memory and {shape.gpus} GPUs",
            )
        book = self._book(is_needed=self._config.has_price_ceiling)
        return by_price(
            InstanceOffer(kind, place, each.slots, self._price_of(book, kind, place.zone))
            for kind, each in fit.items()
            for place in facts.places
        )

    def _price_of(self, book: PriceBook, kind: str, zone: str) -> int | None:
        """Return the most that an instance may cost in an hour; None: unknown."""
        market = self._config.market
        prices = []
        if market is not Ec2Market.ON_DEMAND:
            prices.append(book.price_nanos(kind, zone, is_spot=True))
        if market is not Ec2Market.SPOT:
            prices.append(book.price_nanos(kind, zone, is_spot=False))
        known = [each for each in prices if each is not None]
        return max(known) if len(known) == len(prices) else None

    def _room(
        self,
        offers: Sequence[InstanceOffer],
        wanted: int,
        shown: Sequence[Ec2Instance],
        hidden: int = 0,
    ) -> CeilingRoom:
        """Return the room below the ceilings for a number of instances."""
        config = self._config
        offers = cheap_enough(offers, config.max_price_nanos)
        if not offers:
            return CeilingRoom(0, (), "no instance is available for max_price")
        there = sum(not each.is_over for each in shown) + hidden
        left: int | None = None
        if config.max_spend_nanos is not None:
            spend = spend_nanos(shown, self._book(is_needed=True))
            if spend is None:
                return CeilingRoom(
                    0,
                    (),
                    "max_spend_per_hour can't be checked: the price of running instances is "
                    "unknown",
                )
            dearest = max((each.price_nanos or 0 for each in offers), default=0)
            left = config.max_spend_nanos - spend - hidden * dearest
        return within(offers, wanted, config.max_instances - there, left)

    def _book(self, *, is_needed: bool) -> PriceBook:
        """Return present prices. `is_needed`: without them none may be started."""
        try:
            book = self._read_book()
        except PriceError as error:
            raise GridFault(FailureClass.NEVER, str(error)) from None
        except GridFault as fault:
            if fault.failure_class is FailureClass.AGAIN or is_needed:
                raise
            self._say(f"prices are unknown: {fault}")
            return PriceBook()
        if is_needed and book.currency != self._config.currency:
            key = "max_price" if self._config.max_spend_nanos is None else "max_spend_per_hour"
            text = f"{key} is in {self._config.currency}, prices in {book.currency}"
            raise GridFault(FailureClass.NEVER, f"{text}: use one currency for both")
        return book

    def _read_book(self) -> PriceBook:
        config, mono_s = self._config, MonoS(time.monotonic())
        file = PriceBook(_currency(config.region))
        if config.prices != "live":
            file = read_file(Path(config.prices).read_text())
            if file.spot or config.market is Ec2Market.ON_DEMAND:
                return file
        elif self._listed is None or mono_s - self._listed[0] > LIST_S:
            found: dict[str, int] = {}
            for kind in config.types:
                found |= read_products(self._calls.products(kind), file.currency)
            self._listed = mono_s, found
        listed = file.on_demand if self._listed is None else self._listed[1]
        if config.market is Ec2Market.ON_DEMAND:
            return PriceBook(file.currency, listed)
        if self._spots is None or mono_s - self._spots[0] > SPOT_S:
            self._spots = mono_s, read_spot(self._calls.spot_prices([*config.types]))
        return PriceBook(file.currency, listed, self._spots[1])

    # --- helpers -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Exclude all other objects of this pool on this host."""
        with open(self._launch.folder / "ec2.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _say(self, line: str) -> None:
        if line != self._said:
            self._said = line
            self._launch.say(line)


def _currency(region: str) -> str:
    return "CNY" if region.startswith("cn-") else "USD"


async def _in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Run calls to EC2 in a thread, with a time limit. An abandoned thread goes on for a while."""
    try:
        with trio.fail_after(CALL_S):
            return await trio.to_thread.run_sync(work, *arguments, abandon_on_cancel=True)
    except trio.TooSlowError:
        raise GridFault(
            FailureClass.AGAIN, f"EC2 did not answer within {duration_text(CALL_S)}"
        ) from None
    except OSError as error:
        raise GridFault(FailureClass.NEVER, f"the pool's files can't be read: {error}") from error
