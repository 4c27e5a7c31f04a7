"""What the node agent was asked to do: flags and environment to settings, with all errors together."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpuscale.agent.dcgm.address import parse_address
from gpuscale.agent.exporter.config_map import ConfigMapName, parse_config_map
from gpuscale.agent.exporter.counters_file import Mode
from gpuscale.agent.exporter.devices import DeviceSelection, parse_devices
from gpuscale.agent.exporter.families.azure import AzureCluster
from gpuscale.agent.exporter.flags import FLAGS, MAX_INTERVAL_MS, MIN_INTERVAL_MS
from gpuscale.agent.exporter.gpu_source import GpuSource, parse_gpu_source
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.formats.styles import Style
from gpuscale.base.flags import FlagReader
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.signals import Names

_WORDS = {**dict.fromkeys(("y", "yes", "on"), True), **dict.fromkeys(("n", "no", "off"), False)}
"""Booleans that dcgm-exporter's environment variables may have."""


@dataclass(frozen=True, slots=True)
class PodLookupSettings:
    """How GPUs are tied to pods."""

    socket: Path
    proc_root: Path
    resource_names: tuple[str, ...]
    label_patterns: tuple[str, ...]
    """RE2 expressions for the keys of pod labels to serve; empty serves none."""
    needs_api_server: bool
    """Whether UIDs or labels are wanted, which only the API server has."""


@dataclass(frozen=True, slots=True)
class ExporterSettings:
    """The configuration that a node agent starts with."""

    counters_file: Path
    counters_text: tuple[str, str] | None
    """Counters that a configuration file lists, and its name; None where they come from elsewhere."""
    counters_map: ConfigMapName | None
    """Where counters come from instead of the file; None is the file."""
    counters_mode: Mode
    gpu: GpuSource
    host_engine: str | None
    """Address of a DCGM host engine, `HOST:PORT` or a socket's path; None asks none."""
    devices: DeviceSelection
    interval_ms: int
    stream_interval_ms: int | None
    profiling_interval_ms: int | None
    """0 means at every collect, None that the reader chooses by what the counters cost."""
    record: Path | None
    styles: frozenset[Style]
    options: FamilyOptions
    xid_window_ms: int
    clock_window_ms: int
    cluster: AzureCluster
    kubeconfig: Path | None
    """To ask the API server with; None is the pod's service account."""
    jobs_folder: Path | None
    """Where files tell the batch jobs on each GPU."""
    pods: PodLookupSettings | None
    """None leaves GPUs without pods."""
    host: str
    port: int
    is_socket_given: bool
    """Whether systemd hands the sockets over."""
    web_config_file: Path | None
    web_users_folder: Path | None
    """Where users of basic authentication are, beside those of the file."""
    has_open_probes: bool
    """Whether probes need no password."""
    is_debugging: bool
    log_format: str
    notes: tuple[str, ...]
    """What to say of flags that change nothing here."""


def read_settings(
    given: Mapping[str, str], environment: Mapping[str, str], hostname: str
) -> ExporterSettings:
    """Return the settings of a command line and its environment; flags win over variables.

    Args:
        given: flag name to its text, for the flags that were given.
        environment: of the process.
        hostname: of this machine; `NODE_NAME` stands in for it under Kubernetes.

    Raises:
        UsageError: at least one value is wrong; all are reported, one per line.
        ConfigError: the configuration file is not of its format.
        NotFoundError: it can't be read.
    """
    texts = {name: [text] for name, text in given.items()}
    flags = FlagReader(FLAGS, texts, environment, _WORDS)
    path = flags.path("config-file")
    if path is None:
        settings = _settings(flags, hostname)
        flags.finish()
        return settings
    from gpuscale.agent.exporter.config_file import read_config_file  # YAML takes memory for good

    config = read_config_file(path)
    more: dict[str, list[str]] = {}
    if config.interval_ms is not None and not flags.is_given("collect-interval"):
        more["collect-interval"] = [str(config.interval_ms)]
    has_counters = flags.is_given("collectors") or flags.text("configmap-data") != "none"
    if config.counters_path and not has_counters:
        more["collectors"] = [config.counters_path]
    flags = FlagReader(FLAGS, {**texts, **more}, environment, _WORDS)
    settings = _settings(flags, hostname)
    flags.finish()
    listed = None if has_counters else config.counters_text
    return replace(
        settings,
        counters_text=None if listed is None else (listed, str(path)),
        notes=(*settings.notes, *config.notes),
    )


