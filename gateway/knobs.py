"""The old name of gateway.base.values, for grids of third parties; nothing of ours imports it."""

from gateway.base.values import ConfigError, KnobError, check_known, choice, count, flag, number

__all__ = ["ConfigError", "KnobError", "check_known", "choice", "count", "flag", "number"]
