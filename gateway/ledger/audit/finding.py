"""What a proof has found, with the documents whose rules it leads to."""

from dataclasses import dataclass, replace

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from gateway.ledger.db.checks import NO_RECORD
from gateway.ledger.db.contracts.tables import contracts
from gateway.ledger.db.usage.tables import usage


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One place where a condition does not hold.

    Attributes:
        text: for people.
        job, attempt: the usage that it is about; without an attempt, all usage of the job.
        side, contract: the contract that it is about, in place of a job.
        rules: the versions of this site's rules that these records ran under, in order
            (gateway.rules); empty where none is named.
    """

    text: str
    job: str = ""
    attempt: int | None = None
    side: str = ""
    contract: str = ""
    rules: tuple[int, ...] = ()

    def __str__(self) -> str:
        if not self.rules:
            return self.text
        word = "version" if len(self.rules) == 1 else "versions"
        return f"{self.text} (under {word} {', '.join(map(str, self.rules))} of the rules)"


def under_rules(connection: Connection, found: AuditFinding) -> AuditFinding:
    """Return a finding with the versions of the rules that its records ran under.

    Without them if the records can't be read: the finding is told all the same.
    """
    try:
        return _under_rules(connection, found)
    except (SQLAlchemyError, *NO_RECORD):
        return found


def _under_rules(connection: Connection, found: AuditFinding) -> AuditFinding:
    if found.contract:
        query = select(contracts.c.rules).where(
            contracts.c.contract == found.contract, contracts.c.side == found.side
        )
    elif found.job:
        query = select(usage.c.rules).where(usage.c.job == found.job)
        if found.attempt is not None:
            query = query.where(usage.c.attempt == found.attempt)
    else:
        return found
    versions = connection.scalars(query.distinct()).all()
    return replace(found, rules=tuple(sorted(each for each in versions if each)))
