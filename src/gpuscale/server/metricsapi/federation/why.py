"""The explanation of a metric that a federation member owns: which member, its answer, the time it took."""

from collections.abc import Awaitable

from gpuscale.base.objects.metric_values import items_of, milli_of
from gpuscale.base.quantity import Quantity
from gpuscale.kube import mapping_of, text_of
from gpuscale.server.metricsapi.federation.member import Passed
from gpuscale.server.metricsapi.federation.ownership import Claim
from gpuscale.server.metricsapi.why.hops import Explanation, ServedValue, asked_text
from gpuscale.server.metricsapi.wire.paths import CustomTarget, ExternalTarget
from gpuscale.server.metricsapi.wire.requests import RequestError

HOPS = ("owner", "member", "value")


async def why_passed_on(
    claim: Claim, target: CustomTarget | ExternalTarget, asking: Awaitable[Passed]
) -> Explanation:
    """Return the explanation of a metric whose values came from a member.

    Args:
        claim: who owns the metric, and why.
        target: the requested metric.
        asking: asks the owner.
    """
    member = claim.member
    explanation = Explanation(asked_text(target), HOPS)
    explanation.ok("owner", f"the metrics API {member.name}: {claim.reason}", member.url)
    try:
        passed = await asking
    except RequestError as refused:
        status = refused.status
        return explanation.failed(
            "member", f"{status.code}: {status.message}.", f"Look at {member.name}, or ask it."
        )
    explanation.ok("member", f"it answered in {passed.seconds * 1000:.0f} ms")
    for item in items_of(passed.body):
        described = mapping_of(item.get("describedObject"))
        labels = mapping_of(item.get("metricLabels"))
        what = text_of(described.get("name")) or ",".join(f"{k}={v}" for k, v in labels.items())
        shown = str(Quantity.from_milli(milli_of(item.get("value"))))
        explanation.values.append(ServedValue(what or "no labels", shown, 0))
    if not passed.values:
        return explanation.failed(
            "value", "It answered without a value.", f"Look at {member.name}: it has none."
        )
    explanation.ok("value", f"{passed.values} of {passed.values} usable")
    return explanation
