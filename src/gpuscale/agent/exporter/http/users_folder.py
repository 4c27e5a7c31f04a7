"""Users of basic authentication as files of a folder, as a mounted Secret has them.

A file is named after a user, and holds the bcrypt hash of the user's password. Unlike the web configuration
file, the folder is followed, so that a password can be changed without a restart.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from gpuscale.agent.exporter.http.passwords import CheckHash, PasswordCheck
from gpuscale.agent.exporter.http.web_config import BCRYPT_LENGTH, MAKE_HASH, is_bcrypt_hash
from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.words import counted

_log = logging.getLogger(__name__)
_MOST_FILES = 1024
_MOST_BYTES = 1024


class UsersFolder:
    """The users allowed in, from a folder's files.

    Args:
        folder: hidden files in it are passed over, which Kubernetes has beside those of a Secret.
        beside: users that are known from elsewhere.
        check: whether a password fits a hash.

    Raises:
        ConfigError: the folder can't be read, has no file, or one without a bcrypt hash.
    """

    def __init__(self, folder: Path, beside: Mapping[str, str], check: CheckHash) -> None:
        self._folder = folder
        self._beside = dict(beside)
        self._users = read_users(folder)
        self._logged = ""
        self.auth = PasswordCheck({**self._beside, **self._users}, check)

    def follow(self) -> None:
        """Take over changed files; bad ones are logged, and the users stay as they were."""
        try:
            found = read_users(self._folder)
        except ConfigError as error:
            if str(error) != self._logged:
                _log.error("the users stay as they were: %s", error)
            self._logged = str(error)
            return
        self._logged = ""
        if found != self._users:
            self._users = found
            self.auth.take({**self._beside, **found})
            _log.info("users loaded again")


def read_users(folder: Path) -> dict[str, str]:
    """Return the bcrypt hash of each user.

    Raises:
        ConfigError: the folder can't be read, has no file, or one without a bcrypt hash; all of these.
    """
    found: dict[str, str] = {}
    problems: list[Problem] = []
    for path in _paths(folder):
        try:
            hashed = _text(path)
        except OSError as error:
            problems.append(
                Problem(str(path), None, None, _reason(error), "a file with a bcrypt hash")
            )
            continue
        if is_bcrypt_hash(hashed):
            found[path.name] = hashed[:BCRYPT_LENGTH]
        else:
            # The content may be a plain-text password, so the message does not show it.
            problems.append(
                Problem(str(path), None, None, None, "expected a bcrypt hash", MAKE_HASH)
            )
    if problems:
        raise ConfigError(*problems)
    return found


def _paths(folder: Path) -> list[Path]:
    try:
        paths = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError as error:
        expected = "a folder with a file for each user"
        raise ConfigError(Problem(str(folder), None, None, _reason(error), expected)) from error
    if not 0 < len(paths) <= _MOST_FILES:
        expected = f"one for each user, at most {_MOST_FILES}"
        raise ConfigError(Problem(str(folder), None, None, counted(len(paths), "file"), expected))
    return paths


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES).decode(errors="replace").strip()


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
