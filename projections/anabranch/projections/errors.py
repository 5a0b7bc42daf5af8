"""The errors of a view; each message names the folder and the remedy."""

from __future__ import annotations

from pathlib import Path

from anabranch.core.errors import AnabranchError


class ViewError(AnabranchError):
    """A view cannot go on. Whatever it held is still in the log."""


class ViewLockedError(ViewError):
    """Another process has the folder open."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"the view in {path} is in use by another process: stop that one, or give this node a "
            "data directory of its own"
        )


class ViewFullError(ViewError):
    """The disk has no room for what was folded; nothing of the batch is in the view."""

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(
            f"no room to write the view in {path} ({detail}): free some space and start the node "
            "again; it goes on where it stopped"
        )


class ViewRefusedError(ViewError):
    """The disk itself refuses to read or write, which no other view would change."""

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(
            f"the view in {path} cannot be read or written ({detail}): check the disk and the "
            "folder's permissions, and start the node again"
        )


class ViewDamagedError(ViewError):
    """The files are not what this release has written. `why`: in words."""

    def __init__(self, path: Path, why: str) -> None:
        self.why = why
        super().__init__(
            f"the view in {path} is damaged ({why}): start the node again; it puts the view aside "
            "and builds it anew from the snapshot and the log. If it is damaged again, check the "
            "disk"
        )


class SnapshotDamagedError(ViewError):
    """A snapshot is not the state that its writer had; nothing of it was taken over."""


class ViewOffsetError(ViewError):
    """The view was asked to go back in the log."""


class ViewLogError(ViewError):
    """The view was folded from another log: its offsets mean nothing in this one."""

    def __init__(self, path: Path, found: str, log_id: str, log: str) -> None:
        super().__init__(
            f"the view in {path} was folded from the log with topic id {found or '(not known)'}, "
            f"but {log} has topic id {log_id}: if topicPrefix and bootstrapServers are those that "
            "are meant, delete the folder, and the view is rebuilt from the snapshot and the log; "
            "otherwise correct them, or name another dataDir"
        )


_NO_ROOM = ("No space left", "File too large", "Disk quota")
_IN_USE = ("While lock file", "lock hold by")
_NO_FILE = ("No such file", "Is a directory", "Not a directory")


def view_error(path: Path, error: Exception) -> ViewError:
    """Returns what an error of RocksDB, which raises bare exceptions, means for the user."""
    detail = str(error)

    def says(signs: tuple[str, ...]) -> bool:
        return any(sign in detail for sign in signs)

    if says(_NO_ROOM):
        return ViewFullError(path, detail)
    if says(_IN_USE):
        return ViewLockedError(path)
    if isinstance(error, OSError) or ("IO error" in detail and not says(_NO_FILE)):
        return ViewRefusedError(path, detail)
    return ViewDamagedError(path, detail)
