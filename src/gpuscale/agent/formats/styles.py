"""Which exporter's series a node agent speaks: dcgm-exporter's, Alibaba's, or both."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from gpuscale.agent.formats.ack import ack_families, with_ack_labels
from gpuscale.agent.formats.dcgm import dcgm_families
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.owners import Attribution
from gpuscale.agent.gpu.readings import GpuReading
from gpuscale.base.exposition.families import Family
from gpuscale.signals import Counter

Style = Literal["dcgm", "ack"]


def agent_families(
    readings: Sequence[GpuReading],
    counters: Sequence[Counter],
    attribution: Attribution | None,
    options: FamilyOptions,
    styles: frozenset[Style],
    names: frozenset[str] | None = None,
) -> tuple[Family, ...]:
    """Return the GPU families of one scrape.

    With both styles, the device samples carry the labels of both and stay single. With no attribution
    at all there are no families about processes: each process would look as if it ran outside every pod.
    `names`, where given, are the only `DCGM_CUSTOM_*` families to make; `counters` say which of the others.
    """
    known = attribution or Attribution()
    labelled = replace(options, ack_labels=options.ack_labels or "ack" in styles)
    serve = dcgm_families if "dcgm" in styles else with_ack_labels
    families = serve(readings, counters, known, labelled)
    if "ack" not in styles or attribution is None:
        return families
    return (*families, *ack_families(readings, attribution, labelled, names))
