"""Symphony for tests: the stand-in's cluster, and engines that reach it by either way."""

import contextlib
import os
import sys
from pathlib import Path

from symphony_stand_in.cluster import PYTHON, Cluster
from symphony_stand_in.rest import RestServer
from tests_support import make_certificate

from gateway.grids.delegating import Home
from gateway.grids.symphony import open_engine
from gateway.grids.symphony.settings import read

WAYS = ("soamapi", "rest")


class StandIn:
    """A cluster with both ways in."""

    def __init__(self, folder: Path, slots: int = 2, **how):
        self.folder = folder
        self.cluster = Cluster(folder, slots, **how)
        both, alone = make_certificate(folder, "symrest")
        self.rest = RestServer(self.cluster, both)
        self.login = folder / "login"
        self.login.write_text("Guest:Guest\n")
        # A "Python that can import soamapi", as an operator would wrap it.
        self.interpreter = folder / "python"
        self.interpreter.write_text(
            f"#!/bin/sh\nPYTHONPATH={PYTHON} SYMPHONY_STAND_IN={self.cluster.address} "
            f'exec {sys.executable} "$@"\n'
        )
        self.interpreter.chmod(0o755)
        self.ca = alone

    def table(self, way: str, **more):
        return {
            "way": way,
            "application": "gridfed",
            "login_file": str(self.login),
            "interpreter": str(self.interpreter) if way == "soamapi" else "",
            "url": self.rest.url if way == "rest" else "",
            "ca_file": self.ca,
            "ego_url": self.rest.url,
            "consumer": self.rest.consumer,
            "capacity_s": 1.0,
            **more,
        }

    def engine(self, way: str, say=lambda line: None, **more):
        folder = self.folder / f"home-{way}"
        folder.mkdir(exist_ok=True)
        home = Home("pool", "mark", folder, say)
        return open_engine(read(self.table(way, **more)), home)

    def close(self):
        self.rest.close()
        self.cluster.close()


@contextlib.contextmanager
def real_environment():
    """The real product's, where $SOAM_HOME is set; see docs/grids_symphony.md."""
    yield os.environ.get("SOAM_HOME")
