"""The source of readings, parsed from `--gpu`."""

import re
from dataclasses import dataclass
from typing import Literal

from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.models import expected_models, find_model
from gpuscale.agent.gpu.reader import READER_PLUGINS, ReaderKind

MAX_SIMULATED_GPUS = 256
DEFAULT_MODEL = "NVIDIA H200"
DEFAULT_GPUS = 1

_KINDS = ("nvml", "amd", "simulated", "replay")


@dataclass(frozen=True, slots=True)
class GpuSource:
    """A source of readings."""

    kind: Literal["nvml", "amd", "simulated", "replay", "plugin"]
    model: str = DEFAULT_MODEL
    """Of simulated GPUs."""
    count: int = DEFAULT_GPUS
    """Of simulated GPUs."""
    file: str = ""
    """Of a replay."""
    plugin: ReaderKind | None = None
    argument: str = ""
    """Of a plug-in."""
    is_named: bool = True
    """Whether it was asked for; otherwise it is a guess that has to work at once."""

    @property
    def vendor(self) -> str:
        """The GPUs' vendor in lower case; NVIDIA for simulated GPUs."""
        if self.plugin is not None:
            return self.plugin.vendor
        return "amd" if self.kind == "amd" else "nvidia"


def parse_gpu_source(text: str) -> GpuSource:
    """Return the source of readings that a text such as `simulated:NVIDIA H200:8` names.

    Raises:
        ValueError: not of the form.
        PluginError: the plug-in that has the name can't be used.
    """
    kind, _, rest = text.partition(":")
    match kind:
        case "nvml" | "amd" if not rest:
            return GpuSource(kind)
        case "simulated":
            return _simulated(rest)
        case "replay" if rest:
            return GpuSource("replay", file=rest)
        case _ if kind not in _KINDS and (plugin := READER_PLUGINS.find(kind)):
            return GpuSource("plugin", plugin=plugin, argument=rest)
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
