"""Exit codes: 0 done; 1 it failed; and these."""

from typing import Final

TASKS_FAILED: Final = 3  # tasks of the job that was shown have failed
WRONG: Final = 2  # the command was wrong
UNREACHABLE: Final = 5  # no gateway at that address
