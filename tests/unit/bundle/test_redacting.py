"""What leaves a cluster has none of the secrets that were planted, and still says what it is about."""

import json

import pytest

from gpuscale.ops.bundle.archive import Archive
from gpuscale.ops.bundle.redacting import REDACTED, Redactor

PEM = "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUX3\n-----END CERTIFICATE-----"
JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJzeXN0ZW06c2EifQ.c2lnbmF0dXJl"
TEXTS = [
    ("GET http://admin:hunter2!x@prometheus:9090/api 200", "hunter2!x"),
    ("amqp://svc:p@ss/w?rd#1@rabbit.prod:5672/vhost", "p@ss/w?rd#1"),
    ("postgres://only-a-user-token@db/prod", "only-a-user-token"),
    ("Authorization: Bearer 0123abcdefg", "0123abcdefg"),
    ('"authorization": "Basic dXNlcjpwYXNz"', "dXNlcjpwYXNz"),
    ("curl -H 'X-Api-Key: kk-123' x", "kk-123"),
    ("Cookie: a=b; session=qwertz", "qwertz"),
    (f"msg={JWT} done", JWT),
    ("key AKIAIOSFODNN7EXAMPLE here", "AKIAIOSFODNN7EXAMPLE"),
    ("use hf_AbCdEfGhIjKlMnOpQr to pull", "hf_AbCdEfGhIjKlMnOpQr"),
    ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "16C7e42F292c6912E"),
    ("--api-key sk-abc --port 80", "sk-abc"),
    ("--hf-token=hunter2 --model x", "hunter2"),
    ("export DB_PASSWORD='two words'; run", "two words"),
    ('password: "with \\" quote"', "quote"),
    ('{\\"password\\":\\"escaped1\\",\\"user\\":\\"x\\"}', "escaped1"),
    ("clientSecret: abc\nnext: 1", "abc"),
    ("password: |\n  block1\n  block2\n", "block1"),
    ("AccountKey=abc==;EndpointSuffix=core", "abc=="),
    ("https://x.blob.core/c?sv=1&sig=AbC%2F1&se=2", "AbC%2F1"),
    (f"ca: {PEM} end", "MIIBszCCAVmg"),
    ("certificate-authority-data: LS0tLS1CRUdJTiBDRVJU", "LS0tLS1CRUdJTiBDRVJU"),
    ("client-key-data: MHcCAQEEIBkg", "MHcCAQEEIBkg"),
    ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "bPxRfiCY"),
    ("trace 4bf92f3577b34da6a3ce929d0e0e4736", "4bf92f3577b34da6"),
    ("admin:$2y$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy", "N9qo8uLOickgx2ZM"),
]


@pytest.mark.parametrize(("text", "secret"), TEXTS)
def test_no_secret_stays_in_a_text(text: str, secret: str) -> None:
    found = Redactor().text(text)
    assert secret not in found
    assert REDACTED in found


@pytest.mark.parametrize(
    "text",
    [
        "prompt_tokens_total 5; max_tokens: 512; --tokenizer=meta-llama/Llama-3-8B",
        "nvcr.io/nvidia/k8s/dcgm-exporter@sha256:0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0",
        'sum by (pod) (rate(DCGM_FI_DEV_GPU_UTIL{namespace="ml"}[1m]))',
        "GPU-5b3a1c2d-1234-5678-9abc-def012345678 on gpu-node-1.eu-west-1.compute.internal",
        "--prometheus-token-file=/var/run/secrets/kubernetes.io/serviceaccount/token-file",
        "secretName: web-tls, passwordSecretName=db",
        "http://prometheus.monitoring.svc:9090/api/v1/query?query=up",
        "deployment/prod/Meta-Llama-3-1-8B-Instruct-AWQ-INT4-v2 scaled from 2 to 4",
        "/apis/custom.metrics.k8s.io/v1beta1/namespaces/Prod1/pods/*/DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    ],
)
def test_what_explains_a_cluster_stays(text: str) -> None:
    assert Redactor().text(text) == text


def pod(**container: object) -> dict[str, object]:
    return {
        "kind": "Pod",
        "metadata": {
            "name": "web",
            "managedFields": [{"manager": "kubectl"}],
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": '{"env":"planted1"}',
                "objectset.rio.cattle.io/applied": "H4sIAAAAplanted2",
                "prometheus.io/port": "9400",
            },
        },
        "spec": {"containers": [{"name": "main", **container}]},
    }


