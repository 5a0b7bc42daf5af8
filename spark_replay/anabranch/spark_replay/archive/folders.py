"""The folders of archives: on this machine, or on any file system that Hadoop knows.

This module has the few operations on a folder beside Spark's own reading and writing. A path or a
`file:` URL is a folder of this machine. Python's own calls promise more for it: a lock, and data on
the disk. Any other URL goes through the JVM, as Spark's checkpoints do there
(`CheckpointFileManager`): a file appears whole or not at all.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from anabranch.core.errors import AnabranchError, InvalidInputError
from anabranch.spark_replay.spark.failures import cause

Place = Path | str  # a path, or a URL

_LOCK: Final = "_lock"  # readers of Parquet skip names that start like this
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class FolderError(AnabranchError):
    """A folder cannot be used. The message has the remedy."""


def folder_at(place: Place, spark: SparkSession) -> Folder:
    """Returns the folder that a path or a URL names. Raises FolderError."""
    local = local_folder(place)
    return HadoopFolder(str(place), spark) if local is None else local


def local_folder(place: Place) -> LocalFolder | None:
    """Returns the folder if it is one of this machine, None if not.
    Raises FolderError for a `file:` URL with a host.
    """
    if isinstance(place, Path) or not _URL.match(place):
        return LocalFolder(Path(place))
    parts = urlsplit(place, allow_fragments=False)
    if parts.scheme.lower() != "file":
        return None
    if parts.netloc not in ("", "localhost"):
        raise FolderError(f"{place} names a host: write file:///PATH for a folder of this machine")
    return LocalFolder(Path(unquote(f"{parts.path}?{parts.query}" if parts.query else parts.path)))


def checked_place(given: str) -> Place:
    """Returns the user's text in a form that holds in any process. Raises InvalidInputError."""
    if not given.strip():
        raise InvalidInputError("the name of the archive's directory is empty")
    if _URL.match(given):
        without = given.rstrip("/")
        return without if _URL.match(without) else given  # the root of a file system
    return Path(given).absolute()


class LocalFolder:
    """A folder of this machine, or one that is mounted here."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def __str__(self) -> str:
        return str(self.path)

    @property
    def url(self) -> str:
        """The URL. A plain path would belong to Hadoop's default file system, which may be another
        one.

        Hadoop takes every character behind the host literally.
        """
        return f"file://{self.path}"

    @property
    def where(self) -> str:
        """The place, for people of other machines."""
        return f"{socket.gethostname()}:{self.path}"

    @property
    def name(self) -> str:
        return self.path.name

    def is_there(self) -> bool:
        return self.path.is_dir()

    def make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def names(self, *inside: str) -> list[str]:
        """Returns the names of the files of a folder in it, none if there is no such folder."""
        folder = self.path.joinpath(*inside)
        return [path.name for path in folder.iterdir()] if folder.is_dir() else []

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each file of the folder itself, by name."""
        with os.scandir(self.path) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}

    def read(self, *inside: str) -> bytes:
        """Returns a file's content. Raises FileNotFoundError."""
        return self.path.joinpath(*inside).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Puts a file there, whole or not at all. It is on the disk when this returns."""
        fresh = self.path / f"{name}.new"
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path / name)
        sync(self.path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps a second writer out. Raises FolderError."""
        with (self.path / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderError(
                    f"another process archives into {self.path}: stop it, or name another directory"
                ) from None
            yield


def sync(path: Path) -> None:
    """Returns once a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class HadoopFolder:
    """A folder of any file system for which this Spark has the jars.

    Nothing locks it. Spark's checkpoint refuses a second writer, batch by batch. For that the file
    system must put a file in place only if there is none yet (HDFS does).
    """

    def __init__(self, url: str, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        conf = spark.sparkContext._jsc.hadoopConfiguration()
        self.url = self.where = url
        self._path: Any = jvm.org.apache.hadoop.fs.Path
        self._bytes: Any = jvm.org.apache.commons.io.IOUtils.toByteArray
        streaming = jvm.org.apache.spark.sql.execution.streaming
        try:
            root = self._path(url)
            self._system: Any = root.getFileSystem(conf)
            self._whole: Any = streaming.CheckpointFileManager.create(root, conf)
        except Py4JJavaError as error:
            raise FolderError(
                f"{url} cannot be used: {cause(error)}. Correct the URL; a file system whose jars "
                "are not part of Spark needs them (--spark-conf spark.jars=FILE,...), and its "
                "settings (--spark-conf spark.hadoop.NAME=VALUE)"
            ) from None

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    def is_there(self) -> bool:
        with self._told():
            return self._is_folder(self._at())

    def make(self) -> None:
        with self._told():
            self._system.mkdirs(self._at())

    def names(self, *inside: str) -> list[str]:
        with self._told():
            folder = self._at(*inside)
            if not self._is_folder(folder):
                return []
            return [each.getPath().getName() for each in self._system.listStatus(folder)]

    def sizes(self) -> dict[str, int]:
        with self._told():
            found = self._system.listStatus(self._at())
            return {each.getPath().getName(): each.getLen() for each in found if each.isFile()}

    def read(self, *inside: str) -> bytes:
        with self._told():
            file = self._at(*inside)
            if not self._system.exists(file):
                raise FileNotFoundError(f"there is no {file.toString()}")
            stream = self._system.open(file)
            try:
                return bytes(self._bytes(stream))
            finally:
                stream.close()

    def write(self, name: str, data: bytes) -> None:
        with self._told():
            stream = self._whole.createAtomic(self._at(name), True)
            try:
                stream.write(data)
            except Py4JJavaError:
                stream.cancel()
                raise
            stream.close()

    def locked(self) -> AbstractContextManager[None]:
        return nullcontext()

    def _at(self, *inside: str) -> Any:
        return self._path("/".join((self.url, *inside)))

    def _is_folder(self, path: Any) -> bool:
        return bool(self._system.exists(path)) and bool(
            self._system.getFileStatus(path).isDirectory()
        )

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            raise FolderError(
                f"{self.url} cannot be used: {cause(error)}; check that its file system "
                "answers, and lets this user in"
            ) from None


Folder = LocalFolder | HadoopFolder
