"""The default rules: GPUs, and the queues of model servers."""

from functools import lru_cache
from importlib.resources import files

from gpuscale.rules.config import AdapterConfig, load_rules
from gpuscale.rules.resources import KUBERNETES, ResourceMapper


def preset_text() -> str:
    """Return the preset as a rule file."""
    return files("gpuscale.rules").joinpath("preset.yaml").read_text(encoding="utf-8")


@lru_cache(maxsize=4)
def preset_config(mapper: ResourceMapper = KUBERNETES) -> AdapterConfig:
    """Return the preset's rules; a kind unknown to the cluster counts with its usual scope."""
    return load_rules(preset_text(), "<preset>", mapper.extended(*KUBERNETES.types))
