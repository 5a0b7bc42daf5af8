"""The jars of Kafka and of Spark's connectors, in the user's cache directory.

They are fetched once, and verified against the committed checksums on every use.

A set of jars has a folder of its own, named after the digest of its checksum file. So another
version never meets an older one's jars. The folder is filled elsewhere and renamed into place, so
that nobody sees a part of it. A lock file makes concurrent callers wait for the one that fetches.
"""

import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from anabranch.core.errors import AnabranchError
from anabranch.jars import ivy
from anabranch.jars.artifacts import (
    JAR_SETS,
    OLD_SETS,
    TEST_SETS,
    Artifact,
    JarSet,
    committed,
    verify,
)
from anabranch.jars.errors import ChecksumMismatchError, JarsUnavailableError

Fetch = Callable[[Sequence[Artifact], Path], None]


def default_cache_dir() -> Path:
    """Returns `anabranch` in XDG_CACHE_HOME, or in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "anabranch"


def resolve(
    jar_set: JarSet,
    *,
    cache_dir: Path | None = None,
    artifacts: Sequence[Artifact] | None = None,
    fetch: Fetch = ivy.fetch,
) -> list[Path]:
    """Returns the jars of a set, all of them verified. It fetches the missing ones.

    Blocks while another process fetches into the same cache. Raises `JarsUnavailableError`,
    `ChecksumMismatchError` or `JavaUnavailableError`. A later call starts clean, or goes on with an
    interrupted download. Tests give artifacts and fetch.
    """
    wanted = committed(jar_set) if artifacts is None else artifacts
    folder = _folder(jar_set, wanted, cache_dir)
    cache = folder.parent
    try:
        if not _is_sound(folder, wanted):
            with _locked(cache):
                # The former holder of the lock may have fetched them.
                if not _is_sound(folder, wanted):
                    _fill(folder, jar_set, wanted, fetch)
    except OSError as error:
        raise JarsUnavailableError(
            f"The jars cannot be kept in {cache}: {error.strerror or error}. Make room there or "
            "make it writable, or name another place in XDG_CACHE_HOME."
        ) from error
    return [folder / artifact.file_name for artifact in wanted]


def _folder(jar_set: JarSet, wanted: Sequence[Artifact], cache_dir: Path | None) -> Path:
    return (cache_dir or default_cache_dir()) / "jars" / f"{jar_set}-{_digest(wanted)}"


def _digest(artifacts: Sequence[Artifact]) -> str:
    lines = "\n".join(f"{artifact.sha256} {artifact}" for artifact in artifacts)
    return hashlib.sha256(lines.encode()).hexdigest()[:12]


def _is_sound(folder: Path, artifacts: Sequence[Artifact]) -> bool:
    if not folder.is_dir():
        return False
    try:
        verify(folder, artifacts)
    except ChecksumMismatchError:
        return False
    return True


def _fill(folder: Path, jar_set: JarSet, artifacts: Sequence[Artifact], fetch: Fetch) -> None:
    staged = folder.with_name(folder.name + ".part")
    sys.stderr.write(f"Fetching {len(artifacts)} jars ({jar_set}), once, into {folder}\n")
    staged.mkdir(parents=True, exist_ok=True)
    fetch(artifacts, staged)
    try:
        verify(staged, artifacts)
    except ChecksumMismatchError:
        # Else the next attempt would find the same bytes.
        shutil.rmtree(staged)
        raise
    kept = {artifact.file_name for artifact in artifacts}
    for path in staged.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in kept:
            path.unlink()
    if folder.exists():  # its jars were damaged
        shutil.rmtree(folder)
    staged.rename(folder)


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"Waiting for another process that fetches jars into {cache}\n")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Fetch every set, so that later commands find them there; older Kafkas by the word `old`."""
    try:
        for jar_set in (*JAR_SETS, *TEST_SETS, *(OLD_SETS if "old" in sys.argv[1:] else ())):
            resolve(jar_set)
    except AnabranchError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
