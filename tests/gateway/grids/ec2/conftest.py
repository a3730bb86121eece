"""One stand-in for EC2 for all tests of it; each finds it as new."""

import importlib.util
import sys

import pytest

from gateway.grids.contract import Launch
from gateway.grids.ec2.settings import read

REASON = "needs boto3 and moto's server: pip install boto3 moto flask flask-cors"


@pytest.fixture(scope="session")
def ec2_server(tmp_path_factory):
    # Looked for and not imported: moto is used in a process of its own.
    if not all(map(importlib.util.find_spec, ("boto3", "moto", "flask_cors"))):
        pytest.skip(REASON)
    from fakes.ec2 import Ec2

    server = Ec2(tmp_path_factory.mktemp("ec2"))
    yield server
    server.close()


@pytest.fixture
def ec2(ec2_server, monkeypatch):
    """The stand-in, and credentials for it."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(ec2_server.folder / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    yield ec2_server
    for each in list(ec2_server.instances.values()):  # shown of a test that failed
        print(f"--- {each.id} {each.reason}\n{each.log[-2000:]}")
    ec2_server.reset()


@pytest.fixture
def configure(ec2):
    """The configuration of a pool on it, as a file says it."""

    def make(**table):
        given = {
            "region": "eu-central-1",
            "endpoint_url": ec2.url,
            "profile": "good",
            "image": "ami-12345678",
            "zones": ["eu-central-1a"],
            "instance_types": {"c7i.large": 1},
            "max_instances": 10,
            "python": sys.executable,
            "interruption_poll": "0.1s",
            **table,
        }
        return read(given)

    return make


@pytest.fixture
def make_launch(tmp_path):
    """The gateway of the instances; `said` has the lines for the operator."""
    said = []

    def make(**changes):
        given = {
            "site": "paris",
            "pool": "cloud",
            "mark": "m-1",
            "address": "tcp://127.0.0.1:1",
            "environment": {"GRIDFED_SECRET": "s3cret"},
            "folder": tmp_path,
            "say": said.append,
            "dial_s": 20.0,
        }
        return Launch(**(given | changes))

    make.said = said
    return make


@pytest.fixture
def make_grid(configure, make_launch):
    """A grid on the stand-in: of a new life each time."""
    from gateway.grids.ec2.grid import Ec2Grid

    def make(mark="m-1", **table):
        return Ec2Grid(configure(**table), make_launch(mark=mark), attempts=2)

    return make
