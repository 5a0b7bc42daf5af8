"""The credentials of a client: a token, or a user with a password.

A caller gives the secret itself, the file that has it, or a function that returns it. So a secret
that expires can be renewed. The file is read, or the function called, for each new
connection and after each challenge. HTTP reads a file for each request, and calls a function again
once a node refuses its former result.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar, Final

from anabranch.access.errors import CredentialsError
from anabranch.core.errors import InvalidInputError

TokenSource = str | Path | Callable[[], str | Awaitable[str]]

SHOWN_BYTES_MAX: Final = 16_384  # nodes look at no more
NOTHING_SHOWN: Final = "Show who you are: by a token, a user and password, or a client certificate"
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750


class Credentials(ABC):
    """A secret to show. `method` is Pulsar's name of its kind."""

    method: ClassVar[str]
    scheme: ClassVar[str]  # in the header Authorization

    def __init__(self, source: TokenSource, what: str) -> None:
        if not isinstance(source, str | Path) and not callable(source):
            raise InvalidInputError(
                f"{what} is a str, the Path of a file, or a function, not a {type(source).__name__}"
            )
        self._source = source
        self._what = what
        if isinstance(source, str):
            self._checked(source)

    @property
    def is_renewable(self) -> bool:
        """True if the next `show` may return another secret."""
        return not isinstance(self._source, str)

    @property
    def is_asked_for(self) -> bool:
        """True if a function makes it. That may take long, so do not call it for each request."""
        return not isinstance(self._source, str | Path)

    @property
    def renewal(self) -> str:
        """The advice for a refused secret."""
        if isinstance(self._source, Path):
            return f"Put another {self._what} into {self._source}"
        if isinstance(self._source, str):
            return f"Give another {self._what}"
        return f"Have the function that makes the {self._what} return another one"

    async def show(self) -> bytes:
        """Returns the secret to show now. Raises CredentialsError."""
        if isinstance(self._source, str):
            return self._form(self._source)
        if inspect.iscoroutinefunction(self._source):
            return self._told(await self._guarded(self._source()))
        found = await asyncio.to_thread(self._had)  # a file's disk or a function may be slow
        if inspect.isawaitable(found):
            found = await self._guarded(found)
        return self._told(found)

    def show_waiting(self) -> bytes:
        """Returns the secret to show now, and waits for it. A coroutine function cannot be waited
        for. Raises CredentialsError.
        """
        found = self._had()
        if inspect.isawaitable(found):
            if inspect.iscoroutine(found):
                found.close()
            raise CredentialsError(
                f"the function that makes the {self._what} is for asyncio; give a plain one here"
            )
        return self._told(found)

    def header(self, shown: bytes) -> str:
        """Returns the header Authorization that shows it."""
        return f"{self.scheme} {self._in_header(shown)}"

    def __repr__(self) -> str:
        source = repr(self._source) if isinstance(self._source, Path) else "..."
        return f"{type(self).__name__}({source})"

    @abstractmethod
    def _form(self, secret: str) -> bytes:
        """Returns the secret in the form that is shown."""

    @abstractmethod
    def _in_header(self, shown: bytes) -> str:
        """Returns the shown bytes as text for a header."""

    @abstractmethod
    def _checked(self, secret: str) -> str:
        """Returns the secret if its form is right. Raises InvalidInputError."""

    def _told(self, found: object) -> bytes:
        if not isinstance(found, str):
            raise CredentialsError(
                f"the function that makes the {self._what} returned a {type(found).__name__}; "
                "it has to return a str"
            )
        try:
            return self._form(self._checked(found))
        except InvalidInputError as error:
            where = f", in {self._source}" if isinstance(self._source, Path) else ""
            raise CredentialsError(f"{error}{where}") from None

    def _had(self) -> Any:
        """Returns the content of the file or the result of the function.
        Raises CredentialsError.
        """
        source = self._source
        if isinstance(source, Path):
            return _read(source, self._what)
        if isinstance(source, str):
            return source
        try:
            return source()
        except Exception as error:
            raise self._failed(error) from error

    async def _guarded(self, found: Awaitable[Any]) -> Any:
        try:
            return await found
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> CredentialsError:
        return CredentialsError(
            f"the function that makes the {self._what} failed with {type(error).__name__}: "
            "correct it; its traceback is attached"
        )


class Token(Credentials):
    """A token: itself, the file that has it, or a function, which may be a coroutine function.
    Raises InvalidInputError.
    """

    method = "token"
    scheme = "Bearer"

    def __init__(self, source: TokenSource) -> None:
        super().__init__(source, "token")

    def _form(self, secret: str) -> bytes:
        return secret.strip().encode()

    def _in_header(self, shown: bytes) -> str:
        return shown.decode()

    def _checked(self, secret: str) -> str:
        token = secret.strip()
        if not token:
            raise InvalidInputError("the token is empty")
        if len(token) > SHOWN_BYTES_MAX:
            raise InvalidInputError(f"the token has more than {SHOWN_BYTES_MAX} bytes")
        if not _TOKEN.fullmatch(token):
            raise InvalidInputError(
                "what is given as the token is none: give the token alone, such as `anabranch "
                "token create` prints it, or the Path of the file that has it"
            )
        return token


class Basic(Credentials):
    """A user with a password: itself, the file that has it, or a function.
    Raises InvalidInputError.
    """

    method = "basic"
    scheme = "Basic"

    def __init__(self, user: str, password: TokenSource) -> None:
        if not user or ":" in user:
            raise InvalidInputError(f"{user!r} is no user: it has a name, without a colon")
        self._user = user
        super().__init__(password, "password")

    def _form(self, secret: str) -> bytes:
        return f"{self._user}:{secret}".encode()

    def _in_header(self, shown: bytes) -> str:
        return base64.b64encode(shown).decode()

    def _checked(self, secret: str) -> str:
        if not secret or len(secret.encode()) > SHOWN_BYTES_MAX:
            raise InvalidInputError("the password is empty, or too long")
        return secret

    def _had(self) -> Any:
        found = super()._had()
        return found.rstrip("\r\n") if isinstance(self._source, Path) else found


def _read(file: Path, what: str) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(SHOWN_BYTES_MAX + 2).decode()
    except OSError as error:
        raise CredentialsError(
            f"{file}, which has the {what}, cannot be read: {error.strerror}; correct the path or "
            "its rights"
        ) from None
    except UnicodeDecodeError:
        raise CredentialsError(
            f"{file}, which should have the {what}, is no text: write it in UTF-8"
        ) from None
