"""The file with `remote_write`, as Prometheus' configuration has it."""

from pathlib import Path

import pytest

from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.series.remote_write.relabelling import RelabelRule
from gpuscale.server.sources.http.entra import (
    ClientSecret,
    EntraLogin,
    ManagedIdentity,
    WorkloadIdentity,
)
from gpuscale.server.sources.remote_write.file import read_file
from gpuscale.server.sources.remote_write.settings import RemoteWriteEndpoint, endpoint_of_url

FULL = """
global:
  external_labels: {cluster: a}
remote_write:
  - url: https://mimir.example/api/v1/push
    name: mimir
    remote_timeout: 10s
    headers: {X-Scope-OrgID: team}
    authorization: {credentials_file: token}
    tls_config: {ca_file: ca.pem, cert_file: /etc/c.pem, key_file: k.pem, server_name: mimir}
    write_relabel_configs:
      - source_labels: [__name__]
        regex: go_.*
        action: drop
    queue_config:
      capacity: 6000
      max_shards: 2
      max_samples_per_send: 1000
      batch_send_deadline: 1s
      min_backoff: 100ms
      max_backoff: 10s
      sample_age_limit: 1h
  - url: http://127.0.0.1:9090/api/v1/write
    basic_auth: {username: me, password: "secret"}
"""

ID = "00000000-0000-0000-0000-0000000000aa"
TENANT = "00000000-0000-0000-0000-0000000000bb"
OAUTH = f"{{client_id: {ID}, client_secret: hidden, tenant_id: a.example}}"
AZURE = "remote_write:\n  - url: http://a\n    azuread: "


def read(tmp_path, text):
    path = tmp_path / "remote.yaml"
    path.write_text(text)
    return read_file(path)


def test_every_field_arrives(tmp_path: Path) -> None:
    first, second = read(tmp_path, FULL)
    assert first == RemoteWriteEndpoint(
        url="https://mimir.example/api/v1/push",
        name="mimir",
        timeout_s=10.0,
        headers=(("X-Scope-OrgID", "team"),),
        token_file=tmp_path / "token",
        ca_file=tmp_path / "ca.pem",
        client_files=(Path("/etc/c.pem"), tmp_path / "k.pem"),
        server_name="mimir",
        external_labels=(("cluster", "a"),),
        rules=(RelabelRule("drop", ("__name__",), regex="go_.*"),),
        requests=2,
        max_samples=1000,
        interval_s=1.0,
        min_backoff_s=0.1,
        max_backoff_s=10.0,
        max_age_s=3600.0,
    )
    # Base64 of me:secret.
    assert second.headers == (("Authorization", "Basic bWU6c2VjcmV0"),)
    assert (second.interval_s, second.max_samples) == (5.0, 2000)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("remote_write: [{url: localhost}]", 1, "found 'localhost', expected an address such as"),
        ("remote_write:\n  - {}", 2, "url: this field is required"),
        ("remote_write:\n  - url: http://a\n    sigv4: {}", 3, "no such field here"),
        ("remote_write:\n  - url: http://a\n    remote_timeout: 5", 3, "expected a duration"),
        ("remote_write:\n  - url: http://a\n    headers: {Host: b}", 2, "can't be set here"),
        (
            "remote_write:\n  - url: http://u:p@a\n    basic_auth: {username: u}",
            2,
            "one way to show who writes",
        ),
        (
            "remote_write:\n  - url: http://a\n    write_relabel_configs:\n      - action: hash",
            4,
            "one of replace, keep",
        ),
        (
            "remote_write:\n  - url: http://a\n    write_relabel_configs:\n      - regex: (\n"
            "        action: keep",
            4,
            "not a regular expression of RE2",
        ),
        (
            "remote_write:\n  - url: http://a\n    queue_config: {max_samples_per_send: 0}",
            3,
            "at least 1",
        ),
        ("remote_write:\n  - url: http://a\n    tls_config: {cert_file: a}", 2, "both or none"),
        (AZURE + "{}", 3, "found none of managed_identity, workload_identity and oauth"),
        (AZURE + "{managed_identity: }", 3, "found none of managed_identity"),
        (AZURE + "{managed_identity: {}, oauth: " + OAUTH + "}", 3, "found 2 of"),
        (AZURE + "{managed_identity: {client_id: a}}", 3, "found 'a', expected a UUID"),
        (AZURE + "{workload_identity: {client_id: " + ID + "}}", 3, "tenant_id: this field"),
        (AZURE + "{sdk: {}}", 3, "found sdk, which needs Azure's own libraries"),
        (AZURE + "{certificate: {}}", 3, "found certificate, which needs Azure's own libraries"),
        (AZURE + "{cloud: azurepublic, managed_identity: {}}", 3, "AzurePublic"),
        (AZURE + "{scope: 'a?b', managed_identity: {}}", 3, "a scope such as"),
        (
            AZURE + "{oauth: " + OAUTH.replace("a.example", "a/b") + "}",
            3,
            "a tenant's UUID or domain",
        ),
        (
            AZURE + "{managed_identity: {}}\n    basic_auth: {username: u}",
            2,
            "one way to show who writes",
        ),
        ("[]", 1, "a mapping"),
        ("", None, "one with remote_write"),
    ],
)
def test_faults_name_their_line(tmp_path: Path, text: str, line: int | None, words: str) -> None:
    with pytest.raises(ConfigError, match=r"remote\.yaml") as caught:
        read(tmp_path, text)
    assert words in str(caught.value)
    assert caught.value.problems[0].line == line
    assert "hidden" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_file(tmp_path / "none.yaml")


