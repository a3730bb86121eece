"""Sealing and opening payloads: the only place in a user's process that pickles.

Functions are pickled by cloudpickle. Code that is installed on the workers goes by reference. Code
in `__main__`, a notebook or a module of the user's own folder goes by value, together with
everything it uses from there. Arguments that are plain numbers and text take pickle's fast path.
"""

import hashlib
import pickle
import site
import sys
import sysconfig
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import cloudpickle

from federation.errors import ObjectLost, ObjectRefused, SerializationError
from federation.objects.bands import dump_in_pieces
from federation.objects.large_arguments import LargeArgument, Put, dump_large, has_large, replaced
from federation.objects.open_calls import OpenCall, SealedCall
from federation.objects.references import Sealing, with_head
from federation.sources import dumps_with_files, with_sources

PROTOCOL: Final = 5
SCALARS: Final = frozenset({int, float, str, bytes, bool, type(None)})
NONE: Final = pickle.dumps(None, PROTOCOL)
_OURS: Final = frozenset({"federation", "gateway", "gridfed", "policies"})
_DEPTH_MAX: Final = 6  # the depth of the search for a part that can't be pickled

# Types whose values never change, so that a function that captured one stays the same.
_IMMUTABLE: Final = frozenset({*SCALARS, complex, range, type(Ellipsis)})


class Call:
    """The arguments of a call that has keyword arguments; without them a tuple is enough."""

    __slots__ = ("args", "kwargs")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs

    def __reduce__(self) -> tuple[Any, ...]:
        return Call, (self.args, self.kwargs)


@dataclass(frozen=True, slots=True)
class SealedFunction:
    """A function in its wire form: its bytes, their SHA-256, and a name for people."""

    digest: bytes
    body: bytes
    name: str


# --- modules that workers do not have ------------------------------------------------------------


def _installed_folders() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths.update(site.getsitepackages())
    paths.add(site.getusersitepackages())
    return tuple(str(Path(path).resolve()) + "/" for path in paths if path)


_folders: Final = _installed_folders()
_dump_lock = threading.RLock()
_seen_modules: list[types.ModuleType] = []
_local_modules: list[types.ModuleType] = []
_is_by_value = False


def _is_local(module: types.ModuleType) -> bool:
    """Whether a module is the user's own, and not installed."""
    if module.__name__.partition(".")[0] in _OURS:
        return False
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return False
    return not str(Path(file).resolve()).startswith(_folders)


def _find_local_modules() -> list[types.ModuleType]:
    global _seen_modules, _local_modules
    # Compared whole, by identity (some 10 us for a thousand): a module that is imported anew
    # replaces its predecessor, and their number stays the same.
    modules = list(sys.modules.values())
    if modules != _seen_modules:
        _seen_modules = modules
        _local_modules = [
            module
            for module in modules
            if type(module) is types.ModuleType
            and module.__name__ != "__main__"
            and _is_local(module)
        ]
    return _local_modules


@contextmanager
def _by_value() -> Iterator[None]:
    """Make cloudpickle take the user's own modules by value, within this context."""
    global _is_by_value
    with _dump_lock:
        if _is_by_value:  # one of many calls
            yield
            return
        known = cloudpickle.list_registry_pickle_by_value()
        added = [
            module
            for module in _find_local_modules()
            if module.__name__ not in known and sys.modules.get(module.__name__) is module
        ]
        for module in added:
            cloudpickle.register_pickle_by_value(module)
        _is_by_value = True
        try:
            yield
        finally:
            _is_by_value = False
            for module in added:
                cloudpickle.unregister_pickle_by_value(module)


def _dump(value: Any) -> bytes:
    with _by_value():
        return dumps_with_files(value, PROTOCOL)


APART_BYTES: Final = 1 << 16  # smaller buffers of results stay in the pickle
APART_MAX: Final = 1_000  # and those beyond this number


