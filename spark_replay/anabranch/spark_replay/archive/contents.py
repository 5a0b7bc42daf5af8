"""How far an archive has got, by the logs that Spark keeps in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from anabranch.spark_replay.archive.folders import Folder, LocalFolder, sync
from anabranch.spark_replay.sources import METADATA_LOG, AuditError

CHECKPOINT: Final = "_checkpoint"  # readers of Parquet skip names that start like this


def next_offset(folder: Folder) -> int | None:
    """The first offset that is not in the archive for certain; None for an empty one."""
    batch = committed_batch(folder)
    return None if batch is None else offset_of(folder, batch)


def committed_batch(folder: Folder) -> int | None:
    """The newest batch that is both in the sink's log and committed in the checkpoint."""
    committed = _numbers(folder.names(CHECKPOINT, "commits"))
    listed = _numbers(folder.names(METADATA_LOG))
    if not committed or not listed:
        return None
    return min(max(committed), max(listed))


def offset_of(folder: Folder, batch: int) -> int:
    """Returns where a batch ends, exclusive. Raises AuditError for a damaged checkpoint."""
    try:
        lines = folder.read(CHECKPOINT, "offsets", str(batch)).decode().splitlines()
        (partitions,) = json.loads(lines[2]).values()
        return int(partitions["0"])
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise AuditError(
            f"{folder}/{CHECKPOINT}/offsets/{batch} cannot be read ({error}): the archive's "
            "checkpoint is damaged; start a new archive in another directory"
        ) from None


def sync_batches(folder: LocalFolder, after_batch: int) -> None:
    """Syncs what Spark has written since a batch: a rename alone may not outlive a power cut.

    Spark itself leaves that to the operating system. Raises AuditError when data is not there:
    workers on other machines have written it, into a folder that only has the same name.
    """
    checkpoint = folder.path / CHECKPOINT
    names = {folder.path, checkpoint}
    for part in ("offsets", "commits"):
        names |= {checkpoint / part, *(checkpoint / part).iterdir()}
    log = folder.path / METADATA_LOG
    names.add(log)
    data: set[Path] = set()
    for entry in log.iterdir():
        if _numbers([entry.name]) and _numbers([entry.name])[0] > after_batch:
            names.add(entry)
            for line in entry.read_text(encoding="utf-8").splitlines()[1:]:
                data.add(Path(unquote(urlparse(json.loads(line)["path"]).path)))
    for path in sorted(data):
        try:
            sync(path)
        except FileNotFoundError:
            raise AuditError(
                f"{path} was written, but is not there: the workers have another {folder} than "
                "this process; name a folder that all of them share, or a URL as hdfs://HOST/PATH, "
                "and start a new archive there"
            ) from None
    for path in sorted(names | {path.parent for path in data}):
        try:
            sync(path)
        except FileNotFoundError:
            continue  # an old entry of a log that was compacted meanwhile


def _numbers(names: list[str]) -> list[int]:
    stems = (name.removesuffix(".compact") for name in names)
    return [int(stem) for stem in stems if stem.isdigit()]
