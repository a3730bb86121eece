"""A window closes on another site's work: it gets notice, saves its state, and goes on elsewhere.

    zurich   1 slot    0.80 USD a slot-hour    dear: the client's own gateway
    london   1 slot    0.20 USD                cheap, and used for production in a window

The client's work runs in london, which is cheaper. Then london's owner adds a window to the site's
configuration, in which others have no slots, and makes the gateway read it (`gridfed reload`). The
work gets notice of its stop, saves its state, and zurich runs the rest.

    python examples/closing_window.py
"""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import cloudpickle
from local_federation import LocalSite, LocalSitePlan, local_federation

from federation import Client, deadline

PAGES = 40
PAGE_S = 0.1
GRACE_S = 2.0  # the time in which work can save its state
MARGIN_S = 1.0  # how long before the end of that it does
WAIT_S = 60.0
WINDOW = """
[[pool.window]]
name = "production"
from = "{:%H:%M:%S}"
to = "{:%H:%M:%S}"
grace_s = {}
claims = [ {{ who = "others", borrows = 0 }} ]
"""

# Workers do not have this file: its functions are sent with the work.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def read_pages(saved: Path) -> list[tuple[int, int]]:
    """Work through some pages; return the pages done in each run, first and last.

    A run that is going to be stopped saves its state, and the next goes on from there.
    """
    before = [tuple(map(int, line.split())) for line in saved.read_text().splitlines()]
    first = before[-1][1] + 1 if before else 1
    for page in range(first, PAGES + 1):
        time.sleep(PAGE_S)
        at_s = deadline()
        if at_s is not None and at_s - time.time() < MARGIN_S:
            with saved.open("a") as file:
                file.write(f"{first} {page}\n")
            time.sleep(WAIT_S)  # until it is stopped
    return [*((low, high) for low, high in before), (first, PAGES)]


def close_window(near: LocalSite, far: LocalSite) -> None:
    """Run work of one site at another, and close a window on it; print the course of it."""
    with Client(near.address) as client:
        view = client.options(name="pages", sites=[near.name, far.name], objective="cheapest")
        saved = far.folder.parent / "pages"
        saved.touch()
        task = view.submit(read_pages, saved)

        def explained() -> dict[str, object]:
            job = next(each for each in client.ask("jobs") if each["name"] == "pages")
            found: dict[str, object] = client.ask("explain", job=job["id"])
            return found

        def has(site: LocalSite) -> bool:
            pool = "local" if site is near else f"{site.name}/local"
            places = explained()["places"]
            assert isinstance(places, list)
            return any(each["pool"] == pool and each["in_flight"] for each in places)

        _wait(lambda: has(far), f"{far.name} to get the work")
        print(f"\n  {far.name}, which is cheaper, runs work of {near.name}; its own run begins:")
        now = datetime.now(UTC)
        config = far.folder / "gateway.toml"
        window = WINDOW.format(now, now + timedelta(hours=6), GRACE_S)
        config.write_text(config.read_text() + window)
        far.ask("reload")  # as the command gridfed reload does
        _wait(lambda: has(near), f"{near.name} to get the work")
        notes = explained()["notes"]
        assert isinstance(notes, list)
        print("  (gridfed explain)")
        for note in notes:
            print(f"    {note['text']}")
        runs = task.result(WAIT_S)
    for (first, last), site in zip(runs, (far, near), strict=True):
        print(f"  pages {first} to {last} were done at {site.name}")


def _wait(condition: Callable[[], bool], what: str) -> None:
    until_s = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > until_s:
            sys.exit(f"timed out waiting for {what}")
        time.sleep(0.05)


def main() -> None:
    """Make two sites, and close a window on one's work at the other."""
    print("creating two sites and connecting them …")
    with local_federation(
        (LocalSitePlan("zurich", 1, "0.80 USD"), LocalSitePlan("london", 1, "0.20 USD"))
    ) as sites:
        close_window(*sites)


if __name__ == "__main__":
    main()
