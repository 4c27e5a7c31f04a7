"""Settings of the servers in a values file: checked as the servers read them, and handed over unchanged."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuscale.base.errors import ConfigError
from gpuscale.ops.install.render import render
from gpuscale.ops.install.values import parse_values
from gpuscale.server.metricsapi.settings import read_settings
from gpuscale.server.scaler.settings import read_settings as read_scaler_settings


def rendered(spec: dict[str, Any]) -> dict[tuple[str, str], Any]:
    values = parse_values(yaml.safe_dump({"spec": spec}), "values.yaml")
    return {(each["kind"], each["metadata"]["name"]): each for each in render(values)}


def test_the_server_reads_what_the_values_say(tmp_path: Path) -> None:
    settings = {
        "metrics": {"valueMaxAge": "1m", "maxAge": "5m"},
        "serving": {"maxConnections": 100},
    }
    objects = rendered({"metricsApi": {"settings": settings}})
    text = objects["ConfigMap", "gpuscale-metrics-api"]["data"]["settings.yaml"]
    assert yaml.safe_load(text) == settings
    pod = objects["Deployment", "gpuscale-metrics-api"]["spec"]["template"]
    args = pod["spec"]["containers"][0]["args"]
    assert "--settings=/etc/gpuscale/rules/settings.yaml" in args
    assert "--metrics-relist-interval=15s" in args
    assert not [each for each in args if each.startswith("--metrics-max-age")]
    assert yaml.safe_load(pod["metadata"]["annotations"]["gpuscale.dev/settings"]) == settings
    (tmp_path / "settings.yaml").write_text(text)
    found = read_settings({"settings": [str(tmp_path / "settings.yaml")]})
    assert (found.max_value_age_s, found.max_age_s, found.serving.limits.total) == (60, 300, 100)


def test_without_settings_nothing_of_them_is_rendered() -> None:
    objects = rendered({})
    assert "settings.yaml" not in objects["ConfigMap", "gpuscale-metrics-api"]["data"]
    pod = objects["Deployment", "gpuscale-metrics-api"]["spec"]["template"]
    assert "annotations" not in pod["metadata"]
    assert not [each for each in pod["spec"]["containers"][0]["args"] if "--settings" in each]


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        (
            {"metrics": {"valueMaxAges": "1m"}},
            "found valueMaxAges, expected valueMaxAge",
        ),
        (
            {"metrics": {"valueMaxAge": "soon"}},
            "metrics.valueMaxAge: found 'soon', expected a duration",
        ),
        ({"serving": {"securePort": 7443}}, "serving.securePort: found it, expected nothing"),
        ({"prometheus": {"url": "http://p"}}, "prometheus.url: found it, expected nothing"),
        ({"metrics": {"printPreset": True}}, "metrics.printPreset: found it, expected nothing"),
        ({"streams": {"scrape": ["ftp:x"]}}, "streams.scrape: found 'ftp:x'"),
        ({"streams": {"storeRetention": "1h"}}, "with metricsApi.source prometheus"),
    ],
)
def test_what_the_server_would_refuse_is_refused_before(settings, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rendered({"metricsApi": {"settings": settings}})
    assert fault in str(caught.value)


def test_the_scaler_has_settings_of_its_own(tmp_path: Path) -> None:
    settings = {"limits": {"maxStreams": 16000}}
    scale = [
        {
            "workload": {"name": "llm", "namespace": "ml"},
            "signal": "vllm-waiting",
            "autoscaler": "keda",
            "target": 4,
            "maxReplicas": 4,
        }
    ]
    objects = rendered({"scaler": {"settings": settings}, "scale": scale})
    text = objects["ConfigMap", "gpuscale-metrics-api"]["data"]["scaler-settings.yaml"]
    (tmp_path / "settings.yaml").write_text(text)
    found = read_scaler_settings({"settings": [str(tmp_path / "settings.yaml")]})
    assert found.limits.streams == 16000
