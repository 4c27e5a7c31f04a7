# mypy: disable-error-code="arg-type"
"""Counters file, web configuration and passwords: what is read, refused, and taken over while running."""

import base64
import os
from pathlib import Path

import pytest

from gpuscale.agent.exporter.counters_file import CountersFile
from gpuscale.agent.exporter.http import passwords
from gpuscale.agent.exporter.http.passwords import PasswordCheck
from gpuscale.agent.exporter.http.web_config import load_web_config
from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import ConfigError, NotFoundError, UnavailableError
from gpuscale.signals import DEFAULT_COUNTERS, list_of_image

UTIL = "DCGM_FI_DEV_GPU_UTIL, gauge, Busy.\n"
TEMP = "DCGM_FI_DEV_GPU_TEMP, gauge, Warm.\n"


@pytest.fixture
def path(tmp_path: Path):
    file = tmp_path / "my.csv"
    file.write_text(UTIL)
    return file


def write(path, text) -> None:
    """Change a file so that it looks changed, however fast the test is."""
    path.write_text(text)
    later = path.stat().st_mtime_ns + 1_000_000
    os.utime(path, ns=(later, later))


def fields(counters):
    return [counter.field for counter in counters]


def test_file_replaces_the_built_in_list(path) -> None:
    file = CountersFile(path, "replace", ManualClock())
    assert fields(file.counters) == ["DCGM_FI_DEV_GPU_UTIL"]


def test_file_can_add_to_the_built_in_list(path) -> None:
    path.write_text(UTIL + "DCGM_FI_PROF_SM_ACTIVE, gauge, SMs.\n")
    counters = CountersFile(path, "add", ManualClock()).counters
    assert len(counters) == len(DEFAULT_COUNTERS) + 1
    (util,) = [each for each in counters if each.field == "DCGM_FI_DEV_GPU_UTIL"]
    assert util.help == "Busy."


def test_file_without_a_counter_is_taken_with_a_warning(path, caplog) -> None:
    path.write_text("# nothing yet\n")
    assert CountersFile(path, "replace", ManualClock()).counters == ()
    assert caplog.messages == [
        f"{path} lists no counters: no values of the GPUs' fields are served"
    ]
    caplog.clear()
    assert CountersFile(path, "add", ManualClock()).counters == DEFAULT_COUNTERS
    assert not caplog.messages


@pytest.mark.parametrize("mode", ["replace", "add"])
def test_a_list_of_the_image_is_served_and_never_changes(mode) -> None:
    text = list_of_image(Path("/etc/dcgm-exporter/default-counters.csv"))
    file = CountersFile((text, "default-counters.csv"), mode, ManualClock())
    assert file.counters == DEFAULT_COUNTERS
    assert not file.has_changed()


def test_changed_file_is_taken_over(path) -> None:
    clock = ManualClock(1000)
    file = CountersFile(path, "replace", clock)
    assert not file.has_changed()
    write(path, TEMP)
    assert file.has_changed()
    clock.advance(5)
    applied = []
    file.reload(applied.append)
    assert fields(applied[0]) == fields(file.counters) == ["DCGM_FI_DEV_GPU_TEMP"]
    assert not file.has_changed()
    assert (file.status.loaded_ms, file.status.error) == (6000, None)


