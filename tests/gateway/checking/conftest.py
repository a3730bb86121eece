"""A valid configuration with all that it names, for the tests of `gridfed check` to break."""

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.answers import answer

from federation.signed.declarations import sign
from gateway.cli.main import cli
from gateway.trust import book_file
from gateway.trust.certificates import make_leaf, to_pem
from gateway.trust.keys import KeyRing, make_generation
from gateway.trust.standing import TrustedMember, TrustLevel

FILE = """\
[site]
name = "london"
listen = ["ipc://{folder}/gw.sock", "tls+tcp://0.0.0.0:7461"]
state = "{folder}/state"
secret_file = "{folder}/secret"
tls_certificate_file = "{folder}/gw.pem"

[federation]
folder = "{folder}/keys"
listen = "tls+tcp://127.0.0.1:7462"

[placement]
currency = "GBP"

[limits]
grace_s = 10
client_bytes = "256 MiB"

[groups]
quants = ["ann", "bob"]
prod = ["svc"]

[fair_share]
half_life = "7d"

[[fair_share.share]]
name = "quants"
who = "group:quants"

[[entitlement]]
allow = ["group:quants", "project:risk", "others"]
pools = ["hpc", "elsewhere"]

[[residency]]
who = "project:risk"
jurisdictions = ["UK"]

[[budget]]
name = "risk"
who = "project:risk"
amount = "1000 GBP"
period = "month"

[[alert]]
name = "spend"
kind = "budget"
project = "risk"
amount = "100 GBP"
webhook = "https://alerts.example.com/x"

[credit]
paris = "500 GBP"

[calendar.london]
dates = ["2099-12-25"]

[[pool]]
name = "hpc"
kind = "local"
slots = 2
memory_bytes = "1 GiB"
price = "0.04 GBP"
jurisdiction = "UK"
claims = [ {{ who = "site:paris", borrows = "50%" }} ]

[[pool.window]]
name = "production"
days = "business"
from = "18:00"
to = "23:00"
zone = "Europe/London"
calendar = "london"
claims = [ {{ who = "project:risk", guaranteed = "80%" }} ]

[pool.tariff]
preemptible = 0.5

[[pool]]
name = "cloud"
kind = "processes"
price = "0.05 GBP"

[pool.scale]
max = 4
walltime = "04:00:00"
dial = "tls+tcp://gw.example:7461"
token_file = "{folder}/token"
"""


def command(*arguments):
    return CliRunner().invoke(cli, [str(each) for each in arguments])


@dataclass
class Place:
    """A folder with a valid configuration, and all that it names."""

    folder: Path
    path: Path

    def change(self, old, new):
        text = self.path.read_text()
        old, new = (each.replace("{folder}", str(self.folder)) for each in (old, new))
        assert old in text, old
        self.path.write_text(text.replace(old, new, 1))

    def line_of(self, part):
        part = part.replace("{folder}", str(self.folder))
        text = self.path.read_text()
        return text[: text.index(part)].count("\n") + 1

    def check(self, *options, code=0):
        done = command("check", self.path, "--json", *options)
        assert done.exit_code == code, done.output
        found = answer(done.output)
        return {**found, "findings": found["rows"]}

    def know(self, *sites):
        """Put sites into the trust book, as if they had joined."""
        path = self.folder / "keys" / "trust.json"
        book, invitations = book_file.load(path)
        for site in sites:
            generation = make_generation(site, ["127.0.0.1"], 1e9)
            card = KeyRing(generation).card(book.federation, site, (), "", 1e9)
            raw = sign(card, generation.key)
            book.members[site] = TrustedMember(raw, decided=TrustLevel.APPROVED)
        book_file.save(path, book, invitations)

    @property
    def federation(self):
        return book_file.load(self.folder / "keys" / "trust.json")[0].federation

    def certify(self, **how):
        write_certificate(self.folder / "gw.pem", **how)


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The valid configuration of all tests, which copy it."""
    folder = tmp_path_factory.mktemp("whole")
    where = ("--config-dir", folder / "init", "--host", "127.0.0.1")
    made = command("init", "--site", "london", *where)
    assert made.exit_code == 0, made.output
    return folder / "init" / "federation"


@pytest.fixture
def place(whole, tmp_path, monkeypatch):
    monkeypatch.delenv("GRIDFED_SECRET", raising=False)
    folder = tmp_path / "site"
    folder.mkdir()
    shutil.copytree(whole, folder / "keys")
    for name, text in (("secret", "s" * 32), ("token", "a-pass-of-the-pool")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    write_certificate(folder / "gw.pem")
    path = folder / "gateway.toml"
    path.write_text(FILE.format(folder=folder))
    return Place(folder, path)


def write_certificate(path, valid_days=365.0, *, key=True):
    made_s = datetime.now(UTC).timestamp() - 400 * 86_400
    made = make_leaf("london", ["gw.example"], made_s, (400 + valid_days) * 86_400)
    path.write_bytes(made.pem if key else to_pem([made.certificate]).encode())
    path.chmod(0o600)
