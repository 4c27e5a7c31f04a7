"""Fixes that add something or correct a field, and restart or take away nothing."""

from collections.abc import Sequence

from gpuscale.core.findings import Change
from gpuscale.doctor.judges import ClusterFinding
from gpuscale.kube.client.errors import ApiStatusError
from gpuscale.kube.client.writing import CONFLICT, WritingClient


def repairable(findings: Sequence[ClusterFinding]) -> tuple[ClusterFinding, ...]:
    """Return the findings whose fix may be done without a thought, each fix once."""
    found: dict[tuple[Change, ...] | str, ClusterFinding] = {}
    for finding in findings:
        if finding.fix.changes:
            found.setdefault(finding.fix.command, finding)
    return tuple(found.values())


async def repair(client: WritingClient, finding: ClusterFinding) -> None:
    """Apply the fix of a finding.

    Raises:
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused; what comes before it in the fix is applied.
    """
    for change in finding.fix.changes:
        await _apply(client, change)


async def _apply(client: WritingClient, change: Change) -> None:
    if not change.creates:
        await client.patch(change.path, change.body)
        return
    try:
        await client.create(change.path, change.body)
    except ApiStatusError as error:
        if error.code != CONFLICT:
            raise
        await client.patch(f"{change.path}/{change.body['metadata']['name']}", change.body)
