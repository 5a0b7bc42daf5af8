"""The identity of an archive: an id in its folder, under which the cluster's log knows it."""

from __future__ import annotations

import re
import secrets
from typing import Final

import msgspec

from anabranch.core.entities.archive import is_archive_id
from anabranch.spark_replay.archive.folders import Folder
from anabranch.spark_replay.sources import AuditError

IDENTITY: Final = "_archive.json"  # readers of Parquet skip names that start like this
_NAME_MAX: Final = 60
_STRANGE: Final = re.compile(r"[^A-Za-z0-9._-]+")


class ArchiveIdentity(msgspec.Struct, frozen=True):
    """The content of the identity file in an archive's folder.

    `log_id` is Kafka's own id of the archived topic. `first_offset` is the begin of the archive.
    """

    id: str
    log_id: str
    first_offset: int


def new_identity(folder: Folder, log_id: str, first_offset: int) -> ArchiveIdentity:
    """Makes an id that no other archive has, with the folder's name in it for people."""
    name = _STRANGE.sub("-", folder.name).strip("._-")[:_NAME_MAX] or "archive"
    return ArchiveIdentity(f"{name}-{secrets.token_hex(4)}", log_id, first_offset)


def read_identity(folder: Folder) -> ArchiveIdentity | None:
    """Returns the folder's identity, None if it has none yet.
    Raises AuditError if it is damaged.
    """
    try:
        found = msgspec.json.decode(folder.read(IDENTITY), type=ArchiveIdentity)
        if is_archive_id(found.id):
            return found
        reason = f"{found.id!r} is no archive's id"
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        reason = str(error)
    raise AuditError(
        f"{folder}/{IDENTITY} cannot be read ({reason}): start a new archive in another "
        "directory, and retire this one with `anabranch archive --retire ID` (`--list` shows "
        "the ids)"
    )


def write_identity(folder: Folder, identity: ArchiveIdentity) -> None:
    """Puts it into the folder, whole or not at all."""
    folder.write(IDENTITY, msgspec.json.encode(identity))


def place_of(folder: Folder) -> str:
    """Returns the place of a folder for people: host and path, or its URL."""
    return folder.where[:1_000]
