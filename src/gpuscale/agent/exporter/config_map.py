"""Counters from a ConfigMap, which dcgm-exporter's Helm chart makes of its `customMetrics`.

Source: NVIDIA dcgm-exporter 4.8.2, internal/pkg/counters/counter_config.go (`NAMESPACE:NAME`, key
    `metrics`). Difference: it is read again every 30 s, and what was read last holds while the API server is
    silent.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.base.errors import NotFoundError

if TYPE_CHECKING:
    from gpuscale.kube.client import KubeSettings

KEY = "metrics"
_NAME = re.compile(r"([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?):([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)")


@dataclass(frozen=True, slots=True)
class ConfigMapName:
    """Which ConfigMap."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"ConfigMap {self.namespace}/{self.name}"


def parse_config_map(text: str) -> ConfigMapName | None:
    """Return the ConfigMap that `NAMESPACE:NAME` names; None for `none` and nothing.

    Raises:
        ValueError: not of the form.
    """
    if text in ("", "none"):
        return None
    found = _NAME.fullmatch(text)
    if found is None:
        raise ValueError(f"found {text!r}, expected NAMESPACE:NAME of a ConfigMap")
    return ConfigMapName(found[1], found[3])


async def read_config_map(name: ConfigMapName, server: "KubeSettings") -> str:
    """Return the counters that a ConfigMap holds.

    Raises:
        NotFoundError: it can't be read, or has no such key.
        UsageError: there is no usable kubeconfig or service account.
        ConfigError: the kubeconfig is no YAML.
    """
    from gpuscale.kube.client import ApiStatusError, ApiUnreachableError, KubeClient

    client = KubeClient(server)
    try:
        path = f"/api/v1/namespaces/{name.namespace}/configmaps/{name.name}"
        body = await client.get(path)
    except (ApiStatusError, ApiUnreachableError) as error:
        raise NotFoundError(f"can't read {name}: {error}") from None
    finally:
        await client.close()
    data = body.get("data")
    text = data.get(KEY) if isinstance(data, dict) else None
    if not isinstance(text, str):
        raise NotFoundError(f"{name} has no key {KEY!r}, under which the counters are expected")
    return text
