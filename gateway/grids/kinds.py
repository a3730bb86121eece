"""The kinds of grids that are installed: entry points of the group `gridfed.grids`.

Each names a GridKind or a DelegatingKind, ours as well as third parties'. Only the kinds that pools
use are imported.
"""

import contextlib
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from pathlib import Path
from typing import Any, Final, TypeVar

from gateway.base.values import SettingError
from gateway.config.pools import BUILT_IN, Delegated
from gateway.grids.contract import GridKind, Launch, Provisioning
from gateway.grids.delegating import DelegatingKind, Engine, Home

GROUP: Final = "gridfed.grids"
_CALLS: Final = ("check", "limits", "capacity", "pilots", "start", "stop")  # of a Provisioning
_REQUIREMENT: Final = re.compile(r"([\w.-]+)[^;]*;.*extra\s*==\s*['\"]([\w.-]+)['\"]")
T = TypeVar("T")


class Installed:
    """The kinds that are installed, as a configuration asks for them."""

    def find(self, name: str) -> GridKind | DelegatingKind:
        """The kind of that name. Raises SettingError: the known names, or what to install."""
        return find_kind(name)

    def read(self, kind: GridKind | DelegatingKind, table: dict[str, Any]) -> Any:
        """What a pool has of its table: settings, or the table itself for an engine's process."""
        settings = read_settings(kind, dict(table))  # its own: any author may have written it
        return Delegated(kind, table) if isinstance(kind, DelegatingKind) else settings


def kind_names() -> list[str]:
    """Return the valid kinds of pools, in order."""
    return sorted({*BUILT_IN, *(each.name for each in entry_points(group=GROUP))})


def examples() -> list[str]:
    """Return the examples of pools that the installed kinds bring, in the order of their names.

    A kind that can't be loaded has none: `gridfed check` reports it where a pool uses it.
    """
    found = []
    for name in sorted({each.name for each in entry_points(group=GROUP)} - set(BUILT_IN)):
        with contextlib.suppress(SettingError):
            found.append(find_kind(name).example)
    return [each for each in found if each]


def find_kind(name: str) -> GridKind | DelegatingKind:
    """Return the kind of that name. Raises SettingError with the known kinds, or with advice."""
    found = _installed(name)
    if name in BUILT_IN:
        whose = f", and {_owners(found)} must not define the same name" if found else ""
        raise SettingError(
            f"kind {name!r} is reserved by gridfed, and does not start pilots{whose}"
        )
    if not found:
        known = ", ".join(kind_names())
        raise SettingError(
            f"kind is {name[:60]!r}: must be one of {known}; other kinds must be installed "
            "where the gateway runs (docs/write_a_grid.md)"
        )
    if len(found) > 1:
        raise SettingError(
            f"kind {name!r} is defined twice: by {_owners(found)}; uninstall one of them"
        )
    kind = _load(found[0])
    for missing in _missing(kind):
        raise SettingError(f"kind {name!r} needs {missing}: pip install 'gridfed[{kind.needs}]'")
    return kind


def read_settings(kind: GridKind | DelegatingKind, table: Mapping[str, Any]) -> Any:
    """Return a kind's settings of its table [pool.KIND]. Raises SettingError for any error."""
    return _call(kind, "reading its table", lambda: kind.read(table))


def open_grid(kind: GridKind, settings: Any, launch: Launch) -> Provisioning:
    """Open a grid that starts pilots. Raises SettingError for any error or invalid grid."""
    grid = _call(kind, "opening the grid", lambda: kind.open(settings, launch))
    lacking = [each for each in _CALLS if not callable(getattr(grid, each, None))]
    if lacking:
        raise SettingError(
            f"{_whose(kind)} opened {grid!r:.60}, which lacks {', '.join(lacking)}: see "
            "gateway.grids.contract.Provisioning"
        )
    return grid


def open_engine(kind: DelegatingKind, settings: Any, home: Home) -> Engine:
    """Open a grid that has workers of its own. Raises SettingError for any error."""
    return _call(kind, "opening the engine", lambda: kind.open(settings, home))


def _call(kind: GridKind | DelegatingKind, what: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except SettingError:
        raise
    except Exception as error:  # third-party code may raise anything
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise SettingError(
            f"{_whose(kind)} failed while {what}: {type(error).__name__}: {error!s:.300} "
            f"({Path(at.filename).name}, line {at.lineno}); it should raise SettingError for "
            "errors of the configuration: report this to its authors"
        ) from error


def _whose(kind: GridKind | DelegatingKind) -> str:
    owners = _owners(_installed(kind.name)) or "no installed distribution"
    return f"kind {kind.name!r} of {owners}"


def _installed(name: str) -> list[EntryPoint]:
    return [each for each in entry_points(group=GROUP) if each.name == name]


def _load(entry: EntryPoint) -> GridKind | DelegatingKind:
    where = f"kind {entry.name!r}, {entry.value} of {_owners([entry])},"
    try:
        kind = entry.load()
    except ModuleNotFoundError as error:
        remedy = _remedy(entry, error.name or "")
        raise SettingError(
            f"{where} needs module {error.name!r}, which is not installed{remedy}"
        ) from error
    except Exception as error:  # importing a third-party module may raise anything
        raise SettingError(f"{where} can't be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(kind, GridKind | DelegatingKind):
        raise SettingError(f"{where} is not a gateway.grids.contract.GridKind, but {kind!r:.60}")
    if kind.name != entry.name:
        raise SettingError(f"{where} has the name {kind.name!r}: the two names must be equal")
    return kind


def _missing(kind: GridKind | DelegatingKind) -> Iterator[str]:
    """Yield the libraries of its extra that are not installed."""
    for library, extra in _extras("gridfed") if kind.needs else ():
        if extra == kind.needs:
            try:
                distribution(library)
            except PackageNotFoundError:
                yield library


def _remedy(entry: EntryPoint, module: str) -> str:
    """Return advice on installing a module that is an optional requirement of a distribution."""
    owner = entry.dist.name if entry.dist is not None else ""
    extras = [*entry.extras]
    extras += [extra for library, extra in _extras(owner) if _plain(library) == _plain(module)]
    return f": pip install '{owner}[{extras[0]}]'" if extras else ""


def _extras(owner: str) -> Iterator[tuple[str, str]]:
    """Yield the libraries that a distribution's extras bring, each with its extra."""
    try:
        requirements = distribution(owner).requires or []
    except (PackageNotFoundError, ValueError):  # an empty name
        return
    for requirement in requirements:
        match = _REQUIREMENT.match(requirement)
        if match:
            yield match[1], match[2]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _owners(entries: list[EntryPoint]) -> str:
    names = [f"{each.dist.name} {each.dist.version}" if each.dist else "?" for each in entries]
    return " and ".join(sorted(names))
