"""Files of secrets and certificates, read again when they change.

New content must be whole and sound before it takes the place of the old. A file that is just being
written, or is broken, changes nothing: the node logs a line, and looks at it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

from anabranch.access.tls import digest_of
from anabranch.broker.errors import StartError
from anabranch.broker.logging import get_logger

_BYTES_MAX: Final = 1 << 20
_T = TypeVar("_T")
_log = get_logger()


class ReadAgain(Generic[_T]):
    """The value that `load` makes of some files. Raises StartError if it cannot at the start.

    `load` raises StartError, with the remedy, for files that it cannot use. It runs in a thread
    after the first time.
    """

    def __init__(self, what: str, files: Sequence[Path], load: Callable[[], _T]) -> None:
        self._what = what
        self._files = tuple(files)
        self._load = load
        self._seen = digest_of(self._files)  # the files of `current`
        self._refused = b""  # the files that were of no use, which is said once
        self.current: _T = load()
        self.generation = 0  # higher with each change

    async def look(self) -> None:
        """Takes the files' content of now, if it has changed and is sound."""
        found = await asyncio.to_thread(digest_of, self._files)
        if found == self._seen:
            self._refused = b""
            return
        try:
            self.current = await asyncio.to_thread(self._load)
        except StartError as error:
            # Tried again: it may be whole, and only could not be read just now.
            if found != self._refused:
                self._refused = found
                self._not_taken(str(error))
            return
        except Exception as error:  # noqa: BLE001 - who follows the file must go on to
            self._not_taken(f"{type(error).__name__}: it is tried again", error)
            return
        self._seen, self._refused = found, b""
        self.generation += 1
        _log.info("security.file_taken", what=self._what, files=list(map(str, self._files)))

    def _not_taken(self, why: str, fault: Exception | None = None) -> None:
        _log.error(
            "security.file_not_taken",
            what=self._what,
            why=why,
            remedy="correct it; until then what was read before goes on",
            exc_info=fault,
        )

    async def follow(self, period_s: float) -> None:
        """Looks again and again; for a task."""
        while True:
            await asyncio.sleep(period_s)
            await self.look()


def read_file(file: Path, setting: str) -> bytes:
    """Returns the content of a setting's file. Raises StartError."""
    try:
        with file.open("rb") as stream:
            content = stream.read(_BYTES_MAX + 1)
    except OSError as error:
        raise StartError(
            f"{file}, which is {setting}, cannot be read: {error.strerror}; correct the path or "
            "its rights"
        ) from None
    if len(content) > _BYTES_MAX:
        raise StartError(f"{file}, which is {setting}, has more than {_BYTES_MAX} bytes")
    return content
