"""The credentials of a client: a token.

A caller gives the token itself, the file that has it, or a function that returns it. So a token
that expires can be renewed. The file is read, or the function called, for each new
connection and after each challenge. HTTP reads a file for each request, and calls a function again
once a node refuses its former result.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from anabranch.access.errors import CredentialsError
from anabranch.core.errors import InvalidInputError

TokenSource = str | Path | Callable[[], str | Awaitable[str]]

SHOWN_BYTES_MAX: Final = 16_384  # nodes look at no more
NOTHING_SHOWN: Final = "Show who you are: by a token, or a client certificate"
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750


class Token:
    """A token: itself, the file that has it, or a function, which may be a coroutine function.
    Raises InvalidInputError.
    """

    method: Final = "token"  # Pulsar's name of its kind

    def __init__(self, source: TokenSource) -> None:
        if not isinstance(source, str | Path) and not callable(source):
            raise InvalidInputError(
                f"token is a str, the Path of a file, or a function, not a {type(source).__name__}"
            )
        self._source = source
        if isinstance(source, str):
            _checked(source)

    @property
    def is_renewable(self) -> bool:
        """True if the next `show` may return another token."""
        return not isinstance(self._source, str)

    @property
    def is_asked_for(self) -> bool:
        """True if a function makes it. That may take long, so do not call it for each request."""
        return not isinstance(self._source, str | Path)

    @property
    def renewal(self) -> str:
        """The advice for a refused token."""
        if isinstance(self._source, Path):
            return f"Put another token into {self._source}"
        if isinstance(self._source, str):
            return "Give another token"
        return "Have the function that makes the token return another one"

    async def show(self) -> bytes:
        """Returns the token to show now. Raises CredentialsError."""
        if isinstance(self._source, str):
            return self._told(self._source)
        if inspect.iscoroutinefunction(self._source):
            return self._told(await _guarded(self._source()))
        found = await asyncio.to_thread(self._had)  # a file's disk or a function may be slow
        if inspect.isawaitable(found):
            found = await _guarded(found)
        return self._told(found)

    def show_waiting(self) -> bytes:
        """Returns the token to show now, and waits for it. A coroutine function cannot be waited
        for. Raises CredentialsError.
        """
        found = self._had()
        if inspect.isawaitable(found):
            if inspect.iscoroutine(found):
                found.close()
            raise CredentialsError(
                "the function that makes the token is for asyncio; give a plain one here"
            )
        return self._told(found)

    def header(self, shown: bytes) -> str:
        """Returns the header Authorization that shows it."""
        return f"Bearer {shown.decode()}"

    def __repr__(self) -> str:
        source = repr(self._source) if isinstance(self._source, Path) else "..."
        return f"Token({source})"

    def _told(self, found: object) -> bytes:
        if not isinstance(found, str):
            raise CredentialsError(
                f"the function that makes the token returned a {type(found).__name__}; "
                "it has to return a str"
            )
        try:
            return _checked(found).encode()
        except InvalidInputError as error:
            where = f", in {self._source}" if isinstance(self._source, Path) else ""
            raise CredentialsError(f"{error}{where}") from None

    def _had(self) -> Any:
        """Returns the token, the content of the file or the result of the function.
        Raises CredentialsError.
        """
        source = self._source
        if isinstance(source, Path):
            return _read(source)
        if isinstance(source, str):
            return source
        try:
            return source()
        except Exception as error:
            raise _failed(error) from error


Credentials = Token
"""Everything that a client can show; a certificate is part of its TLS."""


async def _guarded(found: Awaitable[Any]) -> Any:
    try:
        return await found
    except Exception as error:
        raise _failed(error) from error


def _failed(error: Exception) -> CredentialsError:
    return CredentialsError(
        f"the function that makes the token failed with {type(error).__name__}: "
        "correct it; its traceback is attached"
    )


def _checked(text: str) -> str:
    """Returns the token in the text, if its form is right. Raises InvalidInputError."""
    token = text.strip()
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


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(SHOWN_BYTES_MAX + 2).decode()
    except OSError as error:
        raise CredentialsError(
            f"{file}, which has the token, cannot be read: {error.strerror}; correct the path or "
            "its rights"
        ) from None
    except UnicodeDecodeError:
        raise CredentialsError(
            f"{file}, which should have the token, is no text: write it in UTF-8"
        ) from None
