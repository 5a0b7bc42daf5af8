"""The end of an archive, its own files and their rows, by the logs that Spark keeps in it.

Spark lists files by the place of their writing. An archive may be moved or copied, so only their
names count here. All of them are in the folder itself.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.spark_replay.archive.folders import Folder, LocalFolder, Place, folder_at, sync
from anabranch.spark_replay.sources import LOG_COLUMNS, METADATA_LOG, AuditError, Extent

CHECKPOINT: Final = "_checkpoint"  # readers of Parquet skip names that start like this
RESTORE: Final = (
    "bring it back from a copy of the archive, or start a new archive in another directory"
)
_WHOLE: Final = ".compact"
_OF_PATTERNS: Final = re.compile(r"[][{}*?\\]")
_VERSION: Final = "v1"  # the version of the sink's lists


class ListedFile(msgspec.Struct, frozen=True):
    """A file of the archive. `place` is the folder in which it was written, by Spark's name."""

    name: str
    size: int
    place: str


class _Line(msgspec.Struct):
    """A line of the sink's log."""

    path: str
    size: int


def next_offset(folder: Folder) -> int | None:
    """Returns the first offset that is not certainly in the archive, None for an empty archive."""
    batch = committed_batch(folder)
    return None if batch is None else offset_of(folder, batch)


def committed_batch(folder: Folder) -> int | None:
    """Returns the newest batch that is both in the sink's log and committed in the checkpoint."""
    committed = _numbers(folder.names(CHECKPOINT, "commits"))
    listed = _numbers(folder.names(METADATA_LOG))
    if not committed or not listed:
        return None
    return min(max(committed), max(listed))


def offset_of(folder: Folder, batch: int) -> int:
    """Returns the exclusive end of a batch. Raises AuditError for a damaged checkpoint."""
    try:
        lines = folder.read(CHECKPOINT, "offsets", str(batch)).decode().splitlines()
        (partitions,) = json.loads(lines[2]).values()
        return int(partitions["0"])
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise AuditError(
            f"{folder}/{CHECKPOINT}/offsets/{batch} cannot be read ({error}): the archive's "
            "checkpoint is damaged; start a new archive in another directory"
        ) from None


def listed_files(folder: Folder) -> list[ListedFile]:
    """Returns the archive's own files, in the order of their batches. Other files in the folder do
    not count.

    Raises AuditError if a list of them is missing or damaged.
    """
    names = {max(_numbers([name])): name for name in _lists(folder)}
    whole = [number for number, name in names.items() if name.endswith(_WHOLE)]
    wanted = range(max(whole, default=0), max(names, default=-1) + 1)
    files: list[ListedFile] = []
    for number in wanted:
        if number not in names:
            raise _unreadable(folder, str(number), "it is missing")
        files += _files(folder, names[number])
    return files


def _lists(folder: Folder) -> list[str]:
    """Returns the names of the sink's lists.
    A list with all those before it comes behind its batch's own.
    """
    return sorted(name for name in folder.names(METADATA_LOG) if _numbers([name]))


def _files(folder: Folder, batch: str) -> list[ListedFile]:
    try:
        version, *lines = folder.read(METADATA_LOG, batch).decode().splitlines()
        found = [msgspec.json.decode(line, type=_Line) for line in lines]
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise _unreadable(folder, batch, f"it cannot be read: {error}") from None
    if version != _VERSION:
        raise _unreadable(folder, batch, f"it begins with {version!r}, not {_VERSION!r}")
    parts = ((*unquote(line.path).rpartition("/"), line.size) for line in found)
    return [ListedFile(name, size, place) for place, _, name, size in parts]


def _unreadable(folder: Folder, batch: str, why: str) -> AuditError:
    return AuditError(
        f"{folder}/{METADATA_LOG}/{batch} lists files of the archive, and {why}; {RESTORE}"
    )


