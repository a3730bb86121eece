"""The database: gridfed db upgrade, backup, restore, move, roll-up; and gridfed audit."""

import functools
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from sqlalchemy import func, make_url, select

from federation.money import format_amount
from federation.words import count, duration_text
from gateway.base.clocks import utc_now
from gateway.cli.operate.own_files import configuration_here
from gateway.cli.shared import show
from gateway.cli.shared.common import config_file_option, confirm, yes_option
from gateway.cli.shared.moments import LengthType
from gateway.cli.shared.output_files import SQLITE, OutputFile
from gateway.config.site import SiteConfig, make_folder
from gateway.ledger.accounting.journal import ACCOUNT_FIELDS
from gateway.ledger.audit.audit import audit as run_audit
from gateway.ledger.db.contracts.tables import postings
from gateway.ledger.db.database import check_there, opened, schema_version, snapshot
from gateway.ledger.db.errors import StoreError
from gateway.ledger.db.tables import transfers
from gateway.ledger.db.usage.tables import usage
from gateway.ledger.store import copying
from gateway.ledger.store.copying import Contents
from gateway.ledger.store.store import SqlStore


@click.group()
def db() -> None:
    """Look after a gateway's database: upgrade, back up, restore, move, roll up."""


def _command(
    *options: Callable[..., Any], group: click.Group | None = db, name: str | None = None
) -> Callable[[Callable[..., Any]], click.Command]:
    """Decorate a command on the database that a configuration names."""

    def decorate(command: Callable[..., Any]) -> click.Command:
        @functools.wraps(command)
        def wrapped(path: str | None, state: str | None, **given: Any) -> None:
            config, is_named = configuration_here(path, state)
            if not is_named:
                show.say(
                    "gridfed: using the default database in "
                    f"{show.clean(SiteConfig().state_path)}; choose another with --config or "
                    "--state",
                    err=True,
                )
            try:
                command(config, **given)
            except StoreError as error:
                raise click.ClickException(str(error)) from None

        made: Callable[..., Any] = wrapped
        for option in (
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
            click.option("--state", metavar="DIR", help="The folder of the database."),
            config_file_option,
            *reversed(options),
        ):
            made = option(made)
        return group.command(name)(made) if group is not None else click.command()(made)

    return decorate


@_command()
def upgrade(config: SiteConfig, as_json: bool) -> None:
    """Bring the database up to this program's schema. A gateway does so at its start, too."""
    check_there(config.database_url)
    with opened(config.database_url) as database:
        version = schema_version(database.writing)
    if as_json:
        show.as_json({"schema": version})
    else:
        show.say(
            f"{_shown(config)} has schema {version}, the newest that this version of gridfed "
            "supports"
        )


@_command(click.argument("file", type=OutputFile(SQLITE)))
def backup(config: SiteConfig, file: Path, as_json: bool) -> None:
    """Write the whole database to FILE, an SQLite file; the gateway may be running."""
    _tell(copying.backup(config.database_url, file), as_json, f"written to {file}")


@_command(click.argument("file", type=click.Path(path_type=Path)), yes_option)
def restore(config: SiteConfig, file: Path, is_sure: bool, as_json: bool) -> None:
    """Fill the configured database, which must be empty, with the content of FILE.

    It says first what FILE has, and how old that is, and asks.
    """
    facts = copying.facts_of(file)
    copying.check_target(config.database_url)  # no question where the answer is no
    confirm(
        f"Restore the books in {_shown(config)} from {file}?",
        lambda: _of_restore(file, facts),
        is_sure=is_sure,
    )
    make_folder(config.state_path)
    _tell(copying.restore(file, config.database_url), as_json, f"restored from {file}")


def _of_restore(file: Path, facts: copying.CopyFacts) -> list[str]:
    """Return what FILE has, and what follows for the site."""
    jobs, written_s = count(facts.jobs, "job"), float(facts.written_at_s)
    if facts.last_at_s is None:
        return [f"{file} has {jobs} and no records; it was written at {show.moment(written_s)}"]
    last_s = float(facts.last_at_s)
    now_s = float(utc_now())
    oldest, newest = (
        duration_text(max(0.0, now_s - each)) for each in (last_s, max(last_s, written_s))
    )
    between = f"the last {newest}" if newest == oldest else f"the last {newest} to {oldest}"
    return [
        f"{file} has {jobs}; its last record is of {show.moment(last_s)}, and the file was written "
        f"at {show.moment(written_s)}",
        f"the books will lack {between}: detached jobs of that time are gone, and other sites may "
        "charge for their work of that time (docs/books.md)",
    ]


@_command(click.argument("url"))
def move(config: SiteConfig, url: str, as_json: bool) -> None:
    """Copy the database, whose gateway is stopped, to the empty one at URL.

    Then name that one in the configuration: database = "postgresql+psycopg://…".
    """
    copied = copying.move(config.database_url, url)
    _tell(copied, as_json, "copied and verified; now set `database` in the configuration")