def test_objects_keep_their_shape_and_lose_their_secrets() -> None:
    found = Redactor().document(
        pod(
            env=[
                {"name": "MODE", "value": "planted3"},
                {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "web", "key": "k"}}},
            ],
            args=["--api-key", "planted4", "--port", "80", "--password=planted5"],
            livenessProbe={"httpGet": {"httpHeaders": [{"name": "X-A", "value": "planted6"}]}},
            resources={"limits": {"nvidia.com/gpu": "1"}},
        )
    )
    assert "planted" not in json.dumps(found)
    assert isinstance(found, dict)
    assert found["metadata"]["annotations"]["prometheus.io/port"] == "9400"
    assert "managedFields" not in found["metadata"]
    (container,) = found["spec"]["containers"]
    assert container["args"] == ["--api-key", REDACTED, "--port", "80", f"--password={REDACTED}"]
    assert container["env"][1]["valueFrom"]["secretKeyRef"] == {"name": "web", "key": "k"}
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "1"}}


def test_fields_that_are_named_as_secrets_are_taken_out_of_any_object() -> None:
    given = {
        "type": "rabbitmq",
        "metadata": {"password": "planted", "queueLength": "5", "passwordFromEnv": "planted"},
        "tokens": 5,
        "apiKeys": ["planted"],
        "volumes": [{"secret": {"secretName": "web-tls"}}],
    }
    found = Redactor().document(given)
    assert "planted" not in json.dumps(found)
    assert isinstance(found, dict)
    assert found["metadata"]["queueLength"] == "5"
    assert found["volumes"] == given["volumes"]


def test_a_secret_object_has_no_data() -> None:
    found = Redactor().document({"items": [{"kind": "Secret", "data": {"k": "cGxhbnRlZA=="}}]})
    assert "cGxhbnRlZA" not in json.dumps(found)


def test_a_secret_of_an_object_is_found_in_the_files_before_it() -> None:
    archive = Archive("b", 0, 1_000_000)
    archive.add("log", "login with Tr0ub4dor&3 failed; login as planted-user", "log")
    archive.add("pod.json", pod(env=[{"name": "DB_PASSWORD", "value": "Tr0ub4dor&3"}]), "pod")
    archive.add("ns.json", pod(env=[{"name": "URL", "value": "http://a:b3cr3t-pw@x"}]), "pod")
    archive.add("log2", "pw is b3cr3t-pw", "log")
    files = dict(archive.files())
    assert files["log"].decode() == f"login with {REDACTED} failed; login as planted-user"
    assert files["log2"].decode() == f"pw is {REDACTED}"


def test_what_does_not_fit_is_named() -> None:
    archive = Archive("b", 0, 100)
    archive.add("first", "y" * 60, "first")
    archive.add("large", "x" * 60, "large")
    archive.add("last", "z" * 40, "last")
    archive.leave_out("objects/x.json", "may not list token=planted | x")
    files = dict(archive.files())
    assert list(files) == ["first", "last", "index.md"]
    index = files["index.md"].decode()
    assert "| large | 60 bytes, and 40 were left of 100 |" in index
    assert "planted" not in index


def test_redacting_a_long_log_takes_time_that_grows_with_it() -> None:
    """A pattern that starts again at each letter would take minutes of this."""
    text = "a" * 200_000 + "auth" * 50_000 + "://" * 20_000 + "passpass=" * 10_000 + "a:b//" * 9_000
    assert Redactor().text(text)
