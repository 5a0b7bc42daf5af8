"""Tells from Kafka's log why it did not start, and the remedy."""

from pathlib import Path
from typing import Final

from anabranch.core.errors import AnabranchError

# Our own lock refuses, or Kafka complains about another one that we did not start.
ANOTHER_KAFKA: Final = (
    "Another Kafka runs on this data directory: stop it, or name another directory."
)
_LINES_SHOWN_MAX: Final = 12
_REMEDIES: Final = (
    ("No space left on device", "The disk is full: make room, or name another data directory."),
    (
        "Address already in use",
        "Another process took the port meanwhile: start again, or choose another port.",
    ),
    ("Failed to acquire lock", ANOTHER_KAFKA),
    ("Permission denied", "The data directory is not writable: correct its permissions."),
    ("AccessDeniedException", "The data directory is not writable: correct its permissions."),
    ("Read-only file system", "The data directory is not writable: name another one."),
    ("Could not reserve enough space", "There is too little memory: Kafka needs about 600 MB."),
    ("OutOfMemoryError", "Kafka ran out of its 512 MB of heap: it is meant for development only."),
    ("Too many open files", "The limit of open files is too low: raise it, see ulimit -n."),
    (
        "UnsupportedClassVersionError",
        "Java is too old: install version 17 or newer, or name it in JAVA_HOME.",
    ),
)
_UNKNOWN: Final = (
    "If the data directory is of another Kafka or damaged, name an empty one; "
    "`anabranch doctor` checks the rest."
)


class KafkaStartError(AnabranchError):
    """Kafka ended, or did not answer in time, while it was being started."""


def explain(what: str, data_dir: Path, said: str) -> str:
    """Returns the message for a user: the event, the remedy, and the last telling lines
    of the log.
    """
    remedy = next((text for sign, text in _REMEDIES if sign in what or sign in said), _UNKNOWN)
    lines = [line for line in said.splitlines() if line.strip()]
    # The begin of an error tells more than the shutdown that follows it.
    telling = [
        line for line in lines if " ERROR " in line or " FATAL " in line or "Exception" in line
    ]
    shown = "".join(f"\n  | {line[:300]}" for line in (telling or lines)[-_LINES_SHOWN_MAX:])
    return f"{what} {remedy} Data directory and logs: {data_dir}{shown}"
