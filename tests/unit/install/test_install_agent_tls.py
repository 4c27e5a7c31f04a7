"""TLS and users of the node agents: what is refused, and how each kind of Prometheus gets CA and password."""

import pytest
import yaml
from install_values import container, one, rendered, scale, values

from gpuscale.base.errors import ConfigError
from gpuscale.ops.install.values import parse_values

TLS = {"tls": {"secret": "agent-tls"}}
BOTH = {**TLS, "basicAuth": {"usersSecret": "users", "clientSecret": "scraper"}}
FOLDER = "/etc/prometheus/node-agent"
NAME = "gpuscale-node-agent.gpuscale.svc"


def objects(agent, **spec):
    return rendered(values(agent=agent, **spec))


@pytest.mark.parametrize(
    ("agent", "more", "message"),
    [
        (
            "{tls: {secret: a}, basicAuth: {usersSecret: b}}",
            "",
            "found one of basicAuth.usersSecret and basicAuth.clientSecret, expected both or none",
        ),
        (
            "{basicAuth: {usersSecret: a, clientSecret: b}}",
            "",
            "found basicAuth without tls.secret, expected the Secret with a certificate: without TLS "
            "everyone on the way could read the password",
        ),
        ("{tls: {serverName: a}}", "", "found tls.serverName without tls.secret, expected both"),
        ("{tls: {secret: A_B}}", "", "found 'A_B', expected a name of lower-case letters"),
        (
            "{tls: {secret: a}}",
            ", prometheus: {kind: azure, identity: 3f1f1f1f-0000-4000-8000-000000000000, url: https://a}",
            "found agent.tls with prometheus.kind azure, expected another kind: AKS' managed Prometheus "
            "does not get Secrets of this namespace",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(agent: str, more: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_values(f"spec: {{provider: aks, agent: {agent}{more}}}", "values.yaml")
    assert message in str(caught.value)


def test_without_it_agents_serve_plain_http() -> None:
    found = objects({})
    text = str(container(one(found, "DaemonSet", "node-agent")))
    assert "--web-" not in text
    assert "HTTPS" not in text
    assert "agent-access" not in str(found)


@pytest.mark.parametrize("kind", ["own", "plain"])
@pytest.mark.parametrize("agent", [TLS, BOTH], ids=["TLS", "TLS and users"])
def test_jobs_check_the_certificate_and_show_a_password(kind: str, agent) -> None:
    url = {} if kind == "own" else {"url": "http://p.m.svc:9090"}
    found = objects(agent, prometheus={"kind": kind, **url})
    if kind == "own":
        text = one(found, "ConfigMap", "-prometheus")["data"]["prometheus.yml"]
        jobs = yaml.safe_load(text)["scrape_configs"]
    else:
        files = [each["data"] for each in found if each["kind"] == "ConfigMap"]
        (jobs,) = [
            yaml.safe_load(each["scrape-config.yaml"])
            for each in files
            if "scrape-config.yaml" in each
        ]
    (job,) = [each for each in jobs if each["job_name"] == "gpuscale-node-agent"]
    assert job["scheme"] == "https"
    assert job["tls_config"] == {"ca_file": f"{FOLDER}/ca.crt", "server_name": NAME}
    user = {"username_file": f"{FOLDER}/username", "password_file": f"{FOLDER}/password"}
    assert job.get("basic_auth") == (user if agent is BOTH else None)
    # Jobs for annotated Services know neither.
    service = one(found, "Service", "node-agent")
    assert "annotations" not in service["metadata"]


def test_an_operators_monitor_names_the_secrets() -> None:
    prometheus = {"kind": "operator", "url": "http://p.m.svc:9090"}
    given = {**BOTH, "tls": {"secret": "agent-tls", "serverName": "agents.example"}}
    found = objects(given, prometheus=prometheus)
    monitor = one(found, "ServiceMonitor", "node-agent")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"] == {
        "ca": {"secret": {"name": "agent-tls", "key": "ca.crt"}},
        "serverName": "agents.example",
    }
    assert endpoint["basicAuth"] == {
        "username": {"name": "scraper", "key": "username"},
        "password": {"name": "scraper", "key": "password"},
    }


def test_the_key_of_the_agents_goes_to_the_agents_alone() -> None:
    for found in (objects(BOTH), objects(BOTH, metricsApi={"source": "streams"})):
        for each in found:
            template = each.get("spec", {}).get("template")
            if template and each["metadata"]["name"] != "gpuscale-node-agent":
                volumes = template["spec"].get("volumes", [])
                assert "tls.key" not in str([v for v in volumes if "agent-tls" in str(v)])
                assert "'users'" not in str(volumes)


@pytest.mark.parametrize("agent", [TLS, BOTH], ids=["TLS", "TLS and users"])
def test_what_follows_streams_knows_ca_name_and_user(agent) -> None:
    scaled = [scale(autoscaler="keda")]
    found = objects(agent, metricsApi={"source": "streams"}, scale=scaled)
    user = [
        "--agent-username=$(AGENT_USERNAME)",
        "--agent-password-file=/etc/gpuscale/agents/password",
    ]
    expected = [
        "--agent-ca-file=/etc/gpuscale/agents/ca.crt",
        f"--agent-server-name={NAME}",
        *(user if agent is BOTH else ()),
    ]
    for name in ("metrics-api", "scaler"):
        follower = container(one(found, "Deployment", name))
        given = [each for each in follower["args"] if each.startswith("--agent-")]
        assert [each for each in given if "--agent-service" not in each] == expected
        variables = [each["name"] for each in follower.get("env", ())]
        assert ("AGENT_USERNAME" in variables) is (agent is BOTH)
