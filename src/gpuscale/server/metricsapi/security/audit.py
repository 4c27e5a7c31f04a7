"""Who asked what and got which answer, one JSON line per request, as Kubernetes' audit log has it.

Events are of the level Metadata and the stage ResponseComplete. Lines are written by a thread, a batch at a
time: a slow disk or reader holds up no request. What does not fit into the batch meanwhile is counted.

Source: k8s.io/apiserver v0.30.0 pkg/apis/audit/v1 (types.go), pkg/audit (request.go), plugin/pkg/audit/log.
Known differences: health paths are left out, as a policy would; ten old files are kept by default,
where upstream keeps all.
"""

import asyncio
import json
import sys
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from gpuscale.base.errors import UsageError
from gpuscale.base.exposition.families import Family
from gpuscale.server.metricsapi.security.reviews import NOBODY, Attributes, User
from gpuscale.server.metricsapi.settings import AuditSettings
from gpuscale.server.metricsapi.telemetry.own_metrics import family

_EVERY_S = 0.25
_MOST_BYTES = 8 * 1024 * 1024
"""Waiting to be written."""
_MOST_CHARS = 4096
"""Of each text that a client chooses."""
_FORBIDDEN = 403
_UNAUTHORIZED = 401
_BYTES_PER_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class AuditedRequest:
    """An answered request, as the audit log records it."""

    uri: str
    attributes: Attributes
    user: User | None
    """None where it was not found out."""
    address: str
    user_agent: str
    audit_id: str
    """What the API server calls it; empty where it has none."""
    code: int
    received_s: float
    """Since the epoch, as the next."""
    answered_s: float


class AuditLog:
    """Writes events to a file that is rotated by size, or to standard output.

    Args:
        settings: where, and how much.

    Raises:
        UsageError: the file can't be written.
    """

    def __init__(self, settings: AuditSettings) -> None:
        self._settings = settings
        self._lines: list[bytes] = []
        self._bytes = 0
        self.dropped = 0
        """Events that were not written."""
        if settings.path == "-":
            return
        try:
            with Path(settings.path).open("ab"):
                pass
        except OSError as error:
            raise UsageError(
                f"--audit-log-path: can't write {settings.path}: {error.strerror}"
            ) from error

    def add(self, request: AuditedRequest) -> None:
        """Queue an event."""
        line = json.dumps(event(request), separators=(",", ":")).encode() + b"\n"
        if self._bytes + len(line) > _MOST_BYTES:
            self.dropped += 1
            return
        self._lines.append(line)
        self._bytes += len(line)

    async def run(self) -> None:
        """Write queued events until cancelled, then the remaining ones."""
        try:
            while True:
                await asyncio.sleep(_EVERY_S)
                if self._lines:
                    await asyncio.to_thread(self._write, self._take())
        finally:
            if self._lines:
                self._write(self._take())

    def _take(self) -> list[bytes]:
        lines, self._lines, self._bytes = self._lines, [], 0
        return lines

    def _write(self, lines: list[bytes]) -> None:
        try:
            if self._settings.path == "-":
                sys.stdout.buffer.write(b"".join(lines))
                sys.stdout.buffer.flush()
            else:
                self._append(b"".join(lines))
        except (OSError, ValueError):
            self.dropped += len(lines)

    def _append(self, text: bytes) -> None:
        path = Path(self._settings.path)
        most = self._settings.max_mb * _BYTES_PER_MB
        if path.exists() and path.stat().st_size + len(text) > most:
            self._rotate(path)
        with path.open("ab") as file:
            file.write(text)

    def _rotate(self, path: Path) -> None:
        kept = [path, *(Path(f"{path}.{n}") for n in range(1, self._settings.max_backups + 1))]
        for old, new in reversed(list(pairwise(kept))):
            if old.exists():
                old.replace(new)


def event(request: AuditedRequest) -> dict[str, object]:
    """Return the audit event of a request."""
    found: dict[str, object] = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": request.audit_id[:_MOST_CHARS] or str(uuid.uuid4()),
        "stage": "ResponseComplete",
        "requestURI": request.uri[:_MOST_CHARS],
        "verb": request.attributes.verb,
        "user": _user(request.user),
        "sourceIPs": [request.address],
    }
    if request.user_agent:
        found["userAgent"] = request.user_agent[:_MOST_CHARS]
    if request.attributes.is_resource:
        found["objectRef"] = _reference(request.attributes)
    found["responseStatus"] = {"metadata": {}, "code": request.code}
    found["requestReceivedTimestamp"] = _time(request.received_s)
    found["stageTimestamp"] = _time(request.answered_s)
    if request.user is not None and request.code != _UNAUTHORIZED:
        decision = "forbid" if request.code == _FORBIDDEN else "allow"
        found["annotations"] = {"authorization.k8s.io/decision": decision}
    return found


def _user(user: User | None) -> dict[str, object]:
    if user is None:
        return {}
    found: dict[str, object] = {"username": user.name[:_MOST_CHARS]}
    if user.uid:
        found["uid"] = user.uid[:_MOST_CHARS]
    if user.groups:
        found["groups"] = [group[:_MOST_CHARS] for group in user.groups]
    if user.extra and user.name != NOBODY.name:
        found["extra"] = {key: list(values) for key, values in user.extra}
    return found


def _reference(attributes: Attributes) -> dict[str, str]:
    found = {
        "resource": attributes.resource,
        "namespace": attributes.namespace,
        "name": attributes.name,
        "apiGroup": attributes.group,
        "apiVersion": attributes.version,
        "subresource": attributes.subresource,
    }
    return {key: text[:_MOST_CHARS] for key, text in found.items() if text}


def _time(seconds: float) -> str:
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
    return text.replace("+00:00", "Z")


def audit_families(log: AuditLog) -> tuple[Family, ...]:
    """Return the counts of audit events that were dropped."""
    return (
        family(
            "audit_events_dropped_total",
            "counter",
            "Events that the audit log could not take.",
            {(): log.dropped},
        ),
    )
