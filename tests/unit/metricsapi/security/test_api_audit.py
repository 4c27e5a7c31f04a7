# mypy: disable-error-code="arg-type, attr-defined"
"""The audit log: its events as in audit.k8s.io/v1, and what bounds it."""

import asyncio
import json
from pathlib import Path

import pytest

from gpuscale.base.errors import UsageError
from gpuscale.server.metricsapi.security import audit
from gpuscale.server.metricsapi.security.reviews import Attributes, User

VALUES = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/ml/pods/web-0/gpu_util"
ATTRIBUTES = Attributes(
    "get",
    VALUES,
    is_resource=True,
    group="custom.metrics.k8s.io",
    version="v1beta2",
    resource="pods",
    subresource="gpu_util",
    name="web-0",
    namespace="ml",
)
JANE = User("jane", ("team", "system:authenticated"), "u-1", (("scopes", ("a", "b")),))


def request(**changed):
    given = {
        "uri": f"{VALUES}?pretty=true",
        "attributes": ATTRIBUTES,
        "user": JANE,
        "address": "10.0.0.1",
        "user_agent": "kubectl/v1.36",
        "audit_id": "8f2b",
        "code": 200,
        "received_s": 1_700_000_000.25,
        "answered_s": 1_700_000_000.5,
    }
    return audit.AuditedRequest(**given | changed)


def test_an_event_is_what_kubernetes_writes() -> None:
    assert audit.event(request()) == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": "8f2b",
        "stage": "ResponseComplete",
        "requestURI": f"{VALUES}?pretty=true",
        "verb": "get",
        "user": {
            "username": "jane",
            "uid": "u-1",
            "groups": ["team", "system:authenticated"],
            "extra": {"scopes": ["a", "b"]},
        },
        "sourceIPs": ["10.0.0.1"],
        "userAgent": "kubectl/v1.36",
        "objectRef": {
            "resource": "pods",
            "namespace": "ml",
            "name": "web-0",
            "apiGroup": "custom.metrics.k8s.io",
            "apiVersion": "v1beta2",
            "subresource": "gpu_util",
        },
        "responseStatus": {"metadata": {}, "code": 200},
        # date -u -d @1700000000
        "requestReceivedTimestamp": "2023-11-14T22:13:20.250000Z",
        "stageTimestamp": "2023-11-14T22:13:20.500000Z",
        "annotations": {"authorization.k8s.io/decision": "allow"},
    }


def test_refusals_say_so_and_unknown_users_have_no_name() -> None:
    refused = audit.event(request(code=403))
    assert refused["annotations"] == {"authorization.k8s.io/decision": "forbid"}
    unknown = audit.event(request(code=401, user=None, audit_id=""))
    assert unknown["user"] == {}
    assert "annotations" not in unknown
    assert len(unknown["auditID"]) == 36


async def write(settings, *requests):
    log = audit.AuditLog(settings)
    for each in requests:
        log.add(each)
    task = asyncio.create_task(log.run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return log


async def test_lines_are_appended_to_the_file_and_the_last_ones_are_not_lost(
    tmp_path: Path,
) -> None:
    path = tmp_path / "audit.log"
    for number in range(2):
        await write(audit.AuditSettings(str(path)), request(code=200 + number))
    codes = [json.loads(line)["responseStatus"]["code"] for line in path.read_text().splitlines()]
    assert codes == [200, 201]


async def test_standard_output_can_be_written_to(capfdbinary) -> None:
    await write(audit.AuditSettings("-"), request())
    assert json.loads(capfdbinary.readouterr().out)["auditID"] == "8f2b"


async def test_a_full_file_makes_room_and_few_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    settings = audit.AuditSettings(str(path), max_mb=1, max_backups=2)
    # Each batch is some 0.6 MB, so that two don't fit into a file; five batches make five files.
    for number in range(5):
        await write(settings, *(request(uri=f"/{number}" + "a" * 4_000) for _ in range(130)))
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "audit.log",
        "audit.log.1",
        "audit.log.2",
    ]
    newest = [
        json.loads((tmp_path / name).read_text().split("\n", 1)[0])["requestURI"][:2]
        for name in ("audit.log", "audit.log.1", "audit.log.2")
    ]
    assert newest == ["/4", "/3", "/2"]
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= 3 * 1024 * 1024


async def test_what_waits_is_bounded_and_what_does_not_fit_is_counted(tmp_path: Path) -> None:
    log = audit.AuditLog(audit.AuditSettings(str(tmp_path / "audit.log")))
    for _ in range(4_000):
        log.add(request(uri="a" * 100_000, user_agent="b" * 100_000))
    # 8 MiB, and at least the two texts of 4096 characters in each line.
    assert log.dropped >= 4_000 - 1_024
    assert log._bytes <= 8 * 1024 * 1024


async def test_a_disk_that_fails_is_counted_and_ends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "audit.log"
    path.parent.mkdir()
    log = audit.AuditLog(audit.AuditSettings(str(path)))
    path.unlink()
    path.parent.rmdir()
    log.add(request())
    log._write(log._take())
    assert log.dropped == 1


def test_a_file_that_cannot_be_written_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--audit-log-path: can't write .*No such file"):
        audit.AuditLog(audit.AuditSettings(str(tmp_path / "none" / "audit.log")))
