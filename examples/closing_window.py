"""A window that closes on another site's work: it is told, saves itself, and goes on elsewhere.

    zurich   1 slot    0.80 USD a slot-hour    dear: the client's own gateway
    london   1 slot    0.20 USD                cheap, and used for production in a window

The client's work runs in london, which is cheaper. Then london's owner writes a window into the
site's configuration, in which others have no slots, and has the gateway read it (`gridfed reload`).
The work is told when it will be stopped, saves where it is, and zurich runs the rest.

    python examples/closing_window.py
"""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import cloudpickle
from local_federation import LocalSite, Plan, local_federation

from federation import Client, deadline

PAGES = 40
PAGE_S = 0.1
GRACE_S = 2.0  # that work has to save itself
MARGIN_S = 1.0  # and how long before the end of that it does
WAIT_S = 60.0
WINDOW = """
[[pool.window]]
name = "production"
from = "{:%H:%M:%S}"
to = "{:%H:%M:%S}"
grace_s = {}
claims = [ {{ who = "others", borrows = 0 }} ]
"""

# Workers do not have this file: what is run of it travels with the work.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def read_pages(saved: Path) -> list[tuple[int, int]]:
    """Work through some pages; which were done in each run, first and last.

    A run that is going to be stopped saves what is done, and the next goes on from there.
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
    """Have work of one site run at another, and close a window on it; prints what becomes of it."""
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

        _wait(lambda: has(far), f"{far.name} has the work")
        print(f"\n  {far.name} runs work of {near.name}'s, for it is cheaper; its own run begins:")
        now = datetime.now(UTC)
        config = far.folder / "gateway.toml"
        window = WINDOW.format(now, now + timedelta(hours=6), GRACE_S)
        config.write_text(config.read_text() + window)
        far.ask("reload")  # as the command gridfed reload does
        _wait(lambda: has(near), f"{near.name} has the work")
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
            sys.exit(f"{what}: that did not come about")
        time.sleep(0.05)


def main() -> None:
    """Make two sites, and close a window on one's work at the other."""
    print("making two sites, and introducing them to each other …")
    with local_federation((Plan("zurich", 1, "0.80 USD"), Plan("london", 1, "0.20 USD"))) as sites:
        close_window(*sites)


if __name__ == "__main__":
    main()