def _settings(flags: FlagReader, hostname: str) -> ExporterSettings:
    is_kubernetes = flags.boolean("kubernetes")
    host, port = flags.converted("address", _address, ("", 0))
    window_limits = (1, 24 * MAX_INTERVAL_MS)
    gpu = _gpu_source(flags)
    return ExporterSettings(
        counters_file=Path(flags.text("collectors")),
        counters_text=None,
        counters_map=flags.converted("configmap-data", parse_config_map, None),
        kubeconfig=flags.path("kubeconfig"),
        counters_mode="add" if flags.choice("counters-mode") == "add" else "replace",
        gpu=gpu,
        host_engine=flags.converted("remote-hostengine-info", parse_address, None),
        devices=flags.converted("devices", parse_devices, DeviceSelection()),
        interval_ms=_interval_ms(flags, "collect-interval", MIN_INTERVAL_MS, MAX_INTERVAL_MS),
        stream_interval_ms=_interval_ms_or_none(
            flags, "stream-interval", MIN_INTERVAL_MS, MAX_INTERVAL_MS
        ),
        profiling_interval_ms=_interval_ms_or_none(flags, "profiling-interval", 0, MAX_INTERVAL_MS),
        record=flags.path("record"),
        styles=flags.converted("style", _styles, frozenset[Style]()),
        options=_family_options(flags, hostname, is_kubernetes=is_kubernetes),
        xid_window_ms=_interval_ms(flags, "xid-count-window-size", *window_limits),
        clock_window_ms=_interval_ms(flags, "clock-events-count-window-size", *window_limits),
        cluster=AzureCluster(
            flags.text("azure-cluster-id"),
            flags.text("azure-cluster-name"),
            gpu.vendor,
        ),
        jobs_folder=flags.path("hpc-job-mapping-dir"),
        pods=_pod_settings(flags) if is_kubernetes else None,
        host=host,
        port=port,
        is_socket_given=flags.boolean("web-systemd-socket"),
        web_config_file=flags.path("web-config-file"),
        web_users_folder=flags.path("web-users-folder"),
        has_open_probes=flags.boolean("web-open-probes"),
        is_debugging=flags.boolean("debug"),
        log_format=flags.choice("log-format"),
        notes=_notes(flags),
    )


def _gpu_source(flags: FlagReader) -> GpuSource:
    if flags.boolean("fake-gpus") and not flags.is_given("gpu"):
        return GpuSource("simulated")
    source = flags.converted("gpu", parse_gpu_source, GpuSource("simulated"))
    return replace(source, is_named=flags.is_given("gpu"))


def _family_options(flags: FlagReader, hostname: str, *, is_kubernetes: bool) -> FamilyOptions:
    node = (flags.variable("NODE_NAME") if is_kubernetes else "") or hostname
    is_unnamed = flags.boolean("no-hostname")
    return FamilyOptions(
        hostname="" if is_unnamed else node,
        hostname_labels=_HOSTNAME_LABELS[flags.choice("hostname-label")],
        names=_NAMES[flags.choice("names")],
        use_old_namespace=flags.boolean("use-old-namespace"),
        pod_uid=flags.boolean("kubernetes-enable-pod-uid"),
        virtual_gpus=flags.boolean("kubernetes-virtual-gpus"),
        claim_labels=flags.boolean("kubernetes-enable-dra"),
        pod_labels=flags.boolean("kubernetes-enable-pod-labels"),
        replace_blanks_in_model_name=flags.boolean("replace-blanks-in-model-name"),
        node_name=node,
        node_pool=flags.text("node-pool"),
    )


_NAMES: Mapping[str, Names] = {"4.8": "4.8", "4.9": "4.9", "both": "both"}
_HOSTNAME_LABELS: Mapping[str, tuple[str, ...] | None] = {
    "": None,
    "Hostname": ("Hostname",),
    "hostname": ("hostname",),
    "both": ("Hostname", "hostname"),
}


