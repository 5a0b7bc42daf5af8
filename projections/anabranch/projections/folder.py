"""The folder of a view: one process at a time, and one complete generation of the database.

A generation that is damaged is kept beside the folder, for people; the newest two of them are.

A bulk load writes a new generation next to the current one, which is renamed when it is complete. A
crash in the middle thus leaves the view as it was, and the next start removes the unfinished one.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from pathlib import Path

from anabranch.projections.errors import ViewLockedError, view_error

_GENERATION = re.compile(r"view-(\d{6})")
_UNFINISHED = "loading-"
_LOCK = "lock"
_DAMAGED_MAX = 2


class ViewFolder:
    """Holds the folder's lock from construction to `close`.

    Raises ViewLockedError, or ViewFullError and ViewRefusedError when the folder cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            if (path / _LOCK).is_dir():  # nobody's lock, so it keeps nobody out
                self._put_aside(path / _LOCK)
            self._lock = (path / _LOCK).open("wb")
        except OSError as error:
            raise view_error(path, error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise ViewLockedError(path) from None
        self._number = max(self._generations(), default=0)
        self._clean()

    @property
    def current(self) -> Path:
        """Returns where the database is, or shall be made."""
        return self.path / f"view-{self._number:06d}"

    @property
    def unfinished(self) -> Path:
        """Returns where a bulk load writes."""
        return self.path / f"{_UNFINISHED}{self._number + 1:06d}"

    def discard_unfinished(self) -> None:
        """Removes what an earlier bulk load left."""
        shutil.rmtree(self.unfinished, ignore_errors=True)

    def replace(self) -> None:
        """The unfinished generation is complete and closed: it becomes the current one."""
        unfinished = self.unfinished
        self._number += 1
        try:
            unfinished.rename(self.current)
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise view_error(self.path, error) from error
        self._clean()

    def put_aside(self) -> Path:
        """The current generation is damaged, and closed: it is kept elsewhere. Returns where."""
        try:
            return self._put_aside(self.current)
        except OSError as error:
            raise view_error(self.path, error) from error

    def _put_aside(self, damaged: Path) -> Path:
        name = re.compile(re.escape(self.path.name) + r"\.damaged-(\d+)")
        found = ((name.fullmatch(entry.name), entry) for entry in self.path.parent.iterdir())
        kept = {int(match[1]): entry for match, entry in found if match}
        for number in sorted(kept)[: max(len(kept) + 1 - _DAMAGED_MAX, 0)]:
            shutil.rmtree(kept[number], ignore_errors=True)
        number = max(kept, default=0) + 1
        return damaged.rename(self.path.with_name(f"{self.path.name}.damaged-{number}"))

    def close(self) -> None:
        """Lets the next process in."""
        self._lock.close()

    def _generations(self) -> list[int]:
        found = (_GENERATION.fullmatch(entry.name) for entry in self.path.iterdir())
        return [int(match[1]) for match in found if match]

    def _clean(self) -> None:
        for entry in self.path.iterdir():
            match = _GENERATION.fullmatch(entry.name)
            outdated = match is not None and int(match[1]) != self._number
            if outdated or entry.name.startswith(_UNFINISHED):
                shutil.rmtree(entry, ignore_errors=True)
