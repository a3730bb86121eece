"""A user's script that uses every public name of `federation`. Needs a grid: `gridfed up`.

A test type-checks it, so that editors and type checkers know what the client takes and gives;
another runs it.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any

from federation import (
    AddressError,
    AsyncClient,
    Client,
    ClientFileError,
    Cost,
    CostLimitReached,
    DeadlinePassed,
    DependencyFailed,
    DetachedTask,
    EnvironmentFailed,
    Explanation,
    ForkedProcessError,
    GatewayUnreachable,
    GridError,
    JobCancelled,
    JobHandle,
    JobNotFound,
    JobRefused,
    LimitsUnmet,
    LogLine,
    MapResults,
    MemoryLimitExceeded,
    ObjectLost,
    ObjectRef,
    ObjectRefused,
    Offer,
    Progress,
    ProtocolError,
    QueueLimitReached,
    RemoteError,
    RemoteTraceback,
    ResidencyRefused,
    ResultRefused,
    ResultUntrusted,
    SerializationError,
    SessionRefused,
    TaskCrashed,
    TaskError,
    TaskFuture,
    TaskStopped,
    TaskTimeout,
    TlsSettings,
    WorkerLost,
    as_completed,
    deadline,
)

AGAIN = (TaskCrashed, TaskStopped, TaskTimeout, WorkerLost, GatewayUnreachable)
MISTAKES = (AddressError, ClientFileError, ForkedProcessError)
LIMITS = (CostLimitReached, DeadlinePassed, MemoryLimitExceeded, QueueLimitReached)
NEVER = (EnvironmentFailed, ResidencyRefused, ResultRefused, ResultUntrusted, SerializationError)
OURS = (JobRefused, ProtocolError, SessionRefused, RemoteError, TaskError)


def price(spot: float, volatility: float = 0.2) -> float:
    """Price an option, slowly; stop early when the slot is needed for another task."""
    stops_at_s = deadline()
    if stops_at_s is not None and stops_at_s < time.time() + 1:
        raise TimeoutError("no time left")
    if spot <= 0:
        raise ValueError("a spot price must be positive")
    print(f"spot {spot}", file=sys.stderr)
    return max(spot - 100.0, 0.0) + volatility * spot * 0.4


def failed(error: BaseException) -> str:
    """Say what to do about a failure."""
    if isinstance(error, AGAIN):
        return "submit it again"
    if isinstance(error, LIMITS):
        return "ask for wider limits"
    if isinstance(error, NEVER + OURS + MISTAKES):
        return f"mend the job: {error}"
    traceback = error.__cause__
    return str(traceback) if isinstance(traceback, RemoteTraceback) else repr(error)


def one_by_one(client: Client) -> float:
    """Price by futures."""
    one: TaskFuture[float] = client.submit(price, 101.0, volatility=0.3)
    standard: Future[float] = one
    one.add_done_callback(lambda done: print("done:", done.done(), done.cancelled()))
    print(one.job, one.task, one.running(), one.why_waiting(), standard.exception(timeout=60))
    others = [client.submit(price, float(spot)) for spot in range(90, 110)]
    total = one.result(timeout=60) + sum(each.result() for each in as_completed(others))
    for future in client.as_completed([client.submit(price, -1.0)], timeout=60):
        if (error := future.exception()) is not None:
            print(failed(error))
    unneeded = client.submit(price, 1.0)
    print("cancelled:", unneeded.cancel(stop=True))
    return total


def by_maps(client: Client) -> float:
    """Price by maps."""
    results: MapResults[float] = client.map(
        price, [95.0, 105.0], [0.2, 0.25], timeout=60, chunksize=1, progress=False
    )
    print(results.job)
    total = sum(results)
    pairs: list[tuple[float, float]] = [(95.0, 0.2), (105.0, 0.25)]
    with_close = client.starmap(price, pairs)
    total += next(with_close)
    print(with_close.is_ready)
    with_close.close()
    return total


def worth(book: Any) -> float:
    """Return the sum of a book; a reference arrives as the value that it stands for."""
    return float(sum(book))


def by_reference(client: Client) -> float:
    """Put a book once, and price it by references to it."""
    try:
        ref: ObjectRef[list[float]] = client.put([95.0, 105.0], name="book", for_s="10m")
        total = client.submit(worth, ref).result() + sum(client.map(worth, [ref, ref]))
        left: Any = client.options(results="ref").submit(worth, ref).result()
        total += float(left.result())
        print(client.object("book").result(), ref.where())
    except (ObjectRefused, ObjectLost) as error:
        print(error)  # it is not on this host, or is gone
        total = 0.0
    return total


def cancelled(job: JobHandle) -> str:
    """Cancel a job, and say whose it was."""
    order: JobCancelled = job.order_cancel(stop=True)
    return f"{order.tasks} tasks of {order.title}"


def detached(client: Client) -> float:
    """Price by a job that outlives this process."""
    view = client.options(
        timeout_s=60, retries=2, priority=1.0, tags={}, name="book", project="default"
    ).options(max_cost=None, prints=False, objective="cheapest", preemptible=False, whole=False)
    within = view.options(deadline_s=timedelta(hours=2), task_s=1.0, deferrable=False).options(
        sites=None, not_sites=None, jurisdictions=None, data=None, environment=None
    )
    plan: Explanation = within.options(when_closed=None).explain(price, tasks=3, task_s=1.0)
    print(plan, plan["text"])
    try:
        job: JobHandle = within.submit_job(price, [90.0, 100.0, 110.0], name="tonight", star=False)
    except LimitsUnmet as unmet:
        best: Offer | None = unmet.later or unmet.dearer
        for offer in filter(None, (best, *unmet.offers)):
            print(offer.text, offer.options)
        raise
    print(job.id, job.gateway, job.state, job.why_waiting(), job.wait(timeout=60), job.first_error)
    progress: Progress = job.progress()
    cost: Cost = job.cost()
    print(progress.done, progress.failed, progress.cancelled, progress.total)
    print(progress.running, progress.waiting)
    print(str(cost), cost.nanos, cost.currency, cost.price_nanos, cost.wall_ns)
    print(cost.user, cost.project, job.details(timeout=10)["name"])
    lines: list[LogLine] = [*job.logs(follow=True), *job.logs(0)]
    print([f"{line.at:%H:%M} task {line.task} {line.stream}: {line.text}" for line in lines])
    same = client.job(job.id, gateway=job.gateway)
    total = float(sum(same.results())) + float(len(list(job.results(return_exceptions=True))))
    print(client.jobs(10, name="tonight", state="done", all_users=False)[0]["id"])
    print(job.held_by)
    asked: list[Callable[[], object]] = [job.hold, job.release, lambda: job.prioritise(1.0)]
    asked += [job.explain, job.cancel, lambda: cancelled(job), same.forget]
    for each in asked:
        try:
            print(each())
        except GridError as error:
            print(error)  # it has ended: there is nothing to explain, nor to cancel
    return total


def by_graph(client: Client) -> float:
    """Price in calls that wait for each other: by a graph as of Dask, and by detached jobs."""
    graph = {"spot": (price, 90.0), "both": (sum, ["spot", "spot"])}
    total = float(client.get(graph, "both"))
    total += float(client.persist(graph, ["both"])["both"].result())
    first = client.submit_job(price, [90.0])
    task: DetachedTask = first.task(0)
    second = client.submit_job(sum, [[task, *first.tasks()]])
    try:
        return total + float(sum(second.results()))
    except DependencyFailed as error:
        print(error)
        raise


async def awaited() -> float:
    """Price within an event loop."""
    async with AsyncClient() as client:
        view = client.options(name="awaited")
        first = view.submit(price, 90.0)
        total = await first
        async for value in client.map(price, [90.0, 95.0]):
            total += value
        return total + sum([await each async for each in client.as_completed([first])])


def run(ca_file: Path | None = None) -> float:
    """Price a book in each way that the client has, and return the sum."""
    tls = TlsSettings(ca_file=str(ca_file)) if ca_file is not None else None
    with Client(tls=tls) as client:
        print(client.address, client.gateway["why"], client.ask("status")["state"])
        print(client.ask("report", kind="usage", by=["project"])["rows"])
        try:
            client.job("no-such-job").details()
        except JobNotFound as error:
            print(error)
        total = one_by_one(client) + by_maps(client) + detached(client)
        total += by_reference(client) + by_graph(client)
        client.shutdown(wait=True, cancel_futures=False)
    return total + asyncio.run(awaited())


if __name__ == "__main__":
    print(run())