def buffer_taker(
    buffers: list[memoryview], least: int, number_max: int
) -> Callable[[pickle.PickleBuffer], bool]:
    """Return a callback of pickle that takes contiguous buffers of at least `least` bytes out."""

    def keep(buffer: pickle.PickleBuffer) -> bool:
        """Take a buffer; True leaves it in the pickle."""
        if len(buffers) >= number_max:
            return True
        try:
            raw = buffer.raw()
        except BufferError:
            return True
        if raw.nbytes < least:
            return True
        buffers.append(raw)
        return False

    return keep


def pickle_result(value: Any, inline_max: int) -> bytes | tuple[bytes, list[memoryview]]:
    """Pickle a result; if it has more bytes than that, with its large buffers beside the pickle.

    Raises as cloudpickle does.
    """
    buffers: list[memoryview] = []
    taker = buffer_taker(buffers, APART_BYTES, APART_MAX)
    band: bytes = cloudpickle.dumps(value, PROTOCOL, buffer_callback=taker)
    if len(band) + sum(each.nbytes for each in buffers) > inline_max:
        return band, buffers
    if buffers:
        band = cloudpickle.dumps(value, PROTOCOL)
    return band


def dump_apart(value: Any, keep: Callable[[pickle.PickleBuffer], bool]) -> list[memoryview]:
    """Pickle a value, and hand its buffers to `keep`, which returns True to leave one inside.

    The pickle is one piece, or several if it is large: see federation.objects.bands.
    """
    with _by_value():
        return dump_in_pieces(value, PROTOCOL, keep)


# --- functions -----------------------------------------------------------------------------------


_ABSENT: Final = object()
_Parts: TypeAlias = tuple[types.CodeType, tuple[Any, ...] | None]


class _Captured:
    """Everything that a function's pickle depends on, by identity; `root` itself by its parts.

    `is_fixed` means that none of it can change inside. The pickle is then valid for as long as
    `is_unchanged` holds, which is checked at every submit.
    """

    __slots__ = ("_by_value", "_cells", "_globals", "_inner", "_loaded", "_root", "is_fixed")

    def __init__(self, root: types.FunctionType) -> None:
        # A module that is registered, or a submodule that is imported, changes what travels.
        self._by_value = cloudpickle.list_registry_pickle_by_value()
        self._loaded = len(sys.modules)
        self._root = _parts_of(root)
        self._inner: dict[types.FunctionType, _Parts] = {}
        self._globals: list[tuple[dict[str, Any], str, Any]] = []
        self._cells: list[tuple[types.CellType, Any]] = []
        self.is_fixed = self._collect(root)

    def is_unchanged(self, root: types.FunctionType) -> bool:
        """Whether every name, variable and function is still the same object."""
        if not _is_same(root, self._root) or self._loaded != len(sys.modules):
            return False
        if cloudpickle.list_registry_pickle_by_value() != self._by_value:
            return False
        for space, name, value in self._globals:
            if space.get(name, _ABSENT) is not value:
                return False
        try:
            for cell, value in self._cells:
                if cell.cell_contents is not value:
                    return False
        except ValueError:
            return False  # not bound any more
        return not self._inner or all(_is_same(*each) for each in self._inner.items())

    @property
    def inner(self) -> list[types.FunctionType]:
        """The functions that it uses, and that travel by value with it."""
        return list(self._inner)

    def _collect(self, function: types.FunctionType) -> bool:
        """Add the objects that a function captured; return False if one of them can change."""
        if function.__dict__ or function.__kwdefaults__:
            return False
        values: list[object] = list(function.__defaults__ or ())
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:
                return False  # not bound yet
            self._cells.append((cell, value))
            values.append(value)
        for name in _names(function.__code__):
            value = function.__globals__.get(name, _ABSENT)
            self._globals.append((function.__globals__, name, value))
            if value is not _ABSENT:
                values.append(value)
        return all(map(self._is_fixed, values))

    def _is_fixed(self, value: object) -> bool:
        if type(value) in _IMMUTABLE:
            return True
        if isinstance(value, tuple):
            return type(value) is tuple and all(type(item) in _IMMUTABLE for item in value)
        if isinstance(value, types.ModuleType):
            return not _is_local(value)
        if isinstance(value, types.BuiltinFunctionType):
            return value.__self__ is None or isinstance(value.__self__, types.ModuleType)
        if isinstance(value, types.FunctionType):
            if value in self._inner or _is_importable(value):
                return True
            self._inner[value] = _parts_of(value)
            return self._collect(value)
        return isinstance(value, type) and _is_importable(value)


