"""What the node agent was asked to do: flags, variables and files to settings, with all errors together."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuscale.agent.attribution.settings import AttributionSettings
from gpuscale.agent.dcgm.address import parse_address
from gpuscale.agent.exporter.config_map import ConfigMapName, parse_config_map
from gpuscale.agent.exporter.counters_file import Mode
from gpuscale.agent.exporter.devices import DeviceSelection, parse_devices
from gpuscale.agent.exporter.families.azure import AzureCluster
from gpuscale.agent.exporter.gpu_source import GpuSource, parse_gpu_source
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.formats.styles import Style
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.agent.panels import (
    CONFIG_FILE,
    HOSTNAME,
    INTERVAL_MS,
    KUBERNETES,
    LOGGING,
    MAX_WINDOW_MS,
    READINGS,
    SERIES,
    SERVING,
    SETTINGS_FILE,
    WITHOUT_EFFECT,
    milliseconds,
)
from gpuscale.base.flags import FILE_FLAG, FileText, Flag, FlagReader
from gpuscale.base.settings import (
    PATH,
    SWITCH,
    Reading,
    chosen,
    converted,
    flags_of,
    groups_of,
    made,
    part,
    read,
    reader_of,
)

_WORDS = {**dict.fromkeys(("y", "yes", "on"), True), **dict.fromkeys(("n", "no", "off"), False)}
"""Booleans that dcgm-exporter's environment variables may have."""
_MODES: Reading[Mode] = chosen({"replace": "replace", "add": "add"})


def _gpu_source(flags: FlagReader) -> GpuSource:
    if flags.boolean("fake-gpus") and not flags.is_given("gpu"):
        return GpuSource("simulated")
    source = flags.converted("gpu", parse_gpu_source, GpuSource("simulated"))
    return replace(source, is_named=flags.is_given("gpu"))


def _styles(text: str) -> frozenset[Style]:
    names = {part.strip() for part in text.split(",")}
    if "both" in names:
        names = (names - {"both"}) | {"dcgm", "ack"}
    if names - {"dcgm", "ack"}:
        raise ValueError(f"found {text!r}, expected one or several of: dcgm, ack, both")
    styles: tuple[Style, ...] = ("dcgm", "ack")
    return frozenset(style for style in styles if style in names)


def _attribution(flags: FlagReader) -> AttributionSettings | None:
    return read(AttributionSettings, flags) if flags.boolean("kubernetes") else None


@dataclass(frozen=True, slots=True)
class ReadyTaint:
    """The start-up taint that is taken off, and its node."""

    key: str
    """All taints with this key are meant, whatever their values and effects."""
    node: str


def _startup_key(text: str) -> str:
    from gpuscale.base.objects.taints import parse_startup_key  # most agents have none

    return parse_startup_key(text) if text else ""


def _ready_taint(flags: FlagReader) -> ReadyTaint | None:
    key = flags.converted("ready-taint", _startup_key, "")
    return ReadyTaint(key, flags.variable("NODE_NAME") or flags.variable(HOSTNAME)) if key else None


