"""RocksDB as the views use it: raw bytes, one column family for each query, bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum, unique
from itertools import islice
from pathlib import Path
from typing import Final, cast

from rocksdict import (
    BlockBasedOptions,
    Cache,
    ColumnFamily,
    DBCompressionType,
    MemtableFactory,
    Options,
    Rdict,
    RdictIter,
    WriteBatch,
    WriteOptions,
)

from anabranch.core.log.records import CLUSTER_KEY
from anabranch.projections.errors import view_error

Row = tuple[bytes, bytes]


@unique
class Family(StrEnum):
    """The column families. Their hash is that of a str, which is computed once."""

    UNITS = "units"  # unit -> encoded Unit; names sort in ring order
    UNITS_BY_BROKER = "units_by_broker"  # broker, unit group -> how many of it name the broker
    UNSETTLED = "unsettled"  # unit in flight or deleted -> nothing
    POLICIES = "policies"  # cluster, session, archive, tenant or namespace -> entity
    TOPICS = "topics"  # scalable topic or subscription -> encoded entity
    RESTLESS = "restless"  # scalable topic with work for its controller -> nothing
    CHANGED = "changed"  # key changed since the horizon -> offset of its last change
    META = "meta"  # one row: the place in the log


def family_of(key: str) -> Family:
    """Returns where the entity of a key is stored."""
    kind, sep, _ = key.partition(":")
    if not sep:
        return Family.POLICIES if key == CLUSTER_KEY else Family.UNITS
    return Family.TOPICS if kind in _TOPIC_KINDS else Family.POLICIES


_TOPIC_KINDS: Final = ("topic", "subscription")
_BLOCK_CACHE_BYTES: Final = 16 << 20
_WRITE_BUFFER_BYTES: Final = 8 << 20
_ALL_BUFFERS_BYTES: Final = 24 << 20
_BULK_BUFFER_BYTES: Final = 32 << 20
_LEVEL0_FILES: Final = 8
_OPEN_FILES_MAX: Final = 256


class Store:
    """An open database. Reads are safe from any thread, writes from one.

    `bulk`: for one bulk load into an empty folder: no write-ahead log, and buffers that are
    sorted only when they are flushed, in RocksDB's own thread.
    """

    def __init__(self, path: Path, *, bulk: bool = False) -> None:
        self._path = path
        self._has_failed = False
        tables = BlockBasedOptions()
        tables.set_block_cache(Cache(_BLOCK_CACHE_BYTES))
        tables.set_cache_index_and_filter_blocks(True)
        tables.set_bloom_filter(10, False)
        options = _options(tables, bulk=bulk)
        try:
            self._db = Rdict(
                str(path), options, {family.value: _options(tables, bulk=bulk) for family in Family}
            )
        except Exception as error:
            raise view_error(path, error) from error
        self._rows = {family: self._db.get_column_family(family.value) for family in Family}
        self.families: dict[Family, ColumnFamily] = {
            family: self._db.get_column_family_handle(family.value) for family in Family
        }
        self._writing = WriteOptions()
        # In the installed release this is a property; its type stub calls it a method.
        setattr(self._writing, "disable_wal", bulk)  # noqa: B010

    def get(self, family: Family, key: bytes) -> bytes | None:
        """Returns the value, if there is one."""
        try:
            value: bytes | None = self._rows[family].get(key)
        except Exception as error:
            raise view_error(self._path, error) from error
        return value

    def rows(self, family: Family, prefix: bytes = b"") -> Iterator[Row]:
        """Yields keys that start with `prefix`, in order, and values, as of the first step."""
        try:
            last = prefix
            found = cast(Iterator[Row], self._rows[family].items(from_key=prefix))
            for row in found:
                if not row[0].startswith(prefix):
                    return
                last = row[0]
                yield row
            self._ended(family, last)
        except Exception as error:
            raise view_error(self._path, error) from error

    def chunks(self, family: Family, size: int) -> Iterator[list[Row]]:
        """Yields all rows in order, `size` at a time; the fastest way through a family."""
        try:
            found = cast(Iterator[Row], self._rows[family].items())
            last = b""
            while chunk := list(islice(found, size)):
                last = chunk[-1][0]
                yield chunk
            self._ended(family, last)
        except Exception as error:
            raise view_error(self._path, error) from error

    def slice(self, family: Family, start: bytes, size: int) -> list[Row]:
        """Returns the first rows in order, at most `size`, from the key `start` on."""
        try:
            found = cast(Iterator[Row], self._rows[family].items(from_key=start))
            rows = list(islice(found, size))
            if len(rows) < size:
                self._ended(family, rows[-1][0] if rows else start)
        except Exception as error:
            raise view_error(self._path, error) from error
        return rows

    def _ended(self, family: Family, last: bytes) -> None:
        """Makes sure that nothing follows this key, because `items` takes damage for the end of all
        rows.
        """
        cursor = self._rows[family].iter()
        cursor.seek(last)
        if cursor.valid() and cursor.key() == last:
            cursor.next()
        if not cursor.valid():
            cursor.status()

    def cursor(self, family: Family) -> RdictIter:
        """A cursor over the family as it is now, without later writes."""
        return self._rows[family].iter()

    def check(self, cursor: RdictIter) -> None:
        """Raises ViewError where a cursor that is not valid has met damage, and no end."""
        try:
            cursor.status()
        except Exception as error:
            raise view_error(self._path, error) from error

    def write(self, batch: WriteBatch) -> None:
        """Writes all of the batch, or nothing of it when this raises."""
        try:
            self._db.write(batch, self._writing)
        except Exception as error:
            self._has_failed = True
            raise view_error(self._path, error) from error

    def flush(self) -> None:
        """Writes everything to table files."""
        try:
            for rows in self._rows.values():
                rows.flush(True)
        except Exception as error:
            raise view_error(self._path, error) from error

    def close(self) -> None:
        """Closes the files. Calling it again does nothing. After a failed write it raises no
        further error, because that was told, and the earlier writes are in the write-ahead log.
        """
        if not self._rows:
            return
        self.families.clear()
        opened = [*self._rows.values(), self._db]
        self._rows.clear()
        for each in opened:
            try:
                each.close()
            except Exception as error:
                if not self._has_failed:
                    raise view_error(self._path, error) from error


def _options(tables: BlockBasedOptions, *, bulk: bool) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_block_based_table_factory(tables)
    options.set_max_open_files(_OPEN_FILES_MAX)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1 << 20)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_max_write_buffer_number(3)
    if bulk:
        options.set_memtable_factory(MemtableFactory.vector())
        options.set_allow_concurrent_memtable_write(False)
        options.set_disable_auto_compactions(True)
        options.set_write_buffer_size(_BULK_BUFFER_BYTES)
        options.set_compression_type(DBCompressionType.none())
    else:
        options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
        options.set_db_write_buffer_size(_ALL_BUFFERS_BYTES)
        options.set_max_total_wal_size(_ALL_BUFFERS_BYTES)
        options.set_compression_type(DBCompressionType.lz4())
        # More than a bulk load of a million units leaves: no compaction while a node starts.
        options.set_level_zero_file_num_compaction_trigger(_LEVEL0_FILES)
    return options


def new_batch() -> WriteBatch:
    """Writes that will be made together."""
    return WriteBatch(raw_mode=True)
