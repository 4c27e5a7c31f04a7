"""All federation members: routing of requests, merged discovery lists, health checks."""

import asyncio
from collections.abc import Iterable, Sequence

from aiohttp import web

from gpuscale.base.exposition.families import Family
from gpuscale.base.objects.selectors import Selector
from gpuscale.server.metricsapi.federation.answers import unavailable
from gpuscale.server.metricsapi.federation.member import MAX_AT_ONCE, Member, Passed
from gpuscale.server.metricsapi.federation.ownership import Claim, Own, Ownership
from gpuscale.server.metricsapi.federation.settings import MemberSettings
from gpuscale.server.metricsapi.health import HealthCheck
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.telemetry.histograms import histograms
from gpuscale.server.metricsapi.telemetry.own_metrics import PREFIX, family
from gpuscale.server.metricsapi.wire.bodies import Body
from gpuscale.server.metricsapi.wire.paths import GROUPS, CustomTarget, ExternalTarget
from gpuscale.server.metricsapi.wire.requests import RequestError

_PARAMETERS = ("labelSelector", "metricLabelSelector")
"""What of a request's query goes on."""


class Federation:
    """The members, and which metrics belong to which of them.

    Args:
        settings: of the members.
        provider: of our own metrics.

    Raises:
        UsageError: a certificate that can't be used.
    """

    def __init__(self, settings: Sequence[MemberSettings], provider: MetricsProvider) -> None:
        self.members = {each.name: Member(each) for each in settings}
        self.ownership = Ownership(settings, provider)
        self.groups = tuple(
            group for group in GROUPS if any(group in each.groups for each in settings)
        )
        """Those that any member is asked for."""

    async def close(self) -> None:
        for member in self.members.values():
            await member.close()

    async def run(self) -> None:
        """Refresh the members' discovery lists until cancelled."""
        async with asyncio.TaskGroup() as group:
            for member in self.members.values():
                group.create_task(member.run(), name=f"metrics API {member.name}")

    def owner(self, target: CustomTarget | ExternalTarget, series: Selector) -> Claim | None:
        """Return the member that answers a request; None if this server answers it.

        Raises:
            RequestError: it is not known yet whether the metric is ours.
        """
        if isinstance(target, ExternalTarget) and (claim := self.ownership.by_selector(series)):
            return claim
        claim = self.ownership.claim(target, series)
        if claim is None:
            return None
        match self.ownership.own(target):
            case Own.NO:
                return claim
            case Own.UNKNOWN:
                raise RequestError(
                    unavailable(
                        f"discovery has not ended yet, so that it is not known whether {target.metric} is "
                        f"gpuscale's or {claim.member.name}'s"
                    )
                )
        return None

    async def values(
        self,
        request: web.Request,
        claim: Claim,
        group_version: str,
        target: CustomTarget | ExternalTarget,
    ) -> Passed:
        """Return the answer of the member that owns a metric.

        Raises:
            RequestError: with the answer to give instead.
        """
        query = {name: request.query[name] for name in _PARAMETERS if name in request.query}
        return await self.members[claim.member.name].values(group_version, query, target)

    def listed(self, group: str, version: str, ours: Sequence[Body]) -> list[Body]:
        """Return the resources of a group and version, ours first, with those of the members."""
        found = {(each["name"], each["namespaced"]): each for each in ours}
        for member in self.members.values():
            for each in member.lists.get((group, version), ()):
                found.setdefault((each["name"], each["namespaced"]), each)
        return list(found.values())

    def warnings(self) -> list[str]:
        """Return a warning for each member whose list may be incomplete."""
        return [text for each in self.members.values() if (text := each.missing())]

    def checks(self) -> Iterable[HealthCheck]:
        """Yield a health check for each member; it never fails, as our own metrics are served without it."""
        for member in self.members.values():
            yield HealthCheck(f"member-{member.name}", remark=member.remark())

    def families(self) -> tuple[Family, ...]:
        """Return the metrics about the members."""
        counts = {name: each.counts for name, each in self.members.items()}
        return (
            family(
                "member_requests_total",
                "counter",
                "Requests to be passed on to another metrics API, by what became of them: ok, refused by it, "
                "failed, not asked.",
                {
                    (("member", name), ("result", result)): count
                    for name, each in counts.items()
                    for result, count in each.results.items()
                },
            ),
            histograms(
                f"{PREFIX}_member_request_duration_seconds",
                "Time that another metrics API took.",
                {(("member", name),): each.durations for name, each in counts.items()},
            ),
            family(
                "member_requests_in_flight",
                "gauge",
                f"Requests that another metrics API is answering; at most {MAX_AT_ONCE}.",
                {(("member", name),): each.in_flight for name, each in counts.items()},
            ),
            family(
                "member_up",
                "gauge",
                "1 if another metrics API answers.",
                {
                    (("member", name),): int(not each.circuit.is_open)
                    for name, each in self.members.items()
                },
            ),
        )