def _address(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:(\[[0-9a-fA-F:.%]+\]|[^:\[\]]*):)?([0-9]{1,5})", text)
    if match is None or int(match[2]) > 65_535:
        raise ValueError(f"found {text!r}, expected [HOST]:PORT such as :9400 or 127.0.0.1:9400")
    return (match[1] or "").strip("[]"), int(match[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterSettings:
    """The configuration that a node agent starts with."""

    counters_file: Path = READINGS.option(
        converted(Path, Path()),
        "collectors",
        "Counters file (CSV). Where dcgm-exporter's image has one at that path, a missing file is that list.",
        "/etc/dcgm-exporter/default-counters.csv",
        alias="f",
        env="DCGM_EXPORTER_COLLECTORS",
    )
    counters_mode: Mode = READINGS.option(
        _MODES,
        "counters-mode",
        "Whether a counters file replaces the built-in list or adds to it.",
        "replace",
        env="GPUSCALE_EXPORTER_COUNTERS_MODE",
        is_ours=True,
    )
    counters_map: ConfigMapName | None = READINGS.option(
        converted(parse_config_map, None),
        "configmap-data",
        "NAMESPACE:NAME of a ConfigMap whose key metrics holds counters; asks the API server, every 30 s.",
        "none",
        alias="m",
        env="DCGM_EXPORTER_CONFIGMAP_DATA",
    )
    """Where counters come from instead of the file; None is the file."""
    counters_text: tuple[str, str] | None = None
    """Counters that a configuration file lists, and its name; None where they come from elsewhere."""
    gpu: GpuSource = made(
        _gpu_source,
        READINGS.flag(
            "gpu",
            "Where readings come from: nvml, amd, simulated[:MODEL[:COUNT]] or replay:FILE.",
            default="nvml",
            env="GPUSCALE_EXPORTER_GPU",
            is_ours=True,
        ),
        READINGS.flag(
            "fake-gpus",
            "Simulated GPUs, the same as --gpu simulated.",
            "bool",
            "false",
            env="DCGM_EXPORTER_USE_FAKE_GPUS",
        ),
    )
    devices: DeviceSelection = READINGS.option(
        converted(parse_devices, DeviceSelection()),
        "devices",
        "f: each GPU and its MIG instances; g[:0,1,3-5]: GPUs; i[:0,2]: instances; g…+i….",
        "f",
        alias="d",
        env="DCGM_EXPORTER_DEVICES_STR",
    )
    host_engine: str | None = READINGS.option(
        converted(parse_address, None),
        "remote-hostengine-info",
        "HOST[:PORT] or unix:///PATH of a DCGM host engine, for profiling counters that NVML does not have.",
        alias="r",
        env="DCGM_REMOTE_HOSTENGINE_INFO",
    )
    """As `HOST:PORT` or a socket's path; None asks none."""
    interval_ms: int = READINGS.option(
        INTERVAL_MS,
        "collect-interval",
        "Time between collects: milliseconds, or a duration such as 1s.",
        "30000",
        alias="c",
        env="DCGM_EXPORTER_INTERVAL",
    )
    stream_interval_ms: int | None = READINGS.option(
        INTERVAL_MS.unless_empty(),
        "stream-interval",
        "Time between collects while the stream has subscribers; from 100 (ms) on.",
        env="GPUSCALE_EXPORTER_STREAM_INTERVAL",
        is_ours=True,
    )
    record: Path | None = READINGS.option(
        PATH,
        "record",
        "Write every reading to this file, for --gpu replay:FILE.",
        env="GPUSCALE_EXPORTER_RECORD",
        is_ours=True,
    )
    styles: frozenset[Style] = SERIES.option(
        converted(_styles, frozenset(), "choice"),
        "style",
        "Series of dcgm-exporter (dcgm), of Alibaba's ACK (ack), or both (dcgm,ack).",
        "dcgm",
        choices=("dcgm", "ack", "both"),
        env="GPUSCALE_EXPORTER_STYLE",
        is_ours=True,
    )
    attribution: AttributionSettings | None = made(
        _attribution,
        KUBERNETES.flag(
            "kubernetes",
            "Tie GPUs to pods.",
            "bool",
            "false",
            key="enabled",
            alias="k",
            env="DCGM_EXPORTER_KUBERNETES",
        ),
        *flags_of(AttributionSettings),
    )
    """None leaves GPUs without pods."""
    options: FamilyOptions = part(FamilyOptions)
    nvml: NvmlSettings = part(NvmlSettings)
    cluster: AzureCluster = part(AzureCluster)
    jobs_folder: Path | None = SERIES.option(
        PATH,
        "hpc-job-mapping-dir",
        "Folder with one file of job ids per GPU, for the label hpc_job.",
        env="DCGM_HPC_JOB_MAPPING_DIR",
    )
    kubeconfig: Path | None = KUBERNETES.option(
        PATH,
        "kubeconfig",
        "Kubeconfig to ask the API server with; the pod's service account if empty.",
        env="GPUSCALE_EXPORTER_KUBECONFIG",
        is_ours=True,
    )
    ready_taint: ReadyTaint | None = made(
        _ready_taint,
        KUBERNETES.flag(
            "ready-taint",
            "Key of a start-up taint that is taken off this node, once, when every GPU answers and "
            "Kubernetes has GPUs of it to give; asks the API server for the node NODE_NAME.",
            env="GPUSCALE_EXPORTER_READY_TAINT",
            is_ours=True,
        ),
    )
    """None leaves the node's taints alone."""
    address: tuple[str, int] = SERVING.option(
        converted(_address, ("", 0)),
        "address",
        "[HOST]:PORT to listen on.",
        ":9400",
        alias="a",
        env="DCGM_EXPORTER_LISTEN",
    )
    web_config_file: Path | None = SERVING.option(
        PATH,
        "web-config-file",
        "TLS and basic authentication, in the form of Prometheus' exporters.",
        env="DCGM_EXPORTER_WEB_CONFIG_FILE",
    )
    web_users_folder: Path | None = SERVING.option(
        PATH,
        "web-users-folder",
        "Folder with a file for each user of basic authentication: its name is the user's, its content a "
        "bcrypt hash; read again when it changes.",
        env="GPUSCALE_EXPORTER_WEB_USERS_FOLDER",
        is_ours=True,
    )
    """Beside the users of the file."""
    has_open_probes: bool = SERVING.option(
        SWITCH,
        "web-open-probes",
        "Answer /health and /readyz without a password, for probes.",
        "false",
        env="GPUSCALE_EXPORTER_WEB_OPEN_PROBES",
        is_ours=True,
    )
    is_socket_given: bool = SERVING.option(
        SWITCH,
        "web-systemd-socket",
        "Listen on the sockets that systemd hands over.",
        "false",
        env="DCGM_EXPORTER_SYSTEMD_SOCKET",
    )
    is_debugging: bool = LOGGING.option(
        SWITCH, "debug", "Log more.", "false", env="DCGM_EXPORTER_DEBUG"
    )
    log_format: str = LOGGING.option(
        chosen({"text": "text", "json": "json"}),
        "log-format",
        "Form of the log.",
        "text",
        key="format",
        env="DCGM_EXPORTER_LOG_FORMAT",
    )
    notes: tuple[str, ...] = ()
    """What to say of flags that change nothing here."""


GROUPS: Mapping[str, tuple[Flag, ...]] = groups_of(
    ExporterSettings, more=(CONFIG_FILE, SETTINGS_FILE, *WITHOUT_EFFECT)
)
"""All flags by the title of their panel: dcgm-exporter's, and ours."""
FLAGS: Mapping[str, Flag] = {flag.name: flag for flags in GROUPS.values() for flag in flags}
COMMON = frozenset(
    {
        FILE_FLAG,
        "collectors",
        "gpu",
        "devices",
        "remote-hostengine-info",
        "collect-interval",
        "stream-interval",
        "record",
        "names",
        "hostname-label",
        "node-pool",
        "kubernetes",
        "kubernetes-enable-pod-labels",
        "pod-resources-kubelet-socket",
        "address",
        "web-config-file",
        "debug",
        "log-format",
    }
)
"""Flags that most users need; `--help` shows these."""


def read_settings(
    given: Mapping[str, Sequence[str]],
    environment: Mapping[str, str],
    hostname: str,
    file: Mapping[str, FileText] | None = None,
) -> ExporterSettings:
    """Return the settings of flags, of variables, and of the files with settings that they name.

    Args:
        given: the texts of each flag that was given, by name without dashes.
        environment: of the process.
        hostname: of this machine; `NODE_NAME` stands in for it under Kubernetes.
        file: what a file with settings says that was read already.

    Raises:
        UsageError: at least one value is wrong; all are reported, one per line.
        ConfigError: a file is not of its format, or the one with settings can't be read.
        NotFoundError: dcgm-exporter's can't be read.
    """
    flags = reader_of(FLAGS, given, {**environment, HOSTNAME: hostname}, _WORDS, file)
    notes: tuple[str, ...] = ()
    counters_text = None
    if (path := flags.path(CONFIG_FILE.name)) is not None:
        from gpuscale.agent.exporter.config_file import read_config_file  # YAML takes memory

        config = read_config_file(path)
        notes = config.notes
        more = {}
        if config.interval_ms is not None:
            more["collect-interval"] = FileText((str(config.interval_ms),), str(path))
        has_counters = flags.is_given("collectors") or flags.text("configmap-data") != "none"
        if not has_counters:
            if config.counters_path:
                more["collectors"] = FileText((config.counters_path,), str(path))
            if config.counters_text is not None:
                counters_text = (config.counters_text, str(path))
        flags = flags.with_fallback(more)
    notes = (*_notes(flags), *notes)
    settings = read(ExporterSettings, flags, counters_text=counters_text, notes=notes)
    flags.finish()
    return settings


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
    """Return notes on flags without effect; an invalid value of such a flag is still an error."""
    for flag in WITHOUT_EFFECT:
        if flags.is_given(flag.name):
            if flag.kind == "choice":
                flags.choice(flag.name)
            elif flag.kind == "duration":
                milliseconds(0, MAX_WINDOW_MS).read(flags, flag.name)
    notes = flags.notes(skips_off=True)
    if not flags.boolean("kubernetes"):
        if not {"ack", "both"}.isdisjoint(flags.text("style").split(",")):
            notes = (*notes, _ACK_ALONE)
        idle = (name for name in _OF_PODS if flags.boolean(name))
        notes = (*notes, *(f"--{name} changes nothing without --kubernetes" for name in idle))
    if flags.text("remote-hostengine-info") and flags.text("gpu") != "nvml":
        notes = (*notes, _NO_ENGINE)
    return notes
