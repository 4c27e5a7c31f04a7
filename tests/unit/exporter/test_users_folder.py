"""Users of basic authentication as files of a folder: what is read, refused, and taken over while running."""

import asyncio
import base64
import logging
import threading
from pathlib import Path

import bcrypt
import pytest

from gpuscale.agent.exporter.http.passwords import PasswordCheck, bcrypt_check
from gpuscale.agent.exporter.http.users_folder import UsersFolder, read_users
from gpuscale.agent.exporter.process import ExporterService
from gpuscale.agent.exporter.settings import read_settings
from gpuscale.base.errors import ConfigError

MAKE = "make one with: htpasswd -nBC 10 '' | tr -d ':'"


def hashed(password):
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


def basic(name, password):
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def mounted(folder, **users):
    """Write files as the kubelet mounts a Secret's: links into a hidden folder that one rename replaces."""
    version = len(list(folder.glob("..v*")))
    data = folder / f"..v{version}"
    data.mkdir(parents=True)
    for name, text in users.items():
        (data / name).write_text(text)
    (folder / "..new").symlink_to(data.name)
    (folder / "..new").rename(folder / "..data")
    for link in folder.iterdir():
        if not link.name.startswith("."):
            link.unlink()
    for name in users:
        (folder / name).symlink_to(f"..data/{name}")
    return folder


def test_each_file_is_a_user_and_hidden_ones_are_passed_over(tmp_path: Path) -> None:
    ann, bob = hashed("a"), hashed("b")
    # htpasswd leaves a line break; Go's bcrypt passes over what follows 60 bytes.
    folder = mounted(tmp_path, ann=f"{ann}\n", bob=f"{bob}xyz")
    assert read_users(folder) == {"ann": ann, "bob": bob}


@pytest.mark.parametrize("text", ["secret", "", "$2b$10$short", "\x00" * 60])
def test_what_is_no_hash_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    folder = mounted(tmp_path, ann=hashed("a"), bob=text)
    with pytest.raises(ConfigError) as caught:
        read_users(folder)
    assert str(caught.value) == f"{folder}/bob: expected a bcrypt hash; {MAKE}"


def test_what_can_not_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "ann").mkdir()
    (tmp_path / "bob").symlink_to("nowhere")
    with pytest.raises(ConfigError) as caught:
        read_users(tmp_path)
    assert str(caught.value).splitlines() == [
        f"{tmp_path}/ann: found Is a directory, expected a file with a bcrypt hash",
        f"{tmp_path}/bob: found No such file or directory, expected a file with a bcrypt hash",
    ]


@pytest.mark.parametrize(
    ("count", "found"), [(None, "No such file or directory"), (0, "0 files"), (1025, "1025 files")]
)
def test_a_folder_has_a_file_for_each_user(tmp_path: Path, count: int | None, found: str) -> None:
    folder = tmp_path / "users"
    if count is not None:
        mounted(folder, **dict.fromkeys((f"u{n}" for n in range(count)), ""))
    with pytest.raises(ConfigError) as caught:
        read_users(folder)
    assert str(caught.value).startswith(f"{folder}: found {found}, expected ")


async def test_changes_are_taken_over_and_faults_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder = mounted(tmp_path, ann=hashed("old"))
    users = UsersFolder(folder, {"eve": hashed("e")}, bcrypt_check())

    async def let_in():
        asked = (("ann", "old"), ("ann", "new"), ("bob", "b"), ("eve", "e"))
        return [await users.auth.allows(basic(*each)) for each in asked]

    assert await let_in() == [True, False, False, True]
    mounted(tmp_path, ann="new")  # a password where its hash belongs
    for _ in range(3):
        users.follow()
    assert await let_in() == [True, False, False, True]
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    assert f"{folder}/ann: expected a bcrypt hash" in caplog.text
    mounted(tmp_path, ann=hashed("new"), bob=hashed("b"))
    users.follow()
    # A password that was let in before is asked again.
    assert await let_in() == [False, True, True, True]
    mounted(tmp_path, bob=hashed("b"))
    users.follow()
    assert await let_in() == [False, False, True, True]


async def test_a_password_that_is_replaced_during_its_check_is_not_let_in() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def check(_password, found):
        begun.set()
        go_on.wait(60)
        return found == b"old"

    auth = PasswordCheck({"ann": "old"}, check)
    asked = asyncio.create_task(auth.allows(basic("ann", "pw")))
    await asyncio.to_thread(begun.wait, 60)
    auth.take({"ann": "new"})
    go_on.set()
    assert await asked is False
    assert await auth.allows(basic("ann", "pw")) is False


def test_an_agent_with_a_bad_folder_does_not_start(tmp_path: Path) -> None:
    given = {"gpu": ["simulated:NVIDIA H200:1"], "web-users-folder": [str(tmp_path / "users")]}
    with pytest.raises(ConfigError, match="users: found No such file or directory"):
        ExporterService(read_settings(given, {}, "host-1"))


def test_the_flags_are_variables_too() -> None:
    folder = {"GPUSCALE_EXPORTER_WEB_USERS_FOLDER": "/etc/users"}
    settings = read_settings({}, {**folder, "GPUSCALE_EXPORTER_WEB_OPEN_PROBES": "true"}, "host-1")
    assert (settings.web_users_folder, settings.has_open_probes) == (Path("/etc/users"), True)
    settings = read_settings({}, {}, "host-1")
    assert (settings.web_users_folder, settings.has_open_probes) == (None, False)
