"""Exceptions of tasks as pickles and texts: sealed by the slot, rebuilt in the client.

Pickle rebuilds an exception by calling its class with its `args`, which fails, or makes another
exception, where `__init__` takes other arguments. Such an exception is rebuilt without `__init__`:
from its class, its `args` and its attributes. Where an attribute can't travel, the exception
arrives without it, as an instance of its class and of RemoteError at once. The members of an
exception group are pickled one by one, so that one of them does not spoil the others.
"""

import pickle
import reprlib
import traceback
from contextlib import suppress
from typing import Any, Final, cast

import cloudpickle

from federation.errors import RemoteError
from federation.words import NOTE

PROTOCOL: Final = 5
TEXT_BYTES_MAX: Final = 64 << 10  # of a traceback
EXCEPTION_BYTES_MAX: Final = 128 << 10  # of the exception of a task
ARGUMENTS_CHARS_MAX: Final = 300
MEMBER_BYTES_MAX: Final = 1 << 20  # of one exception of a group
MEMBER_CHARS_MAX: Final = 1 << 16  # of the text of one that is no more than its text
_shorten: Final = reprlib.Repr()
_shorten.maxstring = _shorten.maxother = 60


def show_call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return a call as a user would write it, with the start of its arguments."""
    shown = []
    for key, value in [*((None, each) for each in args), *kwargs.items()]:
        try:
            text = _shorten.repr(value)
        except Exception as error:  # noqa: BLE001 - a foreign __repr__ may raise anything
            text = f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
        shown.append(text if key is None else f"{key}={text}")
        if sum(map(len, shown)) > ARGUMENTS_CHARS_MAX:
            break
    text = ", ".join(shown)
    if len(text) > ARGUMENTS_CHARS_MAX:
        text = text[:ARGUMENTS_CHARS_MAX] + "..."
    return f"{name}({text})"


def call_text(function: Any, call: Any) -> str:
    """Return an opened call of a function with the start of its arguments, for people."""
    inner = function
    while hasattr(inner, "func"):  # functools.partial
        inner = inner.func
    name = getattr(inner, "__qualname__", None) or type(inner).__name__
    args, kwargs = (call, {}) if type(call) is tuple else (call.args, call.kwargs)
    return show_call(str(name), args, kwargs)


def type_name(value: Any) -> str:
    """Return the type of a value, with its module."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def unpicklable_text(value: Any, error: Exception) -> str:
    """Return why a result can't travel."""
    return (
        f"the result, of type {type_name(value)}, can't be pickled: {type(error).__name__}: {error}"
    )


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an exception, clipped, without the frame that caught it."""
    frames = error.__traceback__
    if frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    try:
        return clip("".join(traceback.format_exception(type(error), error, frames)))
    except BaseException as trouble:  # noqa: BLE001 - foreign code, or no memory to say more
        return f"{type(error).__name__} (it can't be shown: {type(trouble).__name__})"


def clip(text: str) -> str:
    """Bound a text, and make it valid UTF-8; a long one loses its middle."""
    if text.isascii() and len(text) <= TEXT_BYTES_MAX:
        return text
    data = text.encode(errors="backslashreplace")
    if len(data) <= TEXT_BYTES_MAX:
        return data.decode()
    half = TEXT_BYTES_MAX // 2
    head, tail = data[:half].decode(errors="ignore"), data[-half:].decode(errors="ignore")
    return f"{head}\n[gridfed: {len(data) - 2 * half:,} bytes were cut]\n{tail}"


def add_note(error: BaseException, text: str) -> None:
    """Add our note to an exception, unless it has one of an earlier task; that is replaced."""
    with suppress(Exception):  # a foreign class may refuse
        others = [each for each in getattr(error, "__notes__", []) if not each.startswith(NOTE)]
        error.__notes__ = [*others, NOTE + text]


def has_note(error: BaseException) -> bool:
    """Whether an exception, or the text that it brought along, says which call it is of."""
    notes = getattr(error, "__notes__", [])
    return f"\n{NOTE}" in str(error) or any(str(each).startswith(NOTE) for each in notes)


def seal_exception(error: BaseException, text: str, bytes_max: int) -> bytes:
    """Pickle an exception so that it can be rebuilt; empty if nothing but its text can travel.

    Args:
        error: the exception; its traceback is removed.
        text: its traceback as text, for a RemoteError.
        bytes_max: the most bytes that it may have; a smaller form is taken instead, or none.
    """
    error = error.with_traceback(None)
    state = _state(error)
    for shape in (_as_is, _rebuilt, _as_group, _both):
        sealed = b""
        with suppress(BaseException):  # foreign code may raise anything; the text remains
            sealed = shape(error, state, text)
        if sealed and len(sealed) <= bytes_max:
            return sealed
    return b""


def rebuild(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    """Return an exception of a class, without a call of its `__init__`."""
    error = kind.__new__(kind, *args)
    inner: Any = next(each for each in kind.__mro__ if each.__module__ == "builtins")
    with suppress(Exception):  # a class of Python's own may keep more than its args, as OSError
        inner.__init__(error, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def rebuild_both(
    kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any], text: str
) -> Any:
    """Return an exception of a class and of RemoteError at once, with the text of its traceback."""
    both = type(kind.__name__, (RemoteError, kind), {"__module__": kind.__module__})
    try:
        error = rebuild(both, args, state)
    except Exception:  # noqa: BLE001 - its `__new__` takes other arguments
        error = rebuild(both, (text,), state)
    if not args:
        error.args = (text,)
    return error


def rebuild_group(
    kind: type[BaseExceptionGroup[Any]],
    message: str,
    members: tuple[bytes, ...],
    state: dict[str, Any],
) -> Any:
    """Return an exception group of sealed members, without a call of its own `__new__`."""
    inside = [pickle.loads(each) for each in members]  # noqa: S301 - as all of it
    base: Any = ExceptionGroup if issubclass(kind, Exception) else BaseExceptionGroup
    error = base.__new__(kind, message, inside)
    error.__dict__.update(state)
    return error


def _state(error: BaseException) -> dict[str, Any]:
    return dict(getattr(error, "__dict__", {}))


def _as_is(error: BaseException, state: dict[str, Any], text: str) -> bytes:
    """Pickle it as its class says, unless that makes another exception; then return nothing."""
    sealed = cast("bytes", cloudpickle.dumps(error, protocol=PROTOCOL))
    copy = pickle.loads(sealed)  # noqa: S301 - it fails here as it would in the client
    if _has_own_pickle(error):
        return sealed
    same = len(copy.args) == len(error.args) and all(
        type(one) is type(two) and (type(one) is not str or one == two)
        for one, two in zip(copy.args, error.args, strict=True)
    )
    return sealed if same else b""


class _Shape:
    """Pickles as a call."""

    def __init__(self, *call: Any) -> None:
        self._call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call[0], self._call[1:]


def _checked(function: Any, *arguments: Any) -> bytes:
    sealed = cast("bytes", cloudpickle.dumps(_Shape(function, *arguments), protocol=PROTOCOL))
    pickle.loads(sealed)  # noqa: S301 - as above
    return sealed


def _rebuilt(error: BaseException, state: dict[str, Any], text: str) -> bytes:
    if _has_own_pickle(error):
        return b""  # which does not work
    return _checked(rebuild, type(error), error.args, state)


def _has_own_pickle(error: BaseException) -> bool:
    """Whether its class says how it is pickled."""
    own = [vars(kind) for kind in type(error).__mro__ if kind.__module__ != "builtins"]
    return any(name in each for each in own for name in ("__reduce__", "__reduce_ex__"))


def _as_group(error: BaseException, state: dict[str, Any], text: str) -> bytes:
    """Pickle an exception group by its members; nothing for any other exception."""
    if not isinstance(error, BaseExceptionGroup):
        return b""
    kind: type[BaseExceptionGroup[Any]] = type(error)
    if not _travels(kind):
        kind = ExceptionGroup if isinstance(error, Exception) else BaseExceptionGroup
    kept = {name: value for name, value in state.items() if _travels(value)}
    members = tuple(map(_member, error.exceptions))
    return _checked(rebuild_group, kind, error.message, members, kept)


def _member(error: BaseException) -> bytes:
    """Seal a member of a group; by its text alone, as a RemoteError, where it can't be."""
    text = "".join(traceback.format_exception(error))
    sealed = seal_exception(error, text, MEMBER_BYTES_MAX)
    return sealed or pickle.dumps(RemoteError(text[:MEMBER_CHARS_MAX]), PROTOCOL)


def _both(error: BaseException, state: dict[str, Any], text: str) -> bytes:
    kept = {name: value for name, value in state.items() if _travels(value)}
    args = tuple(value if _travels(value) else repr(value)[:200] for value in error.args)
    return _checked(rebuild_both, type(error), args, kept, text)


def _travels(value: Any) -> bool:
    try:
        pickle.loads(cloudpickle.dumps(value, protocol=PROTOCOL))  # noqa: S301 - as above
    except BaseException:  # noqa: BLE001 - foreign code
        return False
    return True
