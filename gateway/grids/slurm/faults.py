"""Interprets Slurm's refusals: retry, elsewhere, or never; with advice. Pure.

Slurm's own texts (`slurm_strerror`) are the same by commands and by slurmrestd, and in the tested
versions; so texts are matched, and no numbers. An unknown fault means elsewhere: the caller backs
off ever longer after faults.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from federation.words import clean
from gateway.grids.contract import FailureClass, GridFault
from gateway.grids.slurm.listing import parse

TEXT_MAX: Final = 400
NUMBERS: Final = ("error_number", "error_code", "errno")  # of an error in JSON, by version
GONE: Final = re.compile(
    r"invalid job id|already completing or completed|job has already finished", re.IGNORECASE
)

POLICY: Final = "job violates accounting/qos policy"
LIMIT: Final = re.compile(r"\b(?:Assoc|QOS|Max)[A-Z]\w{2,60}\b", re.ASCII)

_A, _E, _N = FailureClass.AGAIN, FailureClass.ELSEWHERE, FailureClass.NEVER
# In this order: the first match counts.
KNOWN: Final[tuple[tuple[str, FailureClass, str], ...]] = (
    ("unable to contact slurm controller", _A, "slurmctld does not answer"),
    ("restore slurmctld daemon", _A, "slurmctld is down"),
    ("unable to contact primary", _A, "slurmctld does not answer"),
    ("slurm backup controller in standby", _A, "slurmctld is switching to its backup"),
    ("socket timed out", _A, "slurmctld is slow: it may be overloaded"),
    ("connection refused", _A, "slurmctld or slurmrestd is not running"),
    ("connection timed out", _A, "slurmctld or slurmrestd does not answer"),
    ("transport endpoint is not connected", _A, "the connection to slurmctld was lost"),
    ("zero bytes were transmitted", _A, "the connection to slurmctld was lost"),
    ("unspecified error", _A, "slurmctld gave no list: check that it runs"),
    ("communication connection failure", _A, "slurmctld is not running"),
    ("error receiving", _A, "the connection to slurmctld was lost"),
    ("error sending", _A, "the connection to slurmctld was lost"),
    ("slurmdbd", _A, "the accounting daemon is not running"),
    ("resource temporarily unavailable", _A, "slurmctld is overloaded"),
    ("maximum number of jobs", _E, "Slurm has its maximum number of jobs (MaxJobCount)"),
    ("job limit", _E, "a limit of the account or qos is reached"),
    ("required node not available", _E, "the nodes are down, drained or reserved"),
    ("requested nodes are busy", _E, "no node is free"),
    ("requested partition configuration not available now", _E, "the partition is too small now"),
    ("required partition not available", _E, "the partition is down or drained"),
    ("required licenses", _E, "no licences are free"),
    ("security violation", _N, "Slurm does not know this user, or denies the request"),
    ("access/permission denied", _N, "access is denied: check `account` and the user"),
    ("invalid account or account/partition", _N, "`account` is not allowed here"),
    ("invalid partition name", _N, "`partition` does not exist in this cluster: see `sinfo`"),
    ("invalid partition specified", _N, "`partition` does not exist in this cluster: see `sinfo`"),
    ("no partition specified or system default", _N, "set `partition`"),
    ("invalid qos", _N, "`qos` is not allowed for this user: see `sacctmgr show assoc`"),
    (
        "invalid feature specification",
        _N,
        "no node has the features in `constraint`: see `sinfo -o %f`",
    ),
    ("invalid generic resource", _N, "the cluster has no such GPUs: see `sinfo -o %G`"),
    ("invalid job array", _N, "an order exceeds MaxArraySize: set `array_max`"),
    ("reservation is invalid", _N, "`reservation` does not exist, or is not allowed"),
    ("invalid reservation", _N, "`reservation` does not exist, or is not allowed"),
    ("requested time limit is invalid", _N, "the partition does not allow this `walltime`"),
    ("time limit specification required", _N, "set `walltime`: the cluster requires a time limit"),
    ("invalid node name", _N, "a node in `options` does not exist in this cluster"),
    ("invalid license", _N, "a licence in `options` does not exist in this cluster"),
    ("invalid wckey", _N, "`wckey` in `options` is not allowed"),
    ("memory specification can not be satisfied", _N, "no node has enough memory for a pilot"),
    ("cpu count per node can not be satisfied", _N, "no node has enough CPUs for a pilot"),
    ("requested node configuration is not available", _N, "no node is large enough for a pilot"),
    ("node count specification invalid", _N, "a pilot needs more nodes than the partition allows"),
    ("user's group not permitted", _N, "the group of this user is not allowed in `partition`"),
    ("access by user not allowed", _N, "this user is not allowed in `partition`"),
    ("invalid user id", _N, "the nodes do not know this user"),
    ("submitting jobs as root", _N, "the partition accepts no jobs of root"),
    # Tokens may be renewed, or munge repaired, without notice to us: the pool retries.
    ("sack socket", _A, "no daemon provides the cluster's key here: check that sackd runs"),
    (
        "protocol authentication error",
        _A,
        ("the token has expired or is wrong, or munge or sackd here belongs to another cluster"),
    ),
    ("authentication failure", _A, "the token is missing, expired or wrong"),
    (
        "invalid authentication credential",
        _A,
        "the token is expired or wrong, or the munge keys differ",
    ),
    ("munge", _A, "munge does not work here: check that munged runs with the cluster's key"),
    ("incompatible versions", _N, "the commands are too new or too old for slurmctld"),
    ("unable to process configuration file", _N, "`conf` can't be read as a slurm.conf"),
    ("cannot stat file", _N, "the file in `conf` does not exist"),
    ("could not establish a configuration source", _N, "set `conf` to a slurm.conf"),
    ("unable find requested url", _N, "slurmrestd does not support this `api`"),
    ("unrecognized option", _N, "Slurm does not know an option: see `options`"),
    ("unable to find data_parser", _N, "the Slurm commands were built without JSON"),
    ("failure loading plugin", _N, "the Slurm commands were built without JSON"),
    ("invalid ", _N, "Slurm refuses a value in `[pool.slurm]`"),
    ("unknown key", _N, "slurmrestd does not know a key of this `api`"),
)


def fault_of(what: str, text: str) -> GridFault:
    """Return the fault of a refusal.

    Args:
        what: the failed command, as in "sbatch".
        text: Slurm's message.
    """
    said = tidy(text) or "nothing"
    lower = said.lower()
    if POLICY in lower:
        return _over_limit(what, said)
    for known, failure_class, remedy in KNOWN:
        if known in lower:
            return GridFault(failure_class, f"{what}: {remedy} (Slurm says: {said})")
    return GridFault(FailureClass.ELSEWHERE, f"{what} failed; Slurm says: {said}")


def _over_limit(what: str, said: str) -> GridFault:
    """Interpret a limit of an account or QOS. sbatch names it, slurmrestd does not.

    The number of submitted jobs may be exceeded for a time. Any other limit that refuses a job at
    once (`DenyOnLimit`), instead of queueing it, is exceeded by a single pilot.
    """
    reason = LIMIT.search(said)
    shown = f"(Slurm says: {said})"
    if reason is None:
        text = "the limit of the account or qos is reached, or a single pilot exceeds it"
        return GridFault(_E, f"{what}: {text} {shown}", is_full=True)
    if "Submit" in reason[0]:
        text = "the account or qos has reached its limit of submitted jobs"
        return GridFault(_E, f"{what}: {text} {shown}", is_full=True)
    if "WallDuration" in reason[0]:
        return GridFault(_N, f"{what}: `walltime` exceeds MaxWall of the account or qos {shown}")
    return GridFault(_N, f"{what}: a single pilot exceeds a limit of the account or qos {shown}")


def tidy(text: str) -> str:
    """Shorten a text of Slurm to one line, without its commands' names."""
    lines = []
    for line in text.splitlines():
        shown = clean(line[:1000].replace("\t", " "))
        shown = re.sub(r"^(sbatch|squeue|scancel|scontrol|sinfo): (error|fatal): ", "", shown)
        shown = shown.strip()
        if shown and shown not in lines:
            lines.append(shown)
    return "; ".join(lines)[:TEXT_MAX]


