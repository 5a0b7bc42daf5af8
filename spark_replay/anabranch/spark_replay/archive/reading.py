"""Reads the archive by Spark: its own files, all of them there and whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.spark_replay.archive.contents import (
    CHECKPOINT,
    RESTORE,
    ListedFile,
    committed_batch,
    listed_files,
    offset_of,
)
from anabranch.spark_replay.archive.folders import Folder, Place, folder_at
from anabranch.spark_replay.archive.identity import read_identity
from anabranch.spark_replay.sources import LOG_COLUMNS, METADATA_LOG, AuditError, Extent

_OF_PATTERNS: Final = re.compile(r"[][{}*?\\]")


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
    files = sound_files(spark, folder)
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


def sound_files(spark: SparkSession, folder: Folder) -> list[ListedFile]:
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
    for at, file in enumerate(files):
        size = sizes.get(file.name)
        if size != file.size:
            sound = [sizes.get(each.name) == each.size for each in files]
            held = _held(spark, folder, files, sound, at)
            is_now = "is missing" if size is None else f"has {size} of its {file.size} bytes"
            raise AuditError(f"{folder}/{file.name}, which held {held}, {is_now}; {RESTORE}")
    return files


def _held(
    spark: SparkSession, folder: Folder, files: Sequence[ListedFile], sound: Sequence[bool], at: int
) -> str:
    """Returns the offsets that a file held, by those of its nearest sound neighbours."""

    def edge(places: Sequence[int], take: Callable[[str], Column]) -> int | None:
        near = [files[place] for place in places if sound[place]][:1]
        if not near:
            return None
        row = spark.read.parquet(*_urls(folder, near)).agg(take("offset")).first()
        return None if row is None else row[0]

    before = edge(range(at - 1, -1, -1), F.max)
    after = edge(range(at + 1, len(files)), F.min)
    if after is None:
        batch = committed_batch(folder)
        after = None if batch is None else offset_of(folder, batch)
    identity = read_identity(folder)
    begins = "?" if identity is None else identity.first_offset
    first = begins if before is None else before + 1
    return f"offsets {first} to {'?' if after is None else after - 1}"


def _urls(folder: Folder, files: Sequence[ListedFile]) -> list[str]:
    """Returns the URLs with escapes, because Spark takes some characters of a name for a
    pattern's.
    """
    return [_OF_PATTERNS.sub(r"\\\g<0>", f"{folder.url}/{file.name}") for file in files]
