"""Settings of the parts in a values file: checked as the programs read them, and handed over unchanged."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuscale.agent.exporter.settings import read_settings as read_agent_settings
from gpuscale.base.errors import ConfigError
from gpuscale.ops.install.rendering import render
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
        (
            {"streams": {"storeRetention": "1h"}},
            "metricsApi.settings.streams with values from prom",
        ),
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


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (
            {"scaler": {"settings": {"streams": {"storeRetention": "1h"}}}},
            "found scaler.settings.streams with values from prometheus, expected scaler.settings.prometheus",
        ),
        (
            {
                "scaler": {"settings": {"prometheus": {"timeout": "10s"}}},
                "metricsApi": {"source": "streams"},
            },
            "found scaler.settings.prometheus with values from streams, expected scaler.settings.streams",
        ),
        (
            {
                "scaler": {"settings": {"streams": {"storeRetention": "1h"}}},
                "metricsApi": {"source": "streams", "enabled": False},
            },
            "found scaler.settings.streams with values from prometheus, expected scaler.settings.prometheus",
        ),
    ],
)
def test_settings_of_a_source_that_the_scaler_does_not_have_are_refused(spec, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rendered(spec)
    assert fault in str(caught.value)


def test_the_agent_has_settings_of_its_own(tmp_path: Path) -> None:
    settings = {
        "readings": {"streamInterval": "100ms", "devices": "g:0,1"},
        "series": {"names": 4.9, "xidCountWindowSize": 600_000},
        "kubernetes": {"enablePodLabels": True, "podLabelAllowlistRegex": ["^app$", "team"]},
    }
    objects = rendered({"agent": {"settings": settings, "attribution": "processes"}})
    text = objects["ConfigMap", "gpuscale-node-agent"]["data"]["settings.yaml"]
    assert yaml.safe_load(text) == settings
    pod = objects["DaemonSet", "gpuscale-node-agent"]["spec"]["template"]
    assert yaml.safe_load(pod["metadata"]["annotations"]["gpuscale.dev/settings"]) == settings
    container = pod["spec"]["containers"][0]
    assert "--settings=/etc/gpuscale/settings/settings.yaml" in container["args"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "settings"]
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == "settings"]
    assert mount["mountPath"] == "/etc/gpuscale/settings"
    assert volume["configMap"]["name"] == "gpuscale-node-agent"
    (tmp_path / "settings.yaml").write_text(text)
    given = {"settings": [str(tmp_path / "settings.yaml")], "kubernetes": ["true"]}
    found = read_agent_settings(given, {}, "node-1")
    assert (found.stream_interval_ms, found.nvml.xid_window_ms) == (100, 600_000)
    assert found.options.names == "4.9"
    assert found.attribution is not None
    assert found.attribution.kubernetes is not None
    assert found.attribution.kubernetes.pod_labels == ("^app$", "team")


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"readings": {"streamIntervals": 100}}, "found streamIntervals, expected streamInterval"),
        (
            {"readings": {"streamInterval": 50}},
            "readings.streamInterval: found '50', expected 100 to 3600000 milliseconds",
        ),
        (
            {"series": {"names": 4.7}},
            "series.names: found '4.7', expected one of: 4.8, 4.9, both",
        ),
        ({"serving": {"webReadTimeout": "5s"}}, "found webReadTimeout, expected"),
        (
            {"readings": {"collectInterval": "5s"}},
            "readings.collectInterval: found it, expected nothing: --collect-interval is the installation's",
        ),
        (
            {"kubernetes": {"enabled": False}},
            "kubernetes.enabled: found it, expected nothing: --kubernetes is the installation's own",
        ),
        (
            {"readings": {"configFile": "/etc/x.yaml"}},
            "expected nothing: --config-file names a file, which only the pod could read",
        ),
        (
            {"kubernetes": {"podLabelAllowlistRegex": "("}},
            "kubernetes.podLabelAllowlistRegex: found '('",
        ),
        (
            {"kubernetes": {"enablePodLabels": True}},
            "found settings.kubernetes.enablePodLabels with attribution allocations, expected processes",
        ),
    ],
)
def test_what_the_agent_would_refuse_is_refused_before(settings, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rendered({"agent": {"settings": settings}})
    assert fault in str(caught.value)
