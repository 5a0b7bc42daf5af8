"""An address at which nobody listens, nor can begin to."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

HOST = "127.0.0.1"


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """host:port, of a port that is held meanwhile."""
    with socket.socket() as held:
        held.bind((HOST, 0))
        yield f"{HOST}:{held.getsockname()[1]}"
