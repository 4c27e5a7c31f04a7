"""What the node agent was asked to do: flags and environment to settings, with every fault told at once."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from gpuscale.core.durations import parse_duration_ms
from gpuscale.core.errors import UsageError
from gpuscale.exporter.azure import AzureCluster
from gpuscale.exporter.counters_file import Mode
from gpuscale.exporter.devices import DeviceSelection, parse_devices
from gpuscale.exporter.flags import FLAGS, Flag
from gpuscale.gpu.families import FamilyOptions
from gpuscale.gpu.model_table import MODELS
from gpuscale.gpu.models import expected_models, find_model
from gpuscale.gpu.names import Names
from gpuscale.gpu.styles import Style

MIN_INTERVAL_MS = 100
MAX_INTERVAL_MS = 3_600_000
MAX_SIMULATED_GPUS = 256
DEFAULT_MODEL = "NVIDIA H200"
DEFAULT_GPUS = 1

_TRUE = ("1", "t", "true", "y", "yes", "on")
_FALSE = ("0", "f", "false", "n", "no", "off")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class GpuSource:
    """Where readings come from."""

    kind: Literal["nvml", "amd", "simulated", "replay"]
    model: str = DEFAULT_MODEL
    """Of simulated GPUs."""
    count: int = DEFAULT_GPUS
    """Of simulated GPUs."""
    file: str = ""
    """Of a replay."""
    is_named: bool = True
    """Whether it was asked for; otherwise it is a guess that has to work at once."""


@dataclass(frozen=True, slots=True)
class PodSettings:
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
    """All that a node agent is told when it starts."""

    counters_file: Path
    is_counters_file_named: bool
    """False for the default place, which need not be there."""
    counters_mode: Mode
    gpu: GpuSource
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
    pods: PodSettings | None
    """None leaves GPUs without pods."""
    host: str
    port: int
    is_socket_given: bool
    """Whether systemd hands the sockets over."""
    web_config_file: Path | None
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
        UsageError: at least one value is wrong; all are told, one per line.
    """
    asked = _Asked(given, environment)
    settings = _settings(asked, hostname)
    if asked.faults:
        raise UsageError("\n".join(asked.faults))
    return settings


