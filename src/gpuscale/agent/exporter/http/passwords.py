"""Basic authentication against bcrypt hashes. The only module that reaches for `bcrypt`.

A bcrypt check is slow on purpose, so it runs outside the event loop and each header that was let in is
remembered as a digest: scrapers send the same one every time.
"""

import asyncio
import base64
import binascii
import hashlib
import secrets
from collections.abc import Callable, Mapping
from importlib import import_module

from gpuscale.base.errors import UnavailableError

CheckHash = Callable[[bytes, bytes], bool]
"""(password, bcrypt hash) to whether they fit."""

MAX_HEADER_CHARS = 1024
_MAX_PASSWORD_BYTES = 72
"""Of more, bcrypt itself only looks at the first 72."""
_REMEMBERED = 1024
_NOBODY = "$2b$10$abcdefghijklmnopqrstuuW5fOTmBgHLn0vzYdJ2VZb8CHM1ya3vO"
"""Checked for unknown users, so that they take as long as known ones."""


def bcrypt_check() -> CheckHash:
    """Return the check of the `bcrypt` package.

    Raises:
        UnavailableError: the package is not installed.
    """
    try:
        check = import_module("bcrypt").checkpw
    except ImportError as error:
        raise UnavailableError(
            "passwords need the Python package bcrypt: pip install bcrypt"
        ) from error
    return check  # type: ignore[no-any-return]


class PasswordCheck:
    """Checks users' passwords.

    Args:
        users: name to bcrypt hash.
        check: whether a password fits a hash.
    """

    def __init__(self, users: Mapping[str, str], check: CheckHash) -> None:
        self._users = dict(users)
        self._check = check
        self._key = secrets.token_bytes(32)
        self._let_in: dict[bytes, None] = {}

    def take(self, users: Mapping[str, str]) -> None:
        """Replace the users; cached logins are forgotten."""
        self._users = dict(users)
        self._let_in.clear()

    async def allows(self, authorization: str) -> bool:
        """Return whether an Authorization header names a user with the right password."""
        named = _name_and_password(authorization)
        if named is None:
            return False
        digest = hashlib.blake2b(authorization.encode(), key=self._key).digest()
        if digest in self._let_in:
            return True
        name, password = named
        is_known = name in self._users
        hashed = self._users.get(name, _NOBODY)
        is_right = await asyncio.to_thread(self._fits, password, hashed.encode())
        # The check is slow, and `take` may have replaced the hash meanwhile.
        if not (is_known and is_right and self._users.get(name) == hashed):
            return False
        if len(self._let_in) >= _REMEMBERED:
            self._let_in.clear()
        self._let_in[digest] = None
        return True

    def _fits(self, password: bytes, hashed: bytes) -> bool:
        try:
            return self._check(password[:_MAX_PASSWORD_BYTES], hashed)
        except ValueError:
            return False


def _name_and_password(authorization: str) -> tuple[str, bytes] | None:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic" or len(authorization) > MAX_HEADER_CHARS:
        return None
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        return None
    name, colon, password = decoded.partition(b":")
    return (name.decode(errors="replace"), password) if colon else None