@_command(
    click.option(
        "--days", type=LengthType(0, 36_525), help="Instead of detail_days: 90, 90d or 12w."
    ),
    yes_option,
    name="roll-up",
)
def roll_up(config: SiteConfig, days: float | None, is_sure: bool, as_json: bool) -> None:
    """Roll up old records now, and free their space; the gateway must be stopped.

    A running gateway does so by itself, in small steps, if detail_days is not 0. With --days it
    asks first.
    """
    detail_days = config.books.detail_days if days is None else days
    if days is None and not detail_days:
        raise click.UsageError("detail_days is 0, which keeps everything: give --days N")
    check_there(config.database_url)
    if days is not None:  # a gateway acts as configured without a question
        confirm(
            f"Roll up what is older than {days:g} days in {_shown(config)}?",
            lambda: [
                f"usage before {show.moment(float(utc_now()) - days * 86_400)} is kept as sums "
                "alone: single tasks of that time can't be reported, exported or disputed any more"
            ],
            is_sure=is_sure,
        )
    before = _rows(config.database_url)
    with closing(SqlStore(config.database_url)) as store:
        utc_s = utc_now()
        while store.roll_up(utc_s, detail_days * 86_400):
            pass
        store.compact()
    after = _rows(config.database_url)
    if as_json:
        show.as_json(
            [{"table": name, "before": before[name], "after": after[name]} for name in before]
        )
        return
    show.say(f"{_shown(config)}:")
    show.table(
        ("table", "rows before", "after"),
        [[name, f"{before[name]:,}", f"{after[name]:,}"] for name in before],
        "no tables",
    )


def _shown(config: SiteConfig) -> str:
    """Return the name of a database, without its password."""
    url = make_url(config.database_url)
    return show.clean(f"the database {url.render_as_string(hide_password=True)}")


def _rows(url: str) -> dict[str, int]:
    """Return the number of rows in each table that is rolled up."""
    with opened(url):  # brings the schema up to date
        pass
    with snapshot(url) as connection:
        return {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in (usage, transfers, postings)
        }


@_command(group=None)
def audit(config: SiteConfig, as_json: bool) -> None:
    """Prove that the books are right; the gateway may be running. Exit code 1 when they are not.

    Keep the digest that it prints: the records up to there can't be changed unnoticed.
    """
    with snapshot(config.database_url) as connection:
        found = run_audit(connection)
    sums = sorted(found.balances.items())
    if as_json:
        show.as_json(
            {
                "clean": found.is_clean,
                "transfers": found.transfers,
                "head": found.head,
                "checkpoint": found.checkpoint,
                "checks": [
                    {
                        "name": each.name,
                        "rows": each.looked_at,
                        "problems": list(each.problems),
                        "findings": [
                            {"text": one.text, "rules": list(one.rules)} for one in each.found
                        ],
                    }
                    for each in found.checks
                ],
                "balances": [
                    {
                        **{name: getattr(account, name) for name in ACCOUNT_FIELDS},
                        "net_nanos": balance.net_nanos,
                        "held_nanos": balance.held_nanos,
                    }
                    for account, balance in sums
                ],
                "rules": [asdict(each) for each in found.rules],
            }
        )
    else:
        show.table(
            ("account", "owes", "held"),
            [
                [str(account), format_amount(balance.net_nanos), format_amount(balance.held_nanos)]
                for account, balance in sums
            ],
            "no bookings",
        )
        show.table(
            ("check", "rows", "problems"),
            [[each.name, f"{each.looked_at:,}", len(each.problems)] for each in found.checks],
            "no checks",
        )
        show.table(
            ("rules", show.timed("from"), "until", "records", "cost"),
            [
                [
                    each.version or "not known",
                    *(show.when(float(each.from_at_s)), show.when(float(each.until_at_s))),
                    f"{each.records:,}",
                    ", ".join(
                        show.money(f"{format_amount(nanos)} {currency}")
                        for currency, nanos in each.costs_nanos.items()
                    ),
                ]
                for each in found.rules
            ],
            "no charges",
        )
        if any(each.version for each in found.rules):
            show.say("the rules of a version: gridfed rules list --version N")
        for problem in (problem for each in found.checks for problem in each.problems):
            show.say(f"problem: {show.clean(problem)}")
        show.say(
            f"{found.transfers:,} transfers; digest of the last (keep it outside this host): "
            f"{found.head}"
        )
        if found.checkpoint:
            show.say(f"digest of the last rolled-up transfer: {found.checkpoint}")
        show.say("all checks passed" if found.is_clean else "checks FAILED: see the problems above")
    if not found.is_clean:
        raise SystemExit(1)


def _tell(copied: dict[str, Contents], as_json: bool, line: str) -> None:
    if as_json:
        show.as_json(
            [
                {"table": name, "rows": each.rows, "sha256": each.digest}
                for name, each in copied.items()
            ]
        )
        return
    show.table(
        ("table", "rows", "sha256"),
        [[name, f"{each.rows:,}", each.digest[:16]] for name, each in copied.items()],
        "no tables",
    )
    show.say(line)
