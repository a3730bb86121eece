"""The process of a worker. Imports nothing of the gateway: a host may run hundreds of workers."""

import os
import socket
import sys

import click
import trio

from federation.address import (
    SECRET_VARIABLE,
    TOKEN_VARIABLE,
    AddressError,
    check_bearer,
    resolve,
)
from federation.transport import TlsSettings
from gateway.base.values import WORKER_SLOTS_MAX, SettingError
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    parse_memory,
    parse_tags,
    reach_options,
)
from gateway.config.environments import AUTO, EnvironmentRules
from gateway.worker.agent import AgentSettings, run_agent
from gateway.worker.isolation.secrecy import take_variable
from gateway.worker.settings import read_rules_file


@click.command()
@click.option(
    "--slots",
    type=click.IntRange(1, WORKER_SLOTS_MAX),
    help="The number of slots. [default: one per core]",
)
@click.option("--tags", default="", help="The tags of the slots, as in linux,gpu=2.")
@click.option("--pool", default="", help="The pool to join. [default: the only one, or `workers`]")
@click.option("--name", help="The worker's name. [default: host and process]")
@click.option("--memory", default="0", help="Memory limit per slot, as in 2G. [default: none]")
@click.option(
    "--environments", metavar="FILE", help="The environments of jobs: see docs/environments.md."
)
@reach_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON at each new session.")
def worker(
    slots: int | None,
    tags: str,
    pool: str,
    name: str | None,
    memory: str,
    environments: str | None,
    reach: DialOptions,
    as_json: bool,
) -> None:
    """Add this host's cores to a gateway's pool. A token for that has the scope `work`."""
    reach = reach.resolved()
    dialled, _ = resolve(reach.address)
    own_secret = take_variable(SECRET_VARIABLE)
    token = take_variable(TOKEN_VARIABLE)  # also where another is used: tasks need not see it
    if reach.token is not None:
        token = reach.token
    try:
        for address in dialled if token else ():
            check_bearer(address)
    except AddressError as error:
        raise click.ClickException(str(error)) from None
    try:
        rules = read_rules_file(environments) if environments else EnvironmentRules(sandbox=AUTO)
    except SettingError as error:
        raise click.UsageError(str(error)) from None
    settings = AgentSettings(
        address=",".join(dialled),
        secret=own_secret if reach.secret is None else reach.secret,
        token=token,
        tls=(reach.tls or TlsSettings()).or_environment(),
        name=name or f"{socket.gethostname()}-{os.getpid()}",
        slots=slots or len(os.sched_getaffinity(0)),
        tags=parse_tags(tags),
        pool=pool,
        memory_bytes=parse_memory(memory),
        rules=rules,
    )

    def joined(site: str, address: str) -> None:
        show.note_site(site)
        about = {"name": settings.name, "pool": settings.pool, "slots": settings.slots}
        show.as_json({"ready": True, **about, "gateway": address})
        sys.stdout.flush()

    sys.exit(trio.run(run_agent, settings, joined if as_json else None))
