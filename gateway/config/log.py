"""The table [log]: the file that a gateway writes its log to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.base.values import SettingError, check_known


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Where the lines for the operator go.

    Attributes:
        file: a path, `~` allowed, relative to the folder of the configuration; empty: stderr.
    """

    file: str = ""

    @property
    def path(self) -> Path | None:
        """The path of the file; None without one."""
        return Path(self.file).expanduser() if self.file else None


def read_log(table: dict[str, Any], folder: Path) -> LogConfig:
    """Read [log]; a path that is relative is one in the configuration's folder.

    Raises SettingError.
    """
    check_known(table, ("file",))
    file = table.get("file", "")
    if not isinstance(file, str):
        raise SettingError("file must be a path, in quotes")
    return LogConfig(str((folder / Path(file).expanduser()).absolute()) if file else "")
