"""Making a site: its keys, its trust book, and a configuration with every knob explained."""

import getpass
import json
import os
import re
import secrets
import socket
import time
from pathlib import Path
from typing import Final

import click

from federation.address import default_address
from federation.identity import FEDERATION_PATTERN, SITE_PATTERN
from federation.statements import sign
from gateway import trust_file
from gateway.cli import show
from gateway.cli.common import errors_to_exit_codes, json_option
from gateway.invitations import Invitations
from gateway.keys import KeyRing, create_keys, hold, make_generation
from gateway.registry import TRUST_FILE
from gateway.trust import TrustBook

CONFIG_FILE: Final = "gateway.toml"
PORT: Final = 7462

config_dir_option = click.option(
    "--config-dir",
    metavar="DIR",
    envvar="GRIDFED_CONFIG_DIR",
    help="The folder with gateway.toml. [default: $GRIDFED_CONFIG_DIR, or ~/.config/gridfed]",
)

# What is commented out stands as it is by default.
TEMPLATE: Final = """\
# Site {site} of federation {federation}. What is commented out has the value that is shown.
# docs/configuration.md says more, docs/trust.md how sites come to trust each other.
# Run it: gridfed gateway --config {path}

[site]
name = {site_text}
# Where clients, workers and the commands of this host come in. Beyond this host it takes a
# secret_file, and tls+tcp:// a certificate.
listen = [{listen}]
state = {state}                 # the folder of the database
# database = ""                 # an SQLAlchemy URL; empty: SQLite in state
# secret_file = ""              # who knows it may come in; needed to listen beyond this host
# token_required = false        # beside this host's own socket, take signed tokens only
# tls_certificate_file = ""     # certificate and key (PEM) for tls+tcp://
# tls_ca_file = ""              # ask diallers for a certificate of this CA

[federation]
folder = {folder}
# Where other gateways come in, by mutual TLS with pinned leaves, and where those who were invited
# do. Others must be able to reach both; empty for a site that only dials, and invites nobody.
listen = {peer_listen}
join_listen = {join_listen}
{advertise} # what our card says of listen, where others see it differently
{join_advertise} # what invitations say of join_listen likewise
contact = {contact}             # on our card, for people
# doors = []                    # where users of other sites may come in when theirs is lost
# follow_expulsions = "two"     # whose expulsions count here: "any", "two" sites', or "ours" alone
# connections = 256             # sessions of other gateways at a time
# strangers = 64                # connections to each port that have not proved who they are
# handshakes_per_s = 50.0       # new connections a second to each port
# frames_per_s = 2000.0         # of one other gateway; who sends more is slowed down
# queue_bytes = 67108864        # what may wait for one other gateway
# give_up_s = 30.0              # what waits for a site out of reach for so long is dropped
# idle_s = 60.0                 # a connection that nobody needs is closed after so long
# rotation_spread_s = 3600.0    # how long new keys are on our card before they are used
# rotation_overlap_s = 1200.0   # how long the old ones stay on it after that

[limits]
# heartbeat_s = 2.0             # a silent peer is given up after 4 heartbeats
# grace_s = 10.0                # a session outlives its pipe by this; workers' lease
# client_tasks = 200000         # unfinished tasks of one client
# client_bytes = 268435456      # and their arguments
# message_bytes = 67108864      # the largest argument or result
# sessions = 4096               # clients and workers at a time
# unread_bytes = 67108864       # results left unread before a client's work waits

[contracts]
# How this site deals with others. The lease is how long a site that we can't reach keeps our tasks,
# and must be over twice grace_s.
# lease_s = 30.0
# valid_s = 5.0                 # how long a quote of ours stands
# hold_s = 5.0                  # how long slots stay set aside for a contract that is not committed
# quote_wait_s = 1.0            # how long to wait for the slowest of the quotes that we asked for
# bill_s = 0.25                 # how often deliveries are billed
# plan_s = 0.25                 # how often the places of a job that waits are chosen anew
# idle_s = 10.0                 # a contract without work is closed after so long
# rest_s = 5.0                  # a site that declined is spared for so long, then twice as long,
# rest_max_s = 300.0            # ... up to this
# contracts_max = 10000         # with one site, in each direction
# unsettled_bytes_max = 268435456  # results that one buyer has not settled; over it none starts
# buyer_bytes_max = 1073741824  # arguments of one buyer; over it a contract takes no more, and ends
# grant_s = 86400.0             # how long what we grant for a contract lets work start

[placement]
# Where the work of our own users goes.
# objective = "cheapest"        # or "fastest", "greenest", {{ money = 1, time = 1, carbon = 0 }}
# prefer_own_s = 0.0            # work stays here if it starts within so long; inf: it never leaves
# band = 0.10                   # what differs by no more than this share counts as equal
# currency = "USD"              # prices are compared in it
# rates = {{ EUR = 1.1 }}         # what one of another is worth, to compare by
# quotes_max = 3                # sites asked for a quote for the same work
# sites_max = 8                 # places that one job is split over at a time
# task_s_unknown = 1.0          # a task of unknown length is compared as if it took this

# What others see of our pools; the first that matches a pool and a reader decides. Without any, all
# see all pools; with any, what none matches is not shown.
# [[show]]
# pools = ["local"]             # without it: every pool
# readers = ["paris"]           # these sites alone, told apart; without it: all, by gossip
# hidden = false                # not shown at all
# coarse = false                # capacity and load as powers of two, and no rates
# windows = true                # when it takes work, beyond the window that comes next
# members = false               # which projects and sites may use it

# Without any pool there is one, "workers", that workers of other hosts dial in to.
# [[pool]]
# name = "local"
# kind = "local"                # "local": processes here; "remote": workers dial in
# slots = 0                     # local only; 0: one per core
# memory_bytes = 0              # local only; per slot, 0: no limit
# price = "0.04 USD"            # per slot-hour
# tags = {{ linux = true, gpu = 2 }}
# region = ""                   # what our advert says of it
# jurisdiction = ""             # where its data lies; jobs may demand it
# carbon_g_per_kwh = 400.0      # of its electricity; without it "greenest" passes it over
# slot_watts = 12.0             # that a busy slot draws
# [pool.carbon]                 # instead of the last two: what it draws and emits, in detail
# cloud = "aws"                 # see docs/configuration.md
# series = {{ file = "grid.csv" }}
"""