class _Asked:
    """Texts of flags and variables, converted one by one; faults are collected."""

    def __init__(self, given: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._given = given
        self._environment = environment
        self.faults: list[str] = []

    def is_given(self, name: str) -> bool:
        return name in self._given or bool(self._environment.get(FLAGS[name].env))

    def variable(self, name: str) -> str:
        return self._environment.get(name, "")

    def text(self, name: str) -> str:
        if name in self._given:
            return self._given[name]
        return self._environment.get(FLAGS[name].env) or FLAGS[name].default

    def converted(self, name: str, convert: Callable[[str], _Value], fallback: _Value) -> _Value:
        """Return a converted text; where it is wrong, note it and return the fallback."""
        try:
            return convert(self.text(name))
        except ValueError as error:
            self.faults.append(f"{self._where(name)}: {error}")
            return fallback

    def boolean(self, name: str) -> bool:
        return self.converted(name, _boolean, fallback=False)

    def duration_ms(self, name: str, at_least: int, at_most: int) -> int:
        return self.converted(name, lambda text: _duration_ms(text, at_least, at_most), at_least)

    def duration_ms_or_none(self, name: str, at_least: int, at_most: int) -> int | None:
        return self.duration_ms(name, at_least, at_most) if self.text(name) else None

    def list(self, name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.text(name).split(",") if part.strip())

    def choice(self, name: str) -> str:
        flag = FLAGS[name]
        return self.converted(name, lambda text: _choice(text, flag), flag.default)

    def path(self, name: str) -> Path | None:
        text = self.text(name)
        return Path(text) if text else None

    def _where(self, name: str) -> str:
        return f"--{name}" if name in self._given else FLAGS[name].env


def _settings(asked: _Asked, hostname: str) -> ExporterSettings:
    is_kubernetes = asked.boolean("kubernetes")
    host, port = asked.converted("address", _address, ("", 0))
    window_limits = (1, 24 * MAX_INTERVAL_MS)
    gpu = _gpu_source(asked)
    return ExporterSettings(
        counters_file=Path(asked.text("collectors")),
        is_counters_file_named=asked.is_given("collectors"),
        counters_mode="add" if asked.choice("counters-mode") == "add" else "replace",
        gpu=gpu,
        devices=asked.converted("devices", parse_devices, DeviceSelection()),
        interval_ms=asked.duration_ms("collect-interval", MIN_INTERVAL_MS, MAX_INTERVAL_MS),
        stream_interval_ms=asked.duration_ms_or_none(
            "stream-interval", MIN_INTERVAL_MS, MAX_INTERVAL_MS
        ),
        profiling_interval_ms=asked.duration_ms_or_none("profiling-interval", 0, MAX_INTERVAL_MS),
        record=asked.path("record"),
        styles=asked.converted("style", _styles, frozenset[Style]()),
        options=_family_options(asked, hostname, is_kubernetes=is_kubernetes),
        xid_window_ms=asked.duration_ms("xid-count-window-size", *window_limits),
        clock_window_ms=asked.duration_ms("clock-events-count-window-size", *window_limits),
        cluster=AzureCluster(
            asked.text("azure-cluster-id"),
            asked.text("azure-cluster-name"),
            "amd" if gpu.kind == "amd" else "nvidia",
        ),
        pods=_pod_settings(asked) if is_kubernetes else None,
        host=host,
        port=port,
        is_socket_given=asked.boolean("web-systemd-socket"),
        web_config_file=asked.path("web-config-file"),
        is_debugging=asked.boolean("debug"),
        log_format=asked.choice("log-format"),
        notes=_notes(asked),
    )


def _gpu_source(asked: _Asked) -> GpuSource:
    if asked.boolean("fake-gpus") and not asked.is_given("gpu"):
        return GpuSource("simulated")
    source = asked.converted("gpu", parse_gpu_source, GpuSource("simulated"))
    return replace(source, is_named=asked.is_given("gpu"))


def _family_options(asked: _Asked, hostname: str, *, is_kubernetes: bool) -> FamilyOptions:
    node = (asked.variable("NODE_NAME") if is_kubernetes else "") or hostname
    is_unnamed = asked.boolean("no-hostname")
    return FamilyOptions(
        hostname="" if is_unnamed else node,
        hostname_labels=_HOSTNAME_LABELS[asked.choice("hostname-label")],
        names=_NAMES[asked.choice("names")],
        use_old_namespace=asked.boolean("use-old-namespace"),
        pod_uid=asked.boolean("kubernetes-enable-pod-uid"),
        pod_labels=asked.boolean("kubernetes-enable-pod-labels"),
        replace_blanks_in_model_name=asked.boolean("replace-blanks-in-model-name"),
        node_name=node,
        node_pool=asked.text("node-pool"),
    )


_NAMES: Mapping[str, Names] = {"4.8": "4.8", "4.9": "4.9", "both": "both"}
_HOSTNAME_LABELS: Mapping[str, tuple[str, ...] | None] = {
    "": None,
    "Hostname": ("Hostname",),
    "hostname": ("hostname",),
    "both": ("Hostname", "hostname"),
}


def _pod_settings(asked: _Asked) -> PodSettings:
    has_labels = asked.boolean("kubernetes-enable-pod-labels")
    patterns = asked.converted("kubernetes-pod-label-allowlist-regex", _patterns, tuple[str, ...]())
    return PodSettings(
        socket=Path(asked.text("pod-resources-kubelet-socket").removeprefix("unix://")),
        proc_root=Path(asked.text("proc-root")),
        resource_names=asked.list("nvidia-resource-names"),
        label_patterns=(patterns or (".*",)) if has_labels else (),
        needs_api_server=has_labels or asked.boolean("kubernetes-enable-pod-uid"),
    )


def _notes(asked: _Asked) -> tuple[str, ...]:
    for flag in FLAGS.values():
        if flag.no_effect and asked.is_given(flag.name):
            _checked_anyway(asked, flag)
    return tuple(
        f"--{flag.name} changes nothing: {flag.no_effect}"
        for flag in FLAGS.values()
        if flag.no_effect and asked.is_given(flag.name) and not _is_off(asked, flag)
    )


def _is_off(asked: _Asked, flag: Flag) -> bool:
    return flag.kind == "bool" and not asked.boolean(flag.name)


def _checked_anyway(asked: _Asked, flag: Flag) -> None:
    """Note a wrong value of a flag that changes nothing: it is a mistake all the same."""
    if flag.kind == "choice":
        asked.choice(flag.name)
    elif flag.kind == "duration":
        asked.duration_ms(flag.name, 0, 24 * MAX_INTERVAL_MS)


def parse_gpu_source(text: str) -> GpuSource:
    """Return the source of readings that a text such as `simulated:NVIDIA H200:8` names.

    Raises:
        ValueError: not of the form.
    """
    kind, _, rest = text.partition(":")
    match kind:
        case "nvml" | "amd" if not rest:
            return GpuSource(kind)
        case "simulated":
            return _simulated(rest)
        case "replay" if rest:
            return GpuSource("replay", file=rest)
    raise ValueError(
        f"found {text!r}, expected nvml, amd, simulated[:MODEL[:COUNT]] or replay:FILE"
    )


def _simulated(rest: str) -> GpuSource:
    model, _, count_text = rest.partition(":")
    known = find_model(model or DEFAULT_MODEL, MODELS.values())
    if known is None:
        expected = expected_models(model, MODELS.values())
        raise ValueError(f"found the model {model!r}, expected {expected}")
    if not count_text:
        return GpuSource("simulated", known.name)
    count = int(count_text) if re.fullmatch(r"[0-9]{1,4}", count_text) else 0
    if not 1 <= count <= MAX_SIMULATED_GPUS:
        raise ValueError(f"found {count_text!r} GPUs, expected 1 to {MAX_SIMULATED_GPUS}")
    return GpuSource("simulated", known.name, count)


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"found {text!r}, expected true or false")


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


def _choice(text: str, flag: Flag) -> str:
    if text in flag.choices or text == flag.default:
        return text
    raise ValueError(f"found {text!r}, expected one of: {', '.join(flag.choices)}")


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
    from gpuscale.core.regex import compile_re2

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
