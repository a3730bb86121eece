"""A user's script that uses every public name of `federation`. Needs a grid: `gridfed up`.

A test type-checks it, so that editors and type checkers know what the client takes and gives.
"""

import time
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path

from federation import (
    Client,
    GridError,
    JobHandle,
    LimitsUnmet,
    LogLine,
    TaskFuture,
    TlsSettings,
    as_completed,
    deadline,
)


def price(spot: float, volatility: float = 0.2) -> float:
    """Price an option, slowly; stop early when the slot is needed for another task."""
    stops_at_s = deadline()
    if stops_at_s is not None and stops_at_s < time.time() + 1:
        raise TimeoutError("no time left")
    return max(spot - 100.0, 0.0) + volatility * spot * 0.4


def run(ca_file: Path | None = None) -> float:
    """Price a book in each way that the client has, and return the sum."""
    tls = TlsSettings(ca_file=str(ca_file)) if ca_file is not None else None
    with Client(tls=tls) as client:
        one: TaskFuture[float] = client.submit(price, 101.0, volatility=0.3)
        others = [client.submit(price, float(spot)) for spot in range(90, 110)]
        total = one.result(timeout=60) + sum(each.result() for each in as_completed(others))
        standard: Future[float] = one
        print(standard.done(), one.job, one.task, one.running(), client.address)
        total += sum(client.map(price, [95.0, 105.0], [0.2, 0.25]))
        view = client.options(timeout_s=60, retries=2, tags={"linux": True}, name="book")
        within = view.options(deadline_s=timedelta(hours=2), task_s=1.0, objective="cheapest")
        try:
            job: JobHandle = within.submit_job(price, [90.0, 100.0, 110.0])
        except LimitsUnmet as unmet:
            print(unmet.offers)
            raise
        print(job.wait(timeout=60), job.progress().done, str(job.cost()))
        lines: list[LogLine] = list(job.logs())
        print([f"{line.at:%H:%M} task {line.task} {line.stream}: {line.text}" for line in lines])
        try:
            client.job("no-such-job").details()
        except GridError as error:
            print(error)
        return total + float(sum(job.results()))


if __name__ == "__main__":
    print(run())