def _parts_of(function: types.FunctionType) -> _Parts:
    """Return a function's replaceable parts."""
    return function.__code__, function.__defaults__


def _is_same(function: types.FunctionType, parts: _Parts) -> bool:
    """Whether a fixed function has the same parts, and still nothing that can change inside.

    Parts are compared by identity: a default of 1 may have become True, which is equal.
    """
    code, defaults = parts
    return (
        function.__code__ is code
        and function.__defaults__ is defaults
        and not function.__kwdefaults__
        and not function.__dict__
    )


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_importable(value: Any) -> bool:
    """Whether a worker can import this function or class by its name."""
    name = getattr(value, "__module__", None)
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None or name == "__main__" or _is_local(module):
        return False
    found: Any = module
    for part in getattr(value, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return found is value


class _Reference:
    """The name under which workers import a function or class: all that its pickle holds.

    The pickle is valid for as long as the name leads to the same object, and its module is not
    registered to travel by value.
    """

    __slots__ = ("_module", "_name", "_path")
    is_fixed: Final = True

    def __init__(self, function: Any) -> None:
        self._name: str = function.__module__
        self._module = sys.modules.get(self._name)
        self._path: list[str] = function.__qualname__.split(".")

    def is_unchanged(self, function: Any) -> bool:
        """Whether the name still leads to this function, and it travels by its name."""
        if _goes_by_value(self._name):
            return False
        found: Any = sys.modules.get(self._name)
        if found is not self._module:
            return False
        for part in self._path:
            found = getattr(found, part, None)
        return found is function


def _goes_by_value(module: str) -> bool:
    """Whether a module, or a package that it is in, is registered to travel by value."""
    registered = cloudpickle.list_registry_pickle_by_value()
    while registered and module:
        if module in registered:
            return True
        module = module.rpartition(".")[0]
    return False


_KEPT: Final = frozenset({types.FunctionType, types.BuiltinFunctionType, type})
_Known: TypeAlias = tuple[_Captured | _Reference, SealedFunction]
_sealed: weakref.WeakKeyDictionary[Any, _Known] = weakref.WeakKeyDictionary()
# The function that was sealed last, and its known facts: most calls are of the same one.
_last: tuple[Callable[[], Any], _Known] | None = None


def _look(function: Callable[..., Any]) -> _Captured | _Reference | None:
    """Return what the pickle of a function depends on; None: it can't be told."""
    if type(function) not in _KEPT:
        return None
    if _is_importable(function):  # a registered module travels by value: by its whole contents
        return None if _goes_by_value(function.__module__) else _Reference(function)
    return _Captured(function) if isinstance(function, types.FunctionType) else None


def seal_function(function: Callable[..., Any]) -> SealedFunction:
    """Pickle a function, or reuse its pickle if nothing that it captured can have changed.

    A function that captured something mutable (a list, an object of a class of one's own) is
    pickled anew each time: a stale copy would be wrong, and slow is only slow.

    Raises:
        SerializationError: it can't be pickled; the text names the part that can't.
    """
    global _last
    if not callable(function):
        raise TypeError(f"{function!r} is not callable")
    known = _known_of(function)
    if known is not None and known[0].is_unchanged(function):  # type: ignore[arg-type]
        return known[1]
    # Before pickling: a change by another thread in the meantime shows at the next call.
    basis = _look(function)
    try:
        body = _dump(with_sources(function, _by_value_of(function, basis)))
    except Exception as error:
        what = _culprit(function, "the function", 0)
        raise SerializationError(
            f"{what} can't be pickled: {type(error).__name__}: {error}. Build it inside the "
            "function, or pass the data that it is built from as an argument."
        ) from error
    sealed = SealedFunction(hashlib.sha256(body).digest(), body, _name(function))
    if basis is not None and basis.is_fixed:
        known = basis, sealed
        _sealed[function], _last = known, (weakref.ref(function), known)
    return sealed


def _known_of(function: Callable[..., Any]) -> _Known | None:
    """Return what is known of a function that was sealed before."""
    global _last
    last = _last  # another thread may replace it
    if last is not None and last[0]() is function:
        return last[1]
    known = _sealed.get(function) if type(function) in _KEPT else None
    if known is not None:
        _last = weakref.ref(function), known
    return known


def _by_value_of(
    function: Callable[..., Any], basis: _Captured | _Reference | None
) -> list[types.FunctionType]:
    """Return the plain functions in a callable that travel by value."""
    inner: Any = function
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    inner = getattr(inner, "__func__", inner)
    if not isinstance(inner, types.FunctionType | type):
        inner = vars(type(inner)).get("__call__")
    if isinstance(basis, _Reference):
        return []
    if type(inner) is not types.FunctionType or _is_importable(inner):
        return []
    captured = basis if basis is not None else _Captured(inner)
    return [inner, *captured.inner]


def _name(function: Callable[..., Any]) -> str:
    inner = function
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    name = getattr(inner, "__qualname__", None) or type(function).__qualname__
    return "".join(char for char in str(name) if char.isprintable())[-120:] or "function"


# --- calls and results ---------------------------------------------------------------------------


# Types of arguments that pickle itself takes, by the same bytes and in a third of the time.
_plain: set[Any] = set(SCALARS)


def add_plain(kind: type) -> None:
    """Let arguments of a type whose pickles name no code of the user be pickled the quick way."""
    _plain.add(kind)


def _is_plain(args: Sequence[Any]) -> bool:
    return all(
        kind in _plain or (kind is list and set(map(type, value)) <= _plain)
        for kind, value in zip(map(type, args), args, strict=True)
    )


def _seal_plain(args: tuple[Any, ...]) -> SealedCall:
    sealing = Sealing()
    try:
        with sealing as found:
            pickled = pickle.dumps(args, PROTOCOL)
    except Exception:  # noqa: BLE001 - the other way says which argument it is
        return _seal_slowly(args, args, {})
    if sealing.inputs:
        return OpenCall(pickled, tuple(found), tuple(sealing.inputs))
    return with_head(pickled, found)


def seal_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> SealedCall:
    """Pickle the arguments of one call; with futures among them, an OpenCall."""
    small = seal_small(args, kwargs)
    if small is not None:
        return small
    return _seal_slowly(Call(args, kwargs) if kwargs else args, args, kwargs)


def seal_small(args: tuple[Any, ...], kwargs: dict[str, Any]) -> SealedCall | None:
    """The same; None where an argument is large, for `seal_large` or `seal_call`."""
    if not kwargs:
        if set(map(type, args)) <= SCALARS:
            return pickle.dumps(args, PROTOCOL)
        if _is_plain(args):
            return _seal_plain(args)
        return None if has_large(args) else _seal_slowly(args, args, {})
    if has_large(args) or has_large(list(kwargs.values())):
        return None
    return _seal_slowly(Call(args, kwargs), args, kwargs)


def seal_large(args: tuple[Any, ...], kwargs: dict[str, Any], put: Put) -> SealedCall:
    """Pickle the arguments of one call, with large arrays and bytes among them put as objects.

    `put` returns the argument that stands for a value, or None: it goes in the message.
    """
    given = tuple(replaced(each, put) for each in args)
    named = {name: replaced(each, put) for name, each in kwargs.items()}
    sealing = Sealing()
    with sealing as found, _by_value():
        try:
            pickled = dump_large(Call(given, named) if named else given, PROTOCOL, put)
        except (ObjectLost, ObjectRefused):
            raise
        except Exception:  # noqa: BLE001 - foreign __reduce__ methods raise any exception
            return seal_call(args, kwargs)  # it says which argument it is
    if not sealing.inputs:
        return with_head(pickled, found)
    leases = [each.lease for each in sealing.inputs if isinstance(each, LargeArgument)]
    return OpenCall(
        pickled, tuple(found), tuple(sealing.inputs), {each.digest: each for each in leases}
    )


def seal_calls(calls: Sequence[tuple[Any, ...]]) -> Sequence[SealedCall]:
    """Pickle the positional arguments of many calls."""
    dumps = pickle.dumps
    if all(set(map(type, args)) <= SCALARS for args in calls):
        return [dumps(args, PROTOCOL) for args in calls]
    with _by_value():
        return [
            _seal_plain(args) if _is_plain(args) else _seal_slowly(args, args, {}) for args in calls
        ]


def seal_singles(values: Sequence[Any]) -> Sequence[SealedCall]:
    """Pickle the arguments of many calls of one positional argument each."""
    dumps = pickle.dumps
    if set(map(type, values)) <= SCALARS:
        return [dumps((value,), PROTOCOL) for value in values]
    return seal_calls([(value,) for value in values])


def seal_value(value: Any) -> bytes:
    """Pickle the result of a call, which is an argument of another one.

    Raises SerializationError.
    """
    if type(value) in SCALARS:
        return pickle.dumps(value, PROTOCOL)
    try:
        return _dump(value)
    except SerializationError:
        raise
    except Exception as error:
        what = _culprit(value, "the result", 0)
        raise SerializationError(
            f"{what} can't be pickled again for a call that needs it: {type(error).__name__}: "
            f"{error}. Submit the call before the result has come."
        ) from error


def _seal_slowly(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SealedCall:
    sealing = Sealing()
    with sealing as found:
        pickled = _dump_call(call, args, kwargs)
    if sealing.inputs:
        return OpenCall(pickled, tuple(found), tuple(sealing.inputs))
    return with_head(pickled, found)


def _dump_call(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    try:
        return _dump(call)
    except (ObjectLost, ObjectRefused):
        raise  # of a reference: it names the remedy
    except Exception as error:
        named = [(f"argument {at}", value) for at, value in enumerate(args)]
        named += [(f"argument {name!r}", value) for name, value in kwargs.items()]
        for where, value in named:
            if not _is_picklable(value):
                raise SerializationError(
                    f"{_culprit(value, where, 0)} can't be pickled: {type(error).__name__}: "
                    f"{error}. Pass the data that it is built from, and build it inside the "
                    "function."
                ) from error
        raise SerializationError(f"the arguments can't be pickled: {error}") from error


def _is_picklable(value: Any) -> bool:
    try:
        _dump(value)
    except Exception:  # noqa: BLE001 - foreign __reduce__ methods raise any exception
        return False
    return True


def _culprit(value: Any, where: str, depth: int) -> str:
    """Return the innermost part that can't be pickled, by its path and type."""
    if depth < _DEPTH_MAX:
        for path, part in _parts(value, where):
            if not _is_picklable(part):
                return _culprit(part, path, depth + 1)
    return f"{where}, a {type(value).__module__}.{type(value).__qualname__},"


def _parts(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"{where}[{key!r:.40}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"{where}[{at}]", part) for at, part in enumerate(value))
    elif isinstance(value, types.FunctionType):
        names = value.__code__.co_freevars
        for name, cell in zip(names, value.__closure__ or (), strict=True):
            yield f"{where}'s variable {name!r}", cell.cell_contents
        for name in _names(value.__code__):
            if name in value.__globals__:
                yield f"{where}'s global {name!r}", value.__globals__[name]
    elif not isinstance(value, type | types.ModuleType) and hasattr(value, "__dict__"):
        yield from ((f"{where}.{name}", part) for name, part in vars(value).items())


def open_result(body: bytes) -> Any:
    """Unpickle a result.

    Raises:
        SerializationError: it can't be unpickled here.
    """
    try:
        return pickle.loads(body)  # noqa: S301 - results of our own functions, from our own site
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an exit in a foreign __setstate__ must not be ours
        raise SerializationError(
            f"the result can't be unpickled here: {type(error).__name__}: {error}. Check "
            "that its packages are installed in this environment, in the same versions as "
            "at the worker."
        ) from error
