"""Sends alerts to all Alertmanagers at once.

What can't be sent is not kept for later: an alert that fires is due again after a minute, and its end is sent
for 15 minutes. So an Alertmanager that comes back has all alerts soon, and none of them late.

Source: prometheus notifier/notifier.go (v3.0.0), alertmanager api/v2/openapi.yaml (v0.27.0).
"""

import asyncio
import json
import logging
from collections import Counter, deque
from collections.abc import Sequence
from datetime import UTC, datetime

import aiohttp
from yarl import URL

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.exposition.families import Family, Sample
from gpuscale.base.unreachable import reason_of
from gpuscale.series.rules import Alert, AlertingRule, table_link
from gpuscale.server.sources.http.access import SecretFile, SourceAccess, tls_to
from gpuscale.server.sources.http.session import HttpSession
from gpuscale.server.sources.ruler.settings import AlertmanagerSettings, alerts_url

_LOG = logging.getLogger(__name__)
_MAX_WAITING_BYTES = 16 * 1024 * 1024
"""Of alerts that wait to be sent; the oldest make room."""
_MAX_BATCH = 64
"""Alerts of one message, as in Prometheus."""
_TIMEOUT_S = 10.0
_MAX_ANSWER_BYTES = 64 * 1024
_MAX_SHOWN = 200
"""Characters of an answer that are logged."""


class AlertmanagerSender:
    """Sends alerts in order of arrival.

    Args:
        settings: where to, and how to be let in.
        external_url: where users find this server; empty where they don't.

    Raises:
        UsageError: a certificate that can't be used.
    """

    def __init__(self, settings: AlertmanagerSettings, external_url: str = "") -> None:
        self.sent: Counter[str] = Counter()
        """Alerts that an Alertmanager took, by its address."""
        self.errors: Counter[str] = Counter()
        """Alerts that one did not take."""
        self.dropped = 0
        """Alerts that no Alertmanager took, or that made room for others."""
        self.urls = tuple(alerts_url(each) for each in settings.urls)
        self._external_url = external_url.rstrip("/")
        self._http = HttpSession(
            timeout_s=_TIMEOUT_S,
            max_response_bytes=_MAX_ANSWER_BYTES,
            access=_access(settings),
        )
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._changed = asyncio.Event()
        self._faults: dict[str, str] = {}

    def notify(self, rule: AlertingRule, alerts: Sequence[Alert]) -> None:
        """Queue alerts that are due."""
        for alert in alerts:
            body = json.dumps(self._document(rule, alert), ensure_ascii=False).encode(
                errors="replace"
            )
            self._waiting.append(body)
            self._waiting_bytes += len(body)
        while self._waiting_bytes > _MAX_WAITING_BYTES:
            self._waiting_bytes -= len(self._waiting.popleft())
            self.dropped += 1
        self._changed.set()

    async def run(self) -> None:
        """Send until cancelled."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                while self._waiting:
                    await self._send_batch()
        finally:
            await self._http.close()

    def remark(self) -> str:
        """Return which Alertmanagers refuse alerts, in words; empty if none does."""
        return "; ".join(f"{url} does not take alerts: {why}" for url, why in self._faults.items())

    def families(self) -> tuple[Family, ...]:
        """Return metrics of sending, under Prometheus' names."""

        def by_url(name: str, help_: str, counts: Counter[str]) -> Family:
            samples = (Sample((("alertmanager", url),), counts[url]) for url in self.urls)
            return Family(f"prometheus_notifications_{name}", "counter", help_, tuple(samples))

        return (
            by_url("sent_total", "Total number of alerts sent.", self.sent),
            by_url("errors_total", "Total number of alerts that were not taken.", self.errors),
            Family(
                "prometheus_notifications_dropped_total",
                "counter",
                "Total number of alerts dropped due to errors or because too many waited.",
                (Sample((), self.dropped),),
            ),
            Family(
                "prometheus_notifications_queue_length",
                "gauge",
                "The number of alert notifications in the queue.",
                (Sample((), len(self._waiting)),),
            ),
            Family(
                "prometheus_notifications_alertmanagers_discovered",
                "gauge",
                "The number of alertmanagers that alerts are sent to.",
                (Sample((), len(self.urls)),),
            ),
        )

    def _document(self, rule: AlertingRule, alert: Alert) -> dict[str, object]:
        fired_ms = alert.active_ms if alert.fired_ms is None else alert.fired_ms
        ends_ms = alert.valid_until_ms if alert.resolved_ms is None else alert.resolved_ms
        document: dict[str, object] = {
            "labels": dict(alert.labels),
            "annotations": dict(alert.annotations),
            "startsAt": _time(fired_ms),
            "endsAt": _time(fired_ms if ends_ms is None else ends_ms),
        }
        if self._external_url:
            document["generatorURL"] = self._external_url + table_link(rule.shown_query)
        return document

    async def _send_batch(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(_MAX_BATCH, len(self._waiting)))]
        self._waiting_bytes -= sum(map(len, batch))
        body = b"[" + b",".join(batch) + b"]"
        taken = await asyncio.gather(*(self._post(url, body, len(batch)) for url in self.urls))
        if not any(taken):
            self.dropped += len(batch)

    async def _post(self, url: str, body: bytes, count: int) -> bool:
        try:
            status, answer = await self._http.fetch(
                "POST",
                URL(url, encoded=True),
                data=body,
                headers=[("Content-Type", "application/json")],
            )
            fault = "" if status // 100 == 2 else f"answered {status} {_shown(answer)}".rstrip()
        except (aiohttp.ClientError, OSError, TimeoutError, GpuscaleError) as error:
            fault = reason_of(error)
        self._note(url, fault)
        counts = self.errors if fault else self.sent
        counts[url] += count
        return not fault

    def _note(self, url: str, fault: str) -> None:
        """Record the result of the latest message; each change is logged once."""
        before = self._faults.get(url, "")
        if fault and fault != before:
            _LOG.warning("%s does not take alerts: %s", url, fault)
        if before and not fault:
            _LOG.info("%s takes alerts again", url)
        self._faults.pop(url, None)
        if fault:
            self._faults[url] = fault


def _access(settings: AlertmanagerSettings) -> SourceAccess:
    token, password = settings.token_file, settings.password_file
    return SourceAccess(
        token=None if token is None else SecretFile(token),
        username=settings.username,
        password=None if password is None else SecretFile(password),
        tls=tls_to("an Alertmanager", settings.ca_file, settings.client_files),
    )


def _time(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(answer: bytes) -> str:
    text = answer.decode(errors="replace")
    return "".join(each if each.isprintable() else " " for each in text)[:_MAX_SHOWN].strip()