def test_passwords_are_not_shown() -> None:
    url = "https://me:secret@mimir.example/push?token=secret"
    endpoint = endpoint_of_url(url)
    assert endpoint.shown_url == "https://mimir.example/push"
    assert "secret" not in repr(endpoint)
    with pytest.raises(UsageError) as caught:
        endpoint_of_url("me://me:secret@example")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "login"),
    [
        ("{managed_identity: {}}", EntraLogin(ManagedIdentity())),
        ("{managed_identity: {client_id: ''}}", EntraLogin(ManagedIdentity())),
        (
            f"{{cloud: AzureChina, managed_identity: {{client_id: {ID}}}}}",
            EntraLogin(
                ManagedIdentity(ID),
                "https://monitor.azure.cn//.default",
                "https://login.chinacloudapi.cn",
            ),
        ),
        (
            f"{{cloud: AzureGovernment, oauth: {OAUTH}}}",
            EntraLogin(
                ClientSecret("a.example", ID, "hidden"),
                "https://monitor.azure.us//.default",
                "https://login.microsoftonline.us",
            ),
        ),
        (
            f"{{workload_identity: {{client_id: {ID}, tenant_id: {TENANT}}}, scope: 'https://a/.default'}}",
            EntraLogin(
                WorkloadIdentity(
                    TENANT, ID, Path("/var/run/secrets/azure/tokens/azure-identity-token")
                ),
                "https://a/.default",
                "https://login.microsoftonline.com",
            ),
        ),
    ],
)
def test_azures_logins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, login: EntraLogin
) -> None:
    monkeypatch.delenv("AZURE_FEDERATED_TOKEN_FILE", raising=False)
    monkeypatch.delenv("AZURE_AUTHORITY_HOST", raising=False)
    (found,) = read(tmp_path, AZURE + text)
    assert found.azure_login == login
    assert "hidden" not in repr(found)


def test_what_the_workload_identity_webhook_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", "/projected/token")
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "https://login.example/")
    identity = f"workload_identity: {{client_id: {ID}, tenant_id: {TENANT}"
    (found,) = read(tmp_path, f"{AZURE}{{{identity}}}}}")
    assert found.azure_login.identity.token_file == Path("/projected/token")
    assert found.azure_login.authority == "https://login.example"
    # What the file says goes first.
    (found,) = read(tmp_path, f"{AZURE}{{cloud: AzurePublic, {identity}, token_file_path: own}}}}")
    assert found.azure_login.identity.token_file == tmp_path / "own"
    assert found.azure_login.authority == "https://login.microsoftonline.com"
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "http://login.example/")
    with pytest.raises(ConfigError, match=r"AZURE_AUTHORITY_HOST, expected .* https://"):
        read(tmp_path, AZURE + "{managed_identity: {}}")