def read_answer(status: int, body: bytes) -> tuple[Mapping[str, Any], str]:
    """Return slurmrestd's answer, and its errors; empty: none. Raises GridFault."""
    try:
        data = parse(body, "slurmrestd's answer")
    except GridFault:
        if status == 200:
            raise
        return {}, body[:200].decode(errors="replace") or f"HTTP {status}"
    said = errors_in(data)
    if not said and status != 200:
        said = [f"HTTP {status}"]
    return data, "\n".join(said)


def read_listing(command: str, out: bytes) -> Mapping[str, Any]:
    """Return the answer of a command with --json. Raises GridFault.

    With 22.05 `squeue` and `sinfo` end with code 0 and an empty list where slurmctld does not
    answer: the error is in the answer alone, and the pilots are not gone.
    """
    data = parse(out, f"the answer of {command}")
    if said := errors_in(data):
        raise fault_of(command, "\n".join(said))
    return data


def errors_in(data: Mapping[str, Any]) -> list[str]:
    """Return the errors that an answer in JSON lists."""
    errors = data.get("errors")
    return list(_errors(errors if isinstance(errors, list) else ()))


def _errors(errors: Iterable[Any]) -> Iterable[str]:
    for each in errors:
        if not isinstance(each, dict):
            continue
        words = (each.get(key) for key in ("error", "description"))
        said = ": ".join(word for word in words if isinstance(word, str) and word)
        number = next((each[key] for key in NUMBERS if key in each), None)
        if said or number:
            yield said or f"error {number}"


def submitted(data: Mapping[str, Any]) -> bool:
    """Whether slurmrestd's answer to a submission shows that the job exists.

    Mere warnings, like "Required node not available", are among its errors, too.
    """
    job = data.get("job_id")
    return isinstance(job, int) and job > 0


def hide(text: str, secrets: Iterable[str]) -> str:
    """Replace secrets in a text."""
    for each in secrets:
        if len(each) >= 8:
            text = text.replace(each, "(hidden)")
    return text
