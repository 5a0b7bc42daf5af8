"""Users and passwords, for small set-ups: a file of bcrypt hashes, as `htpasswd -B` writes it.

A hash takes the processor for a good part of a second, by design. So they are tried on threads of
their own, few at once, and no more may wait than are done before a client gives up.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import bcrypt

from anabranch.broker.errors import StartError
from anabranch.broker.security.credentials import (
    CREDENTIAL_BYTES_MAX,
    Credentials,
    CredentialsError,
    RefusalReason,
    Verified,
)
from anabranch.broker.security.files import ReadAgain, read_file
from anabranch.broker.settings.security import BASIC
from anabranch.core.security.principal import is_role
from anabranch.wire.supervised import kept_going

_SETTING: Final = "basicAuthConf"
_HASH: Final = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_COST_MIN: Final = 4  # bcrypt's least
_COST_MAX: Final = 14  # about a second each
_USERS_MAX: Final = 10_000
_PASSWORD_BYTES_MAX: Final = 72  # bcrypt ignores the rest
_THREADS: Final = 2
_WAITING_MAX: Final = 32

Users = Mapping[str, bytes]


class _Known(NamedTuple):
    """The known users. `nobody`: the hash that an unknown user is checked by, to take as long."""

    users: Users
    nobody: bytes


class BasicProvider:
    """Verifies users and passwords by a file."""

    method = BASIC
    goes_by_data = True

    def __init__(self, file: Path, period_s: float) -> None:
        self._known = ReadAgain("users", (file,), lambda: _known_of(file))
        self._period_s = period_s
        self._threads = ThreadPoolExecutor(_THREADS, "password")
        self._waiting = 0
        self._following: asyncio.Task[None] | None = None

    @property
    def generation(self) -> int:
        return self._known.generation

    def takes(self, shown: Credentials) -> bool:
        return shown.method == BASIC

    async def start(self) -> None:
        self._following = kept_going(lambda: self._known.follow(self._period_s), "users")

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def verify(self, shown: Credentials) -> Verified:
        user, password = _parts(shown.data)
        known = self._known.current.users.get(user)
        if self._waiting >= _WAITING_MAX:
            raise CredentialsError(
                RefusalReason.BUSY, "too many passwords are being looked at; try again"
            )
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            is_right = await loop.run_in_executor(
                self._threads, _matches, password, known or self._known.current.nobody
            )
        finally:
            self._waiting -= 1
        if known is None or not is_right:
            raise CredentialsError(RefusalReason.PASSWORD, "user or password is wrong")
        return Verified(user)


def users_of(file: Path) -> Users:
    """The users of a file, and their hashes. Raises StartError."""
    what = f"{file}, which is {_SETTING},"
    try:
        lines = read_file(file, _SETTING).decode().splitlines()
    except UnicodeDecodeError:
        raise StartError(f"{what} is not UTF-8: correct the file") from None
    found: dict[str, bytes] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, _, hashed = line.strip().partition(":")
        match = _HASH.fullmatch(hashed)
        if match is None or not _COST_MIN <= int(match[1]) <= _COST_MAX:
            raise StartError(
                f"line {number} of {what} has no bcrypt hash, of a cost of {_COST_MIN} to "
                f"{_COST_MAX}: write it with `htpasswd -B`"
            )
        if not is_role(user) or user in found:
            raise StartError(
                f"line {number} of {what} has no user, or one that is there before: correct it"
            )
        found[user] = hashed.encode()
    if len(found) > _USERS_MAX:
        raise StartError(f"{what} has {len(found)} users: more than {_USERS_MAX} are for tokens")
    return found


def _known_of(file: Path) -> _Known:
    users = users_of(file)
    return _Known(users, bcrypt.hashpw(b"", bcrypt.gensalt(_cost_of(users))))


def _cost_of(users: Users) -> int:
    costs = [int(hashed[4:6]) for hashed in users.values()]
    return max(costs, default=10)


def _parts(data: bytes) -> tuple[str, bytes]:
    """Splits `user:password` into user and password. Raises CredentialsError."""
    if len(data) > CREDENTIAL_BYTES_MAX:
        raise CredentialsError(
            RefusalReason.SIZE, f"user and password have more than {CREDENTIAL_BYTES_MAX} bytes"
        )
    user, colon, password = data.partition(b":")
    if not colon or not user or len(password) > _PASSWORD_BYTES_MAX or b"\0" in password:
        raise CredentialsError(
            RefusalReason.MALFORMED,
            f"show user:password, the password of {_PASSWORD_BYTES_MAX} bytes at most",
        )
    try:
        return user.decode(), password
    except UnicodeDecodeError:
        raise CredentialsError(RefusalReason.MALFORMED, "the user is not UTF-8") from None


def _matches(password: bytes, hashed: bytes) -> bool:
    return bcrypt.checkpw(password, hashed)
