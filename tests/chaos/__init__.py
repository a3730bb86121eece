"""Faults on real sites, and proof afterwards that nothing was lost: see README.md."""

import sys
from pathlib import Path

# The helpers of the tests are modules of their folder, as pytest has it.
_TESTS = str(Path(__file__).resolve().parent.parent)
if _TESTS not in sys.path:
    sys.path.insert(0, _TESTS)