def test_bad_file_keeps_the_last_good_one_and_says_why(
    path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(1000)
    file = CountersFile(path, "replace", clock)
    write(path, "NOPE, gauge, x\n")
    clock.advance(5)
    applied = []
    file.reload(applied.append)
    assert applied == []
    assert fields(file.counters) == ["DCGM_FI_DEV_GPU_UTIL"]
    error = f"{path}:1: field: found 'NOPE', expected the name of a DCGM field"
    assert (file.status.loaded_ms, file.status.error) == (1000, error)
    assert caplog.messages == [f"the counters stay as they were: {error}"]
    write(path, UTIL)
    file.reload(applied.append)
    assert (applied, file.status.error) == ([], None)


def test_vanished_file_keeps_the_last_good_one(path) -> None:
    file = CountersFile(path, "replace", ManualClock())
    path.unlink()
    assert file.has_changed()
    file.reload(lambda _: None)
    assert file.status.error == f"can't read {path}: No such file or directory"
    assert fields(file.counters) == ["DCGM_FI_DEV_GPU_UTIL"]


def test_what_can_not_be_applied_counts_as_bad(path) -> None:
    file = CountersFile(path, "replace", ManualClock())
    write(path, TEMP)

    def apply(_) -> None:
        raise UnavailableError("driver not loaded")

    file.reload(apply)
    assert file.status.error == "driver not loaded"
    assert fields(file.counters) == ["DCGM_FI_DEV_GPU_UTIL"]


def test_good_rows_are_served_at_the_start_beside_bad_ones(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text("DCGM_FI_DEV_GPU_UTIL, gauge, a\nDCGM_FI_DEV_GPU_UTL, gauge, b\n")
    file = CountersFile(path, "replace", ManualClock())
    assert fields(file.counters) == ["DCGM_FI_DEV_GPU_UTIL"]
    assert "did you mean DCGM_FI_DEV_GPU_UTIL?" in (file.status.error or "")


def test_a_file_without_one_good_row_is_an_error_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "my.csv"
    path.write_text("no counters at all\n")
    with pytest.raises(ConfigError):
        CountersFile(path, "replace", ManualClock())


def test_file_that_is_not_there_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        CountersFile(tmp_path / "no.csv", "replace", ManualClock())
    assert str(caught.value) == f"can't read {tmp_path}/no.csv: No such file or directory"


HASH = "$2y$10$" + "a" * 53
WEB = f"""\
tls_server_config:
  cert_file: server.crt
  key_file: /etc/server.key
  client_ca_file: ca.crt
  client_auth_type: RequireAndVerifyClientCert
  min_version: TLS13
basic_auth_users:
  alice: {HASH}
"""


def test_web_config_is_read_as_the_exporter_toolkit_does() -> None:
    config = load_web_config(WEB, "web.yml", Path("/etc/web"))
    assert config.tls.files == (
        Path("/etc/web/server.crt"),
        Path("/etc/server.key"),
        Path("/etc/web/ca.crt"),
    )
    assert config.tls.client_auth_type == "RequireAndVerifyClientCert"
    assert config.tls.min_version == "TLS13"
    assert config.users == {"alice": HASH}
    assert HASH not in repr(config)


def test_tail_of_a_hash_is_passed_over() -> None:
    config = load_web_config(f"basic_auth_users: {{alice: {HASH}x}}", "web.yml")
    assert config.users == {"alice": HASH}


def test_empty_web_config_serves_everyone() -> None:
    config = load_web_config("", "web.yml")
    assert (config.tls, config.users) == (None, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tls_server_config: {cert_file: a}",
            "web.yml:1: tls_server_config.key_file: this field is required",
        ),
        (
            "tls_server_config: {cert_file: a, key_file: b, cipher_suites: []}",
            "web.yml:1: tls_server_config.cipher_suites: found cipher_suites, expected one of cert_file, "
            "client_auth_type, client_ca_file, key_file, max_version, min_version",
        ),
        (
            "tls_server_config: {cert_file: a, key_file: b, min_version: SSL3}",
            "web.yml:1: tls_server_config.min_version: found SSL3, expected one of TLS12, TLS13",
        ),
        (
            "tls_server_config: {cert_file: a, key_file: b, client_ca_file: c}",
            "web.yml:1: tls_server_config.client_ca_file: client_ca_file and a client_auth_type that "
            "verifies, both or neither",
        ),
        (
            "basic_auth_users: {alice: secret}",
            "web.yml:1: basic_auth_users.alice: a bcrypt hash; make one with: "
            "htpasswd -nBC 10 '' | tr -d ':'",
        ),
        (
            "users: {}",
            "web.yml:1: users: found users, expected one of basic_auth_users, tls_server_config",
        ),
    ],
)
def test_wrong_web_config_is_told_with_line_and_field(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_web_config(text, "web.yml")
    assert str(caught.value) == message


def basic(name, password):
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


class Checks:
    """Stands for bcrypt: the hash `$2b$pw` fits the password `pw`."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, password, hashed):
        self.count += 1
        return hashed == b"$2b$" + password


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        (basic("alice", "pw"), True),
        (basic("alice", "wrong"), False),
        (basic("bob", "pw"), False),
        ("", False),
        ("Bearer x", False),
        ("Basic !!!", False),
        ("Basic " + base64.b64encode(b"alice").decode(), False),
        (basic("alice", "p" * 2000), False),
    ],
)
async def test_only_known_users_with_their_password_come_in(header, allowed: bool) -> None:
    assert await PasswordCheck({"alice": "$2b$pw"}, Checks()).allows(header) is allowed


async def test_unknown_user_costs_as_much_as_a_wrong_password() -> None:
    checks = Checks()
    auth = PasswordCheck({"alice": "$2b$pw"}, checks)
    await auth.allows(basic("bob", "pw"))
    assert checks.count == 1


async def test_scraper_that_was_let_in_is_remembered() -> None:
    checks = Checks()
    auth = PasswordCheck({"alice": "$2b$pw"}, checks)
    for _ in range(3):
        assert await auth.allows(basic("alice", "pw"))
    assert checks.count == 1


def test_missing_bcrypt_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name) -> None:
        raise ImportError(name)

    monkeypatch.setattr(passwords, "import_module", missing)
    with pytest.raises(UnavailableError) as caught:
        passwords.bcrypt_check()
    assert str(caught.value) == "passwords need the Python package bcrypt: pip install bcrypt"


def test_unreadable_certificate_is_reported(tmp_path: Path) -> None:
    from gpuscale.agent.exporter.http.tls import ServerTls

    config = load_web_config(
        "tls_server_config: {cert_file: a.crt, key_file: a.key}", "web.yml", tmp_path
    )
    with pytest.raises(ConfigError) as caught:
        ServerTls(config.tls)
    assert str(caught.value) == (
        f"{tmp_path}/a.crt: found No such file or directory, "
        f"expected a certificate with key {tmp_path}/a.key"
    )
