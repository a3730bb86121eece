"""Source lines of functions that travel by value, so that tracebacks at workers show them.

A worker has no file of a notebook's cell, nor of a script on another host. The lines of the
function itself, and of the functions that it uses by value, travel with it; the rest of their files
does not. They are put into `linecache` when the function is unpickled, by a function that travels
as well: a worker of an earlier version needs no part of this module.
"""

import builtins
import io
import linecache
import pickle
import types
from collections import ChainMap
from collections.abc import Callable, Iterable
from typing import Any, Final

import cloudpickle

SOURCE_BYTES_MAX: Final = 64 << 10  # of one function: no traceback needs more
Rows = list[tuple[str, int, list[str]]]  # file, first line, lines


def _seed(rows: Rows, function: Any) -> Any:
    """Put source lines into linecache, and return the function. Runs at the worker."""
    import linecache

    for name, first, lines in rows:
        known = list(linecache.getlines(name))
        known += ["\n"] * (first - 1 + len(lines) - len(known))
        known[first - 1 : first - 1 + len(lines)] = lines
        linecache.cache[name] = (len(known), None, known, name)
    return function


def _by_value(function: types.FunctionType) -> bytes:
    code = function.__code__.replace(co_filename="<gridfed>")
    free = types.FunctionType(code, {"__builtins__": builtins, "__name__": "__main__"})
    free.__module__ = "__main__"  # cloudpickle takes definitions from there by value
    body: bytes = cloudpickle.dumps(free, protocol=5)
    return body


class _Seeder:
    """Stands for `_seed` in a pickle."""

    body: bytes = b""

    def __call__(self, *arguments: Any) -> Any:
        return _seed(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        if not _Seeder.body:
            _Seeder.body = _by_value(_seed)  # type: ignore[arg-type]
        return pickle.loads, (_Seeder.body,)


_FILE_AT: Final = 10  # the place of co_filename in the arguments of types.CodeType


def _with_its_file(code: types.CodeType) -> Any:
    """Reduce a code object as cloudpickle does, and keep the name of its file.

    From 3.1.3 on cloudpickle writes "<dynamic-code>" in its place, for all code alike: tracebacks
    then show neither file nor line, and lines of two cells can't be told apart.
    """
    reduced = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    build, arguments = reduced[:2]
    if build is not types.CodeType or not isinstance(arguments[_FILE_AT], str):
        return reduced
    # A copy of the text: one that is interned would be written differently from time to time.
    kept = "".join(list(code.co_filename))
    return build, (*arguments[:_FILE_AT], kept, *arguments[_FILE_AT + 1 :])


class FilePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles by cloudpickle; code that travels by value keeps the name of its file."""

    dispatch_table = ChainMap({types.CodeType: _with_its_file}, cloudpickle.Pickler.dispatch_table)


def dumps_with_files(value: Any, protocol: int) -> bytes:
    """Pickle a value by cloudpickle; code that travels by value keeps the name of its file."""
    with io.BytesIO() as file:
        FilePickler(file, protocol=protocol).dump(value)
        return file.getvalue()


class Sourced:
    """A function whose pickle brings source lines along; unpickled, it is the function alone."""

    def __init__(self, function: Callable[..., Any], rows: Rows) -> None:
        self._function = function
        self._rows = rows

    def __reduce__(self) -> tuple[Any, ...]:
        return _Seeder(), (self._rows, self._function)


def with_sources(function: Callable[..., Any], used: Iterable[types.FunctionType]) -> Any:
    """Return what is to be pickled for a function: with the source lines of those that it uses."""
    rows: Rows = []
    size = 0
    for each in used:
        lines = _lines(each)
        size += sum(map(len, lines))
        if lines and size <= SOURCE_BYTES_MAX:
            rows.append((each.__code__.co_filename, each.__code__.co_firstlineno, lines))
    return Sourced(function, rows) if rows else function


def _lines(function: types.FunctionType) -> list[str]:
    code = function.__code__
    known = linecache.getlines(code.co_filename, function.__globals__)
    return known[code.co_firstlineno - 1 : _last_line(code)]


def _last_line(code: types.CodeType) -> int:
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    own = max((line for _, _, line in code.co_lines() if line), default=0)
    return max([own, *map(_last_line, inner)])