def config_folder(given: str | None) -> Path:
    """The folder of a site's configuration."""
    if given:
        return Path(given).expanduser().absolute()
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser().absolute() / "gridfed"


@click.command()
@click.option("--site", required=True, help="What the site is called: a-z, 0-9 and -, 3 to 40.")
@click.option("--federation", help="The federation's id, likewise. [default: SITE and a number]")
@click.option("--host", help="The name or address by which others reach it. [default: this host's]")
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(0, 65534))
@click.option("--contact", default="", help="Whom to ask, for people at other sites.")
@config_dir_option
@json_option
@errors_to_exit_codes
def init(
    site: str,
    federation: str | None,
    host: str | None,
    port: int,
    contact: str,
    config_dir: str | None,
    as_json: bool,
) -> None:
    """Make a site: signing key, TLS leaf, trust book and gateway.toml.

    It is the first member of a federation of its own; `gridfed join` takes it into another's.
    PORT is where other gateways come in, the next one where those who were invited do.
    """
    federation = federation or f"{site[:56]}-{secrets.token_hex(2)}"
    for name, text, pattern in (
        ("--site", site, SITE_PATTERN),
        ("--federation", federation, FEDERATION_PATTERN),
    ):
        if not re.fullmatch(pattern, text, re.ASCII):
            raise click.BadParameter(f"{text!r} must match {pattern}", param_hint=name)
    host = host or socket.getfqdn()
    folder = config_folder(config_dir)
    path, trust = folder / CONFIG_FILE, folder / "federation"
    for each in (path, trust / "current.pem"):
        if each.exists():
            raise click.ClickException(f"{each} is there already: nothing was changed")
    config = _config(folder, site, federation, host, port, contact, is_named=bool(config_dir))
    now_s = time.time()
    with hold(trust):
        generation = make_generation(site, [host], now_s)
        addresses = () if port == 0 else (_address(host, port),)
        card = KeyRing(generation).card(federation, site, addresses, contact, now_s)
        book = TrustBook(sign(card, generation.key))
        trust_file.save(trust / TRUST_FILE, book, Invitations())
        create_keys(trust, generation)  # last: with them the site is there
    path.write_text(config)
    fingerprint = book.own.fingerprint
    if as_json:
        show.as_json(
            {
                "site": site,
                "federation": federation,
                "fingerprint": fingerprint,
                "config": str(path),
            }
        )
        return
    click.echo(f"site {site} of federation {federation}")
    click.echo(f"fingerprint  {fingerprint}")
    click.echo(f"edit         {path}")
    click.echo(f"run          gridfed gateway --config {path}")


def _address(host: str, port: int) -> str:
    return f"tls+tcp://[{host}]:{port}" if ":" in host else f"tls+tcp://{host}:{port}"


def _config(
    folder: Path, site: str, federation: str, host: str, port: int, contact: str, *, is_named: bool
) -> str:
    is_here = host.startswith("127.") or host in ("localhost", "::1")
    bound = host if is_here else "0.0.0.0"  # noqa: S104 - others are to reach it
    join_port = port + 1 if port else 0
    own = f"ipc://{folder / 'gateway.sock'}" if is_named else default_address()
    advertise = f"advertise = [{_text(_address(host, port))}]"
    join_advertise = f"join_advertise = {_text(_address(host, join_port))}"
    return TEMPLATE.format(
        site=site,
        federation=federation,
        path=folder / CONFIG_FILE,
        site_text=_text(site),
        listen=_text(own),
        state=_text(str(folder / "state")),
        folder=_text(str(folder / "federation")),
        peer_listen=_text(_address(bound, port)),
        join_listen=_text(_address(bound, join_port)),
        advertise="# advertise = []" if is_here else advertise,
        join_advertise='# join_advertise = ""' if is_here else join_advertise,
        contact=_text(contact or f"{getpass.getuser()}@{host}"[:200]),
    )


def _text(value: str) -> str:
    """A string as TOML writes it; JSON's strings are some of TOML's."""
    return json.dumps(value)