def sync_batches(folder: LocalFolder, after_batch: int) -> None:
    """Syncs all that Spark has written since a batch, because a rename alone may not outlive a
    power cut.

    Spark leaves that to the operating system. Raises AuditError if data is not there. Then workers
    on other machines have written it, into a folder that only has the same name.
    """
    checkpoint = folder.path / CHECKPOINT
    names = {folder.path, checkpoint}
    for part in ("offsets", "commits"):
        names |= {checkpoint / part, *(checkpoint / part).iterdir()}
    log = folder.path / METADATA_LOG
    names.add(log)
    data: set[Path] = set()
    for name in folder.names(METADATA_LOG):
        if max(_numbers([name]), default=-1) > after_batch:
            names.add(log / name)
            data |= {folder.path / file.name for file in _files(folder, name)}
    for path in sorted(data):
        try:
            sync(path)
        except FileNotFoundError:
            raise AuditError(
                f"{path} was written, but is not there: the workers have another {folder} than "
                "this process; name a folder that all of them share, or a URL as hdfs://HOST/PATH, "
                "and start a new archive there"
            ) from None
    for path in sorted(names):
        try:
            sync(path)
        except FileNotFoundError:
            continue  # an old entry of a log that was compacted meanwhile


def _numbers(names: list[str]) -> list[int]:
    stems = (name.removesuffix(_WHOLE) for name in names)
    return [int(stem) for stem in stems if stem.isdigit()]


# --- its rows --------------------------------------------------------------------------------


def read_archive(spark: SparkSession, place: Place | None) -> DataFrame | None:
    """Returns the archive's rows, by the lists of its sink's own log, None if there is no archive
    yet.

    It ignores files that a killed archive left unlisted.
    """
    if place is None:
        return None
    folder = folder_at(place, spark)
    if not folder.is_there():
        raise AuditError(f"there is no archive in {folder}: check the path, or leave it out")
    files = sound_files(folder)
    if not files:
        return None
    # Spark reads files at the place of their writing, and lists none if they are there still.
    written_here = {file.place for file in files} == {folder.url}
    frame = spark.read.parquet(*([folder.url] if written_here else _urls(folder, files)))
    missing = [name for name in LOG_COLUMNS if name not in frame.columns]
    if missing:
        raise AuditError(f"{folder} is not an archive of a WAL: it has no column {missing[0]!r}")
    return frame.select(*LOG_COLUMNS)


def archive_extent(archive: DataFrame | None) -> Extent | None:
    """Returns the first and the next offset of the archive, None if it is empty."""
    if archive is None:
        return None
    found = archive.agg(F.min("offset"), F.max("offset")).first()
    if found is None or found[0] is None:
        return None
    return Extent(found[0], found[1] + 1)


def sound_files(folder: Folder) -> list[ListedFile]:
    """Returns the archive's files.
    Raises AuditError if a file or a list is missing or cut short.
    """
    names = folder.names()
    if METADATA_LOG not in names:
        copied = any(name.endswith(".parquet") for name in names) and CHECKPOINT not in names
        if copied or folder.names(CHECKPOINT, "commits"):
            raise AuditError(
                f"{folder} has Parquet, but no {METADATA_LOG}, which lists what of it is the "
                "archive: copy the whole folder, with the names that begin with _"
            )
        return []
    files = listed_files(folder)
    sizes = folder.sizes()
    for file in files:
        size = sizes.get(file.name)
        if size != file.size:
            is_now = "is missing" if size is None else f"has {size} of its {file.size} bytes"
            raise AuditError(f"{folder}/{file.name}, which is of the archive, {is_now}; {RESTORE}")
    return files


def _urls(folder: Folder, files: list[ListedFile]) -> list[str]:
    """Returns the URLs with escapes, because Spark takes some characters of a name for a
    pattern's.
    """
    return [_OF_PATTERNS.sub(r"\\\g<0>", f"{folder.url}/{file.name}") for file in files]
