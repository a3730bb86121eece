"""The values that each table of the configuration accepts for a key with a unit in its name."""

from gateway.base.values import ConfigError
from gateway.config.site import load
from gateway.grids.kinds import Installed

ENDS_OF_TIMES = ("_s", "hours", "_days")


def times(keys):
    """Those of a table's keys that are lengths of time."""
    return [key for key in keys if key.endswith(ENDS_OF_TIMES) and "_per_" not in key]


def sizes(keys):
    """Those of a table's keys that are numbers of bytes."""
    return [key for key in keys if "bytes" in key]


def check_time(tmp_path, table, key):
    """A time is a number of the key's unit, or has a unit of its own.

    A value out of the key's bounds is told so, and is not refused for its form.
    """
    for value in ("3", '"3 s"', '"04:00:00"', '"2h"'):
        said = told(tmp_path, table, key, value)
        assert not said or f"{key} is " in said, said
    assert "is not a length of time" in told(tmp_path, table, key, '"soon"')


def check_size(tmp_path, table, key):
    """A size is a number of bytes, or has a unit."""
    for value in ("1073741824", '"1 GiB"', '"500M"'):
        said = told(tmp_path, table, key, value)
        assert not said or f"{key} is " in said, said
    assert "is not a size" in told(tmp_path, table, key, '"large"')


def told(tmp_path, table, key, value):
    """The error for a value; empty if it is accepted."""
    path = tmp_path / "gateway.toml"
    path.write_text(f"{table}\n{key} = {value}\n")
    try:
        load(str(path), Installed())
    except ConfigError as error:
        return str(error)
    return ""
