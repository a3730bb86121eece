"""Rules in the form of a configuration file: read, written into one, printed."""

import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
import tomlkit
from tomlkit.exceptions import TOMLKitError

from federation.clocks import UtcS
from gateway.base.toml_lines import check_depth, find_places, toml_fault
from gateway.base.values import ConfigError, SettingError
from gateway.config.scale import OF_RULES
from gateway.config.site import ConfigFile, read_file
from gateway.rules.document import KEYS, SCALE, TABLES, rules_of, with_rules
from gateway.rules.history import (
    RuleChange,
    RuleEdit,
    RuleHistory,
    RuleKey,
)

_INLINE: Final = frozenset({"claims", "bands", "volume"})


def read_rules(path: str) -> dict[RuleKey, Any]:
    """Read the rules of a file, `-` for standard input; UsageError for mistakes, or no rules."""
    try:
        file = _from_input() if path == "-" else read_file(path)
        found: dict[RuleKey, Any] = rules_of(file)
    except (ConfigError, SettingError) as error:
        raise click.UsageError(str(error)) from None
    except (KeyError, TypeError, AttributeError):
        raise click.UsageError(f"{path}: a pool, window or budget has no name") from None
    _check_only_rules(file)
    if not found:
        raise click.UsageError(f"{path} has no rules")
    return found


def _from_input() -> ConfigFile:
    text = sys.stdin.read()
    try:
        check_depth(text)
        return ConfigFile("-", tomllib.loads(text), find_places(text))
    except (ValueError, RecursionError) as error:
        why = toml_fault(error, text) if isinstance(error, ValueError) else str(error)
        raise ConfigError(f"standard input: {why}") from None


def _check_only_rules(file: ConfigFile) -> None:
    """Refuse what is no rule, which would be left out without a word."""
    others = [key for key in file.table if key not in TABLES and key != "pool"]
    for row in file.table.get("pool", ()):
        others += [f"[[pool]] {key}" for key in row if key not in {*KEYS, "name", SCALE}]
        others += [f"[pool.scale] {key}" for key in row.get(SCALE, ()) if key not in OF_RULES]
    if others:
        raise click.UsageError(
            f"{file.path}: {others[0]} is not a rule: it belongs in gateway.toml, and takes effect "
            "after a restart"
        )


def rules_as_toml(contents: Mapping[RuleKey, Any]) -> str:
    """Format rules as a configuration file that has nothing else."""
    names = dict.fromkeys(key.pool for key in contents if key.pool)
    bare = ConfigFile("", {"pool": [{"name": name} for name in names]}, {})
    whole = {key: value for key, value in _written(bare, contents).items() if value}
    return tomlkit.dumps(_as_tables(whole))


def _written(file: ConfigFile, contents: Mapping[RuleKey, Any]) -> dict[str, Any]:
    edits = tuple(RuleEdit(key, each) for key, each in contents.items())
    begun_s = UtcS(0.0)
    history = RuleHistory([RuleChange(1, begun_s, begun_s, "", "file", edits)])
    return with_rules(file, {}, history, begun_s).table


def write_rules(path: Path, contents: Mapping[RuleKey, Any]) -> None:
    """Replace the rules that differ; comments, and all other tables, stay as they are."""
    text = path.read_text()
    try:
        document = tomlkit.parse(text)
        file = ConfigFile(str(path), tomllib.loads(text), find_places(text))
    except (TOMLKitError, ValueError) as error:
        raise click.UsageError(f"{path}: {error}") from None
    unknown = {key.pool for key in contents if key.pool} - {
        row.get("name") for row in file.table.get("pool", ())
    }
    if unknown:
        raise click.UsageError(f"{path} has no [[pool]] {', '.join(sorted(unknown))}")
    new = _written(file, contents)
    for key in TABLES:
        _put(document, key, file.table.get(key), new.get(key))
    for at, row in enumerate(file.table.get("pool", ())):
        for key in sorted(KEYS):
            _put(document["pool"][at], key, row.get(key), new["pool"][at].get(key))
        before, after = row.get(SCALE, {}), new["pool"][at].get(SCALE, {})
        for key in sorted(before.keys() | after.keys()):
            _put(document["pool"][at][SCALE], key, before.get(key), after.get(key))
    path.write_text(tomlkit.dumps(document))


def _put(table: Any, key: str, before: Any, after: Any) -> None:
    if (before or None) == (after or None):
        return
    if after:
        table[key] = _as_tables({key: after})[key]
    else:
        table.pop(key, None)


def _as_tables(value: Mapping[str, Any]) -> Any:
    """Return a table for TOML: lists of tables as [[tables]], claims and the like in one line."""
    made = tomlkit.document()
    for key, each in _plain_first(value):
        made[key] = _item(key, each)
    return made


def _plain_first(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a table in an order that TOML can write: values before tables."""
    items = list(value.items())
    yield from (item for item in items if not _is_table(*item))
    yield from (item for item in items if _is_table(*item))


def _is_table(key: str, value: Any) -> bool:
    is_rows = isinstance(value, list) and bool(value) and isinstance(value[0], dict)
    return isinstance(value, dict) or (is_rows and key not in _INLINE)


def _item(key: str, value: Any) -> Any:
    if not _is_table(key, value):
        return tomlkit.item(value) if key not in _INLINE else _inline(value)
    if isinstance(value, dict):
        table = tomlkit.table()
        for name, each in _plain_first(value):
            table[name] = _item(name, each)
        return table
    rows = tomlkit.aot()
    for row in value:
        rows.append(_item("", row))
    return rows


def _inline(value: list[Any]) -> Any:
    array = tomlkit.array()
    for each in value:
        table = tomlkit.inline_table()
        table.update(each)
        array.append(table)
    return array.multiline(len(value) > 1)
