"""The lock that gives a data directory to one Kafka, started by any process.

Kafka has a `.lock` of its own, but takes it too late: before that, a controller opens the metadata
log and writes to it. A second Kafka could thus become the leader on the files of the first.

The lock belongs to the open file, not to a process. A process that inherits the descriptor holds it
too. It ends when the last of them has closed it or ended, even by a crash. So it is never unlocked,
only closed: an explicit unlock would take it from all of them. The file is not removed either: a
waiting process could then lock the removed one, and a third its successor.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from anabranch.devkit.kafka.diagnosis import ANOTHER_KAFKA, KafkaStartError, explain

FILE_NAME: Final = "anabranch.lock"


@contextmanager
def exclusive(data_dir: Path) -> Iterator[int]:
    """Holds the directory's lock. A process that inherits the descriptor may hold it for longer.

    Does not wait. Raises `KafkaStartError` if another one holds it or it cannot be taken.
    """
    path = data_dir / FILE_NAME
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _failed(data_dir, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            # Its logs are those of the other one, who is well: they would only mislead.
            raise KafkaStartError(f"{ANOTHER_KAFKA} Data directory: {data_dir}") from error
        except OSError as error:
            raise _failed(data_dir, error) from error
        yield descriptor
    finally:
        os.close(descriptor)


def _failed(data_dir: Path, error: OSError) -> KafkaStartError:
    what = f"{data_dir / FILE_NAME} cannot be locked: {error.strerror or error}."
    return KafkaStartError(explain(what, data_dir, ""))
