"""The output of a job's tasks."""

import json
from typing import Any

import click

from federation.engine.log_lines import LogLine, read_lines
from gateway.cli.shared import show
from gateway.cli.shared.common import (
    DialOptions,
    errors_to_exit_codes,
    json_option,
    reach_options,
)


@click.command()
@click.argument("job_id", metavar="JOB")
@click.argument("task", type=click.IntRange(min=0), required=False)
@click.option("--follow", "-f", is_flag=True, help="Print new lines until the job has ended.")
@reach_options
@json_option
@errors_to_exit_codes
def logs(job_id: str, task: int | None, follow: bool, reach: DialOptions, as_json: bool) -> None:
    """Show what the tasks of a job have printed, or one TASK of it.

    JOB is its id, the beginning of it, or the name of the job. Output to stdout goes to stdout,
    output to stderr to stderr, in the order in which it arrived. Without TASK each line begins with
    the number of its task. A site keeps the last output of each task, job, and of all: [limits] in
    its configuration. With --json each line is an object. Where no output is left a note on stderr
    says why. With --follow a line that has no end yet is shown after a second.
    """

    def cut(count: int) -> None:
        show.say(f"[gridfed: {count:,} bytes of older output were dropped]", err=True)

    def none(why: str) -> None:
        show.say(show.clean(f"[gridfed: {why}]"), err=True)

    with reach.client() as client:
        meant = job_id

        def asked(details: dict[str, Any]) -> dict[str, Any]:
            nonlocal meant
            found: dict[str, Any] = client.ask("logs", job=meant, **details)
            meant = found["job"]  # another job may get that name meanwhile
            return found

        for line in read_lines(asked, task, follow=follow, on_cut=cut, on_none=none):
            if as_json:
                _show_json(line)
            else:
                which = f"[task {line.task}] " if task is None else ""
                show.say(f"{which}{_tabbed(line.text)}", err=line.stream == "stderr")


def _tabbed(text: str) -> str:
    """Text with its tabs as spaces: a tab is no control character to be shown."""
    return text.expandtabs()


def _show_json(line: LogLine) -> None:
    found = {"task": line.task, "stream": line.stream, "text": line.text}
    click.echo(json.dumps({**found, "at": line.at.isoformat()}))
