"""The code of tasks, as archives for workers that have nothing but Spark, Java and Python.

Executors unpack them and name the folders on PYTHONPATH. Python does not find a package with
compiled parts inside an archive, nor a namespace package before Python 3.14. Packages of others are
kept in the cache under a name that tells their versions. Our own modules, which are small, are
packed for each session. PySpark is not among them, because it comes with the worker's Spark.
"""

from __future__ import annotations

import hashlib
import os
import platform
import py_compile
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

import anabranch
from anabranch.jars.cache import default_cache_dir

# The imports of the tasks of audit and back-test, with the imports of those.
TASK_PACKAGES: Final = (
    "confluent-kafka",
    "cramjam",
    "fastavro",
    "mmh3",
    "msgspec",
    "numpy",
    "pandas",
    "pyarrow",
    "python-dateutil",
    "pytz",
    "six",
    "transitions",
    "typing-extensions",
    "tzdata",
)
_NEEDLESS: Final = frozenset({"tests", "include", "__pycache__"})
_KEPT_S: Final = 7 * 86_400.0  # archives that are unused for so long are deleted

_Files = Iterable[tuple[Path, str]]  # the path of each, and its name in the archive


def pack_packages(cache_dir: Path | None = None) -> Path:
    """Returns the archive of others' packages.
    It makes one if the cache has none of these versions.
    """
    found = [distribution(name) for name in TASK_PACKAGES]
    folder = (cache_dir or default_cache_dir()) / "spark-packages"
    archive = folder / f"{_digest(found)}.zip"
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _forget_old(folder)
        _pack(archive, _files_of(found), compiled=True)
    os.utime(archive)
    return archive


def pack_modules(folder: Path) -> Path:
    """Returns the archive of the modules of `anabranch`, from any place of their installation."""
    archive = folder / "modules.zip"
    _pack(archive, _own_files(), compiled=False)
    return archive


def _digest(found: Iterable[Distribution]) -> str:
    said = [sys.implementation.cache_tag, sysconfig.get_platform(), platform.libc_ver()[0]]
    said += [f"{each.name}=={each.version}" for each in found]
    return hashlib.sha256("\n".join(map(str, said)).encode()).hexdigest()[:12]


def _files_of(found: Iterable[Distribution]) -> Iterator[tuple[Path, str]]:
    for each in found:
        for file in each.files or ():
            path = Path(str(each.locate_file(file)))
            if not _NEEDLESS & set(file.parts) and ".." not in file.parts and path.is_file():
                yield path, str(file)


def _own_files() -> Iterator[tuple[Path, str]]:
    for portion in map(Path, anabranch.__path__):
        for path in sorted(portion.rglob("*")):
            name = path.relative_to(portion.parent)
            if path.is_file() and not _NEEDLESS & set(name.parts):
                yield path, str(name)


def _pack(archive: Path, files: _Files, *, compiled: bool) -> None:
    """Writes the archive elsewhere and renames it, so that nobody sees a part of it."""
    descriptor, fresh = tempfile.mkstemp(dir=archive.parent, suffix=".part")
    try:
        with (
            os.fdopen(descriptor, "wb") as to,
            zipfile.ZipFile(
                to, "w", zipfile.ZIP_DEFLATED, compresslevel=1, strict_timestamps=False
            ) as packed,
        ):
            for path, name in files:
                packed.write(path, name)
                if compiled and path.suffix == ".py":
                    _add_compiled(packed, path, name)
        Path(fresh).replace(archive)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise


def _add_compiled(packed: zipfile.ZipFile, path: Path, name: str) -> None:
    """Adds the compiled form, because each executor would compile all its imports: a good part of a
    short job's time.
    """
    with tempfile.NamedTemporaryFile(suffix=".pyc") as compiled:
        try:
            py_compile.compile(
                str(path),
                compiled.name,
                name,
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
        except py_compile.PyCompileError:
            return  # a template, or for another Python, and so never imported
        packed.write(compiled.name, cache_from_source(name))


def _forget_old(folder: Path) -> None:
    for path in folder.iterdir():
        if time.time() - path.stat().st_mtime > _KEPT_S:
            path.unlink(missing_ok=True)