def _pod_settings(flags: FlagReader) -> PodLookupSettings:
    has_labels = flags.boolean("kubernetes-enable-pod-labels")
    patterns = flags.converted("kubernetes-pod-label-allowlist-regex", _patterns, tuple[str, ...]())
    return PodLookupSettings(
        socket=Path(flags.text("pod-resources-kubelet-socket").removeprefix("unix://")),
        proc_root=Path(flags.text("proc-root")),
        resource_names=flags.items("nvidia-resource-names"),
        label_patterns=(patterns or (".*",)) if has_labels else (),
        needs_api_server=has_labels or flags.boolean("kubernetes-enable-pod-uid"),
    )


_ACK_ALONE = (
    "--style ack: without --kubernetes nothing says which pod a process runs in, so there are no "
    "DCGM_CUSTOM_* series; the device series have ACK's labels"
)
_OF_PODS = (
    *("kubernetes-enable-pod-labels", "kubernetes-enable-pod-uid"),
    *("kubernetes-virtual-gpus", "kubernetes-enable-dra"),
)
_NO_ENGINE = "--remote-hostengine-info changes nothing: a host engine is asked with --gpu nvml"


def _notes(flags: FlagReader) -> tuple[str, ...]:
    """Return the notes of flags that change nothing. A wrong value of one is a mistake all the same."""
    for flag in FLAGS.values():
        if flag.no_effect and flags.is_given(flag.name):
            if flag.kind == "choice":
                flags.choice(flag.name)
            elif flag.kind == "duration":
                _interval_ms(flags, flag.name, 0, 24 * MAX_INTERVAL_MS)
    notes = flags.notes(skips_off=True)
    if not flags.boolean("kubernetes"):
        if not {"ack", "both"}.isdisjoint(flags.text("style").split(",")):
            notes = (*notes, _ACK_ALONE)
        idle = (name for name in _OF_PODS if flags.boolean(name))
        notes = (*notes, *(f"--{name} changes nothing without --kubernetes" for name in idle))
    if flags.text("remote-hostengine-info") and flags.text("gpu") != "nvml":
        notes = (*notes, _NO_ENGINE)
    return notes


def _interval_ms_or_none(flags: FlagReader, name: str, at_least: int, at_most: int) -> int | None:
    return _interval_ms(flags, name, at_least, at_most) if flags.text(name) else None


def _interval_ms(flags: FlagReader, name: str, at_least: int, at_most: int) -> int:
    return flags.converted(name, lambda text: _duration_ms(text, at_least, at_most), at_least)


def _duration_ms(text: str, at_least: int, at_most: int) -> int:
    """Return milliseconds; a bare number is one of them, as upstream."""
    stripped = text.strip()
    if re.fullmatch(r"[0-9]{1,12}", stripped):
        milliseconds = int(stripped)
    else:
        try:
            milliseconds = parse_duration_ms(stripped)
        except ValueError:
            raise ValueError(
                f"found {text!r}, expected milliseconds or a duration such as 1s or 500ms"
            ) from None
    if not at_least <= milliseconds <= at_most:
        raise ValueError(f"found {text!r}, expected {at_least} to {at_most} milliseconds")
    return milliseconds


def _styles(text: str) -> frozenset[Style]:
    names = {part.strip() for part in text.split(",")}
    if "both" in names:
        names = (names - {"both"}) | {"dcgm", "ack"}
    if names - {"dcgm", "ack"}:
        raise ValueError(f"found {text!r}, expected one or several of: dcgm, ack, both")
    styles: tuple[Style, ...] = ("dcgm", "ack")
    return frozenset(style for style in styles if style in names)


def _patterns(text: str) -> tuple[str, ...]:
    patterns = tuple(part.strip() for part in text.split(",") if part.strip())
    if not patterns:
        return ()
    from gpuscale.base.regex import compile_re2

    for pattern in patterns:
        try:
            compile_re2(pattern)
        except ValueError as error:
            raise ValueError(f"found {pattern!r}, {error}") from None
    return patterns


def _address(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:(\[[0-9a-fA-F:.%]+\]|[^:\[\]]*):)?([0-9]{1,5})", text)
    if match is None or int(match[2]) > 65_535:
        raise ValueError(f"found {text!r}, expected [HOST]:PORT such as :9400 or 127.0.0.1:9400")
    return (match[1] or "").strip("[]"), int(match[2])
