"""Symphony for tests: the stand-in's cluster, and engines that reach it by either way."""

import os
import sys
import tomllib
from pathlib import Path

import pytest
from fakes.symphony_stand_in.cluster import PYTHON, FakeSymphony
from fakes.symphony_stand_in.rest import RestServer
from support.processes import make_certificate

from gateway.grids.delegating import Home
from gateway.grids.symphony import open_engine
from gateway.grids.symphony.settings import read

WAYS = ("soamapi", "rest")


class StandIn:
    """A cluster with both ways in."""

    def __init__(self, folder: Path, slots: int = 2, **how):
        self.folder = folder
        self.cluster = FakeSymphony(folder, slots, **how)
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
        """An engine; another one is the next life of its process."""
        folder = self.folder / f"home-{way}"
        folder.mkdir(exist_ok=True)
        home = Home("pool", "mark", folder, say)
        return open_engine(read(self.table(way, **more)), home)

    def close(self):
        self.rest.close()
        self.cluster.close()


def real_engine(way: str, folder: Path, **more):
    """An engine of the real product's, by the tables of a file; skips where there is none.

    $SOAM_HOME says that it is installed here, $GRIDFED_SYMPHONY is a TOML file with a table for
    each way, [soamapi] and [rest], as in `[pool.symphony]`: see docs/grids_symphony.md.
    """
    if "SOAM_HOME" not in os.environ:
        pytest.skip("$SOAM_HOME is not set: IBM Spectrum Symphony is not installed here")
    if "GRIDFED_SYMPHONY" not in os.environ:
        pytest.skip("$GRIDFED_SYMPHONY is not set: a TOML file with tables [soamapi] and [rest]")
    table = tomllib.loads(Path(os.environ["GRIDFED_SYMPHONY"]).read_text())[way]
    return open_engine(read({**table, "way": way, **more}), Home("pool", "mark", folder, print))
