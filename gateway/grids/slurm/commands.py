"""Slurm by its commands: sbatch, squeue, scancel, sinfo, scontrol.

They get an environment of their own and not the gateway's: variables like SBATCH_PARTITION would
change their behaviour, and jobs must not see the gateway's variables.
"""

import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import trio

from federation.clocks import UtcS
from federation.words import duration_text
from gateway.grids.contract import FailureClass, GridFault
from gateway.grids.slurm.asking import PLACES, ArrayRequest, joined, sbatch_options
from gateway.grids.slurm.faults import GONE, fault_of, read_listing
from gateway.grids.slurm.listing import (
    Partition,
    SlurmNode,
    read_nodes,
    read_partition_lines,
)
from gateway.grids.slurm.memory import read_memory
from gateway.grids.slurm.quotas import Quotas, read_quotas
from gateway.grids.slurm.settings import SlurmSettings
from gateway.grids.slurm.way import ANSWER_BYTES_MAX, SlurmBounds, is_there

IDS_MAX: Final = 100  # expressions in one scancel
KEPT: Final = ("HOME", "USER", "LOGNAME", "XDG_RUNTIME_DIR", "SLURM_JWT")
EXPECTED: Final = re.compile(r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", re.ASCII)
JSON_SINCE: Final = (22, 5)
SHOW_JSON_SINCE: Final = (23, 2)  # `scontrol show nodes --json`; before: `sinfo --json`
BOUND: Final = re.compile(
    r"^(MaxArraySize|MaxJobCount|AccountingStorageEnforce|SelectTypeParameters)\s*=\s*(\S*)",
    re.MULTILINE,
)
GIVEN: Final = ("HOME", "USER", "LOGNAME", "SLURM_JWT", "SLURM_CONF")  # to sbatch and its jobs
ENFORCING: Final = {"limits", "safe", "all"}
DENIED: Final = "access/permission denied"


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The result of a command."""

    code: int
    out: bytes
    err: str


class Commands:
    """A cluster, queried by its commands."""

    def __init__(self, settings: SlurmSettings) -> None:
        self._settings = settings
        self._release: tuple[int, int] | None = None
        self._uid: int | None = None  # of the commands' user

    async def version(self) -> str:
        """Return Slurm's version, after its controller has answered."""
        conf = self._settings.conf
        timeout_s = self._settings.timeout_s
        if conf and not self._settings.prefix and not await is_there(conf, timeout_s):
            # Slurm's commands would look for it for a minute.
            raise GridFault(FailureClass.NEVER, f"conf {conf}: the file does not exist")
        said = await self._ask("sinfo", "--version")
        release = said.out.decode(errors="replace").strip()[:60]
        found = re.search(r"(\d+)\.(\d+)", release, re.ASCII)
        if found is None:
            raise GridFault(
                FailureClass.NEVER, f"sinfo does not belong to Slurm: it prints {release!r}"
            )
        self._release = int(found[1]), int(found[2])
        if self._release < JSON_SINCE:
            raise GridFault(
                FailureClass.NEVER, f"{release}: commands with --json are required (22.05 or later)"
            )
        await self._ask("scontrol", "ping")
        return release

    async def jobs(self) -> Mapping[str, Any]:
        """Return the known jobs."""
        # Older versions ignore the filters.
        said = await self._ask("squeue", "--json", "--me", "--states=all")
        return await trio.to_thread.run_sync(read_listing, "squeue", said.out)

    async def nodes(self, names: Sequence[str] = ()) -> Sequence[SlurmNode]:
        """Return nodes of these names; () is all, as is any other with 22.05."""
        command = ["scontrol", "show", "nodes", *([",".join(names)] if names else []), "--json"]
        if await self._get_release() < SHOW_JSON_SINCE:
            command = ["sinfo", "--json"]
        said = await self._ask(*command)
        return await trio.to_thread.run_sync(lambda: read_nodes(read_listing(command[0], said.out)))

    async def partitions(self) -> Sequence[Partition]:
        """Return all partitions."""
        said = await self._ask("scontrol", "--oneliner", "--all", "show", "partition")
        return read_partition_lines(said.out.decode(errors="replace"))

    async def bounds(self) -> SlurmBounds:
        """Return the limits of its configuration."""
        said = await self._ask("scontrol", "show", "config")
        text = said.out.decode("latin-1")
        found = dict(BOUND.findall(text))
        enforced = set(found.get("AccountingStorageEnforce", "").lower().split(","))
        return SlurmBounds(
            _whole(found.get("MaxArraySize", "")),
            _whole(found.get("MaxJobCount", "")),
            has_quotas=bool(enforced & ENFORCING),
            counts_memory="MEMORY" in found.get("SelectTypeParameters", "").upper(),
            memory=read_memory(text),
        )

    async def quotas(self, qos: Sequence[str]) -> Quotas:
        """Return the limits that apply to us, from slurmctld: it does not query the database."""
        settings, uid = self._settings, await self._get_uid()
        said = await self._run("scontrol", "show", "assoc_mgr", "flags=assoc,qos")
        if said.code and DENIED in said.err.lower():
            return Quotas()  # they are hidden from us: a refusal will tell
        if said.code:
            raise fault_of("scontrol", said.err)
        text = said.out.decode(errors="replace")
        # It lists every account of a large cluster.
        return await trio.to_thread.run_sync(
            lambda: read_quotas(text, uid, settings.account, qos, settings.partitions)
        )

    async def expect(self, request: ArrayRequest) -> UtcS | None:
        """Return when such a job would begin."""
        said = await self._submit(request, "--test-only", TZ="UTC")
        found = EXPECTED.search(said.err)
        if found is None:
            return None
        try:
            return UtcS(datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp())
        except ValueError:
            return None

    async def submit(self, request: ArrayRequest) -> None:
        """Submit an array."""
        await self._submit(request)

    async def cancel(self, grid_ids: Collection[str]) -> None:
        """Cancel tasks."""
        ids = joined(list(grid_ids))
        for at in range(0, len(ids), IDS_MAX):
            said = await self._run("scancel", *ids[at : at + IDS_MAX])
            lines = [each for each in said.err.splitlines() if each.strip()]
            text = "\n".join(each for each in lines if not GONE.search(each))
            if text or (said.code and not lines):
                raise fault_of("scancel", text)

    async def _submit(self, request: ArrayRequest, *more: str, **variables: str) -> CommandOutput:
        words = ["sbatch", *sbatch_options(self._settings, request), *more]
        ours = self._environment()
        environment: dict[str, str] = {name: ours[name] for name in GIVEN if name in ours}
        environment |= {**request.environment, **variables}
        said = await self._run(*words, text=request.script, environment=environment)
        if said.code:
            raise fault_of("sbatch", said.err)
        return said

    async def _get_release(self) -> tuple[int, int]:
        if self._release is None:
            await self.version()
        assert self._release is not None
        return self._release

    async def _get_uid(self) -> int:
        if self._uid is None:
            said = await self._ask("id", "-u")
            self._uid = _whole(said.out.decode(errors="replace").strip())
            if self._uid is None:
                raise GridFault(
                    FailureClass.NEVER, f"id -u prints {said.out[:60]!r}, which is not a user id"
                )
        return self._uid

    async def _ask(self, *words: str) -> CommandOutput:
        said = await self._run(*words)
        if said.code:
            raise fault_of(words[0], said.err or said.out[:1000].decode(errors="replace"))
        return said

    async def _run(
        self, *words: str, text: str = "", environment: Mapping[str, str] | None = None
    ) -> CommandOutput:
        """Run a command. Raises GridFault if it fails to start, or times out."""
        settings, ours = self._settings, self._environment()
        command = [*settings.prefix, *words]
        try:
            with trio.fail_after(settings.timeout_s):
                if environment is not None:  # a job's PATH is a plain one: Slurm is found by ours
                    command[0] = await trio.to_thread.run_sync(
                        _find, command[0], ours["PATH"], abandon_on_cancel=True
                    )
                return await _run(command, text.encode(), environment or ours)
        except trio.TooSlowError:
            text = f"{words[0]} timed out after {duration_text(settings.timeout_s)}"
            raise GridFault(FailureClass.AGAIN, f"{text}: slurmctld may be overloaded") from None
        except FileNotFoundError:
            remedy = "install Slurm's commands (Debian: slurm-client), or set prefix or url"
            raise GridFault(
                FailureClass.NEVER, f"{command[0]} is not installed here: {remedy}"
            ) from None
        except OSError as error:
            text = f"{command[0]} can't be run: {error.strerror}"
            raise GridFault(FailureClass.AGAIN, text) from None

    def _environment(self) -> dict[str, str]:
        found = {name: os.environ[name] for name in KEPT if name in os.environ}
        found |= {"PATH": f"{os.environ.get('PATH', '')}:{PLACES}"}
        # Times in UTC; and full lists of tasks, of any length.
        found |= {"TZ": "UTC", "LC_ALL": "C", "SLURM_BITSTR_LEN": "0"}
        conf = self._settings.conf or os.environ.get("SLURM_CONF", "")
        return found | ({"SLURM_CONF": conf} if conf else {})


def _find(command: str, path: str) -> str:
    return shutil.which(command, path=path) or command


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,10}", text, re.ASCII) else None


async def _run(
    command: Sequence[str], text: bytes, environment: Mapping[str, str]
) -> CommandOutput:
    """Run a command to its end, with bounded output. Cancelled, it is killed."""
    out, err = bytearray(), bytearray()
    process = await trio.lowlevel.open_process(
        command, stdin=-1, stdout=-1, stderr=-1, env=environment, cwd="/", start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_feed, process.stdin, text)
            nursery.start_soon(_take, process.stdout, out, ANSWER_BYTES_MAX)
            nursery.start_soon(_take, process.stderr, err, 1 << 16)
        await process.wait()
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
                await process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                await stream.aclose()
    assert process.returncode is not None
    return CommandOutput(process.returncode, bytes(out), err.decode(errors="replace"))


async def _feed(stream: trio.abc.SendStream, text: bytes) -> None:
    try:
        await stream.send_all(text)
    except trio.BrokenResourceError:
        return  # it ended without reading it, and gives the reason
    finally:
        await stream.aclose()


async def _take(stream: trio.abc.ReceiveStream, into: bytearray, most: int) -> None:
    """Read to the end; output beyond `most` is dropped, and the rest is invalid JSON."""
    while chunk := await stream.receive_some(1 << 16):
        into += chunk[: most - len(into)]
