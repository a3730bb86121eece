"""Prepares the server of forked processes, before the first of them begins: see forked.py.

They inherit its loaded modules, its compiled statements, and its check that no other distribution
owns our packages.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from support import compiled_sql

import gateway.cli.operate.serve
import gateway.cli.operate.worker
import gateway.site
import gateway.worker.agent  # noqa: F401
from federation.package_conflicts import check_owners
from gateway.ledger.store.store import SqlStore

check_owners()
compiled_sql.share()
with TemporaryDirectory() as folder:
    SqlStore(f"sqlite:///{Path(folder) / 'ledger.db'}").close()
