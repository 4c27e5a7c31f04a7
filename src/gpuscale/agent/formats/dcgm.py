"""Readings as the metric families that dcgm-exporter serves.

A device sample names its pod when all of the GPU belongs to one pod, and its container when it belongs to
one container. On a GPU that several pods share it names none: the value is the device's, and giving all of
it to one pod (or to each) would make sums over pods lie. The per-process families of `ack`
report who used how much of a shared GPU.

Source: NVIDIA dcgm-exporter 4.8.2, internal/pkg/rendermetrics (label order) and
    internal/pkg/transformation (pod labels). Difference: upstream labels a shared GPU with whichever pod
    comes last.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from gpuscale.agent.formats.labels import (
    DeviceLabels,
    FamilyOptions,
    LabelPairs,
    claim_attributes,
    leading_labels,
    pod_attributes,
)
from gpuscale.agent.formats.repeated import BY_POD, DeviceSeries, device_series
from gpuscale.agent.formats.xid import xid_message
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.agent.gpu.readings import GpuReading
from gpuscale.base.exposition.families import Family, Sample
from gpuscale.base.exposition.write import six_decimals
from gpuscale.signals import (
    FIELDS,
    NEW_NAMES,
    NEWER_NAMES,
    Counter,
    Field,
    ValueKind,
    field_named,
    new_name,
)

XID_FIELD = "DCGM_FI_DEV_XID_ERRORS"
_PLAIN_TYPES = ("gauge", "counter")
_UNFIT = re.compile("[^a-zA-Z0-9_]")
_LONGEST = 18
"""Digits of text that is served as a number."""


def dcgm_families(
    readings: Sequence[GpuReading],
    counters: Iterable[Counter],
    attribution: Attribution,
    options: FamilyOptions,
) -> tuple[Family, ...]:
    """Return one family per counter and name that has a value.

    They come in field-id order as up to 4.8, or by name from 4.9 on and where both names are served.
    """
    rows = tuple(counters)
    if options.names == "4.8":
        return _old_families(readings, rows, attribution, options)
    newer = _new_families(readings, rows, attribution, options)
    if options.names == "4.9":
        return _by_name(newer)
    older = _old_families(readings, rows, attribution, options)
    # A newer name that is also an older one is served once, with its older meaning.
    return _by_name((*older, *(each for each in newer if each.name not in FIELDS)))


def _old_families(
    readings: Sequence[GpuReading],
    rows: tuple[Counter, ...],
    attribution: Attribution,
    options: FamilyOptions,
) -> tuple[Family, ...]:
    text_fields = {row.name: row.field for row in rows if row.type == "label"}

    def series_of(reading: GpuReading) -> DeviceSeries:
        return _dcgm_series(reading, text_fields, attribution, options, "Hostname")

    return device_families(readings, rows, series_of, with_xid_message=True)


def _new_families(
    readings: Sequence[GpuReading],
    rows: tuple[Counter, ...],
    attribution: Attribution,
    options: FamilyOptions,
) -> tuple[Family, ...]:
    """Return the families under their newer names, in the newer units."""
    text_fields = {new_name(row.name): row.field for row in rows if row.type == "label"}

    def series_of(reading: GpuReading) -> DeviceSeries:
        return _dcgm_series(reading, text_fields, attribution, options, "hostname")

    families = []
    for family in device_families(readings, rows, series_of, with_xid_message=True):
        new = NEW_NAMES.get(family.name)
        if new is None:
            families.append(family)
            continue
        samples = tuple(Sample(each.labels, new.value(each.value)) for each in family.samples)
        help_ = family.help
        if new.unit:  # the counters file's help text would name the older unit
            meaning = FIELDS[family.name].meaning
            help_ = f"{meaning[0].upper()}{meaning[1:]} ({new.unit})."
        families.append(Family(new.name, new.type or family.type, help_, samples))
    return tuple(families)


def _by_name(families: Iterable[Family]) -> tuple[Family, ...]:
    """Return the families sorted by name, with the first of two equal names."""
    by_name: dict[str, Family] = {}
    for family in families:
        by_name.setdefault(family.name, family)
    return tuple(by_name[name] for name in sorted(by_name))


def device_families(
    readings: Sequence[GpuReading],
    counters: Iterable[Counter],
    series_of: Callable[[GpuReading], DeviceSeries],
    *,
    with_xid_message: bool,
) -> tuple[Family, ...]:
    """Return one family per counter that has a value, in field-id order, labelled by `series_of`."""
    everyone = [(reading, series_of(reading)) for reading in readings]
    every = [(reading, labels) for reading, series in everyone for labels in series.labels]
    devices = [(reading, series) for reading, series in everyone if not reading.is_lost]
    plain = [(reading.values, labels.pairs()) for reading, labels in every if not reading.is_lost]
    by_pod = BY_POD if any(series.pods for _, series in devices) else frozenset()
    families = []
    for row, known in _served(tuple(counters)):
        if known.is_derived:
            # Lost GPUs included: their events may say why. The event's own label is among the
            # labels, as upstream.
            samples = tuple(
                Sample(labels.with_labels(event.labels).pairs(), event.value)
                for reading, labels in every
                for event in reading.events
                if event.field == row.field
            )
        elif row.field == XID_FIELD and with_xid_message:
            xids = (
                (int(reading.values[XID_FIELD]), labels)
                for reading, labels in every
                if not reading.is_lost and XID_FIELD in reading.values
            )
            samples = tuple(
                Sample(labels.pairs({"err_code": str(xid), "err_msg": xid_message(xid)}), xid)
                for xid, labels in xids
            )
        elif row.field in by_pod:
            samples = _split_samples(known, devices)
        else:
            samples = _samples(known, plain)
        if samples:
            if (new := NEWER_NAMES.get(row.alias)) is not None:
                samples = tuple(Sample(each.labels, new.value(each.value)) for each in samples)
            # A single number can be neither a histogram nor a summary.
            type_ = row.type if row.type in _PLAIN_TYPES else "untyped"
            families.append(Family(row.name, type_, row.help, samples))
    return tuple(families)


@lru_cache(maxsize=4)
def _served(counters: tuple[Counter, ...]) -> tuple[tuple[Counter, Field], ...]:
    """Return the counters that have series, with their fields, in the order of families."""
    found = [(row, field_named(row.field)) for row in counters if row.type != "label"]
    return tuple(sorted(found, key=lambda each: (each[1].id, each[0].name)))


def event_fields(reading: GpuReading) -> frozenset[str]:
    """Return the derived counters that a reading has counts for."""
    return frozenset(event.field for event in reading.events)


def owners_of(reading: GpuReading, attribution: Attribution) -> tuple[ContainerRef, ...]:
    """Return the containers that hold a GPU, each once."""
    return tuple(dict.fromkeys(attribution.by_gpu.get(reading.gpu.allocated_as, ())))


def sole_owner(reading: GpuReading, attribution: Attribution) -> ContainerRef | None:
    """Return the pod that holds a whole GPU; None if there are several or none.

    The container is empty where several containers of that pod share the GPU.
    """
    owners = owners_of(reading, attribution)
    if len({(owner.namespace, owner.pod) for owner in owners}) != 1:
        return None
    first = owners[0]
    if len(owners) == 1:
        return first
    return ContainerRef(first.namespace, first.pod, "", first.pod_uid, first.labels)


def _samples(
    field: Field, devices: Iterable[tuple[Mapping[str, float | str], LabelPairs]]
) -> tuple[Sample, ...]:
    name, kind = field.name, field.kind
    samples = []
    for values, pairs in devices:
        value = values.get(name)
        if value is not None and (number := as_number(value, kind)) is not None:
            samples.append(Sample(pairs, number))
    return tuple(samples)


def _split_samples(
    field: Field, devices: Iterable[tuple[GpuReading, DeviceSeries]]
) -> tuple[Sample, ...]:
    """Return the samples of a field that pods of a shared GPU can have own values for."""
    samples: list[Sample] = []
    for reading, series in devices:
        pairs = ((reading.values, labels.pairs()) for labels in series.of_field(field.name))
        samples += _samples(field, pairs)
        if field.name in reading.values:
            samples += (
                Sample(labels.pairs(), values[field.name]) for labels, values in series.pods
            )
    return tuple(samples)


def as_number(value: float | str, kind: ValueKind) -> int | float | None:
    """Return a value as a number; None for text that is none, such as a version."""
    if kind == "int":
        return int(value)
    if kind == "double":
        return float(value)
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST else None


def _dcgm_series(
    reading: GpuReading,
    text_fields: Mapping[str, str],
    attribution: Attribution,
    options: FamilyOptions,
    hostname_label: str,
) -> DeviceSeries:
    owner = sole_owner(reading, attribution)
    labels = {
        name: six_decimals(value) if isinstance(value, float) else str(value)
        for name, field in text_fields.items()
        if (value := reading.values.get(field)) is not None
    }
    leading = leading_labels(reading, options, options.hostname_labels or (hostname_label,))
    if options.ack_labels:
        labels = {**labels, **ack_node_labels(options)}
    bare = DeviceLabels(leading, labels, {})
    if owner and options.pod_labels:
        labels = {**owner.labels, **labels}
    if options.ack_labels:
        labels = {**labels, **ack_owner_labels(owner)}
    attributes = pod_attributes(owner, options)
    if owner and options.claim_labels:
        holdings = attribution.holdings.get(reading.gpu.allocated_as, ())
        claim = holdings[0].claim if holdings else None
        attributes |= claim_attributes(claim, reading)
    owned = DeviceLabels(leading, labels, attributes)
    return device_series(reading, owned, bare, attribution, options)


def ack_node_labels(options: FamilyOptions) -> dict[str, str]:
    """Return the labels by which ACK's rules find a sample's node."""
    return {
        "NodeName": options.node,
        "NodePoolId": options.node_pool,
        "PodSource": options.pod_source,
    }


def ack_owner_labels(owner: ContainerRef | None) -> dict[str, str]:
    """Return the labels by which ACK's rules find a GPU's owner; none where it has no single owner."""
    if owner is None:
        return {}
    labels = {"NamespaceName": owner.namespace, "PodName": owner.pod}
    return {**labels, "ContainerName": owner.container} if owner.container else labels
