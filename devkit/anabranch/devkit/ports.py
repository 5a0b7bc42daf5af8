"""Chooses free ports for servers that need to be told theirs."""

import random
import socket
from typing import Final

# Below every system's range for outgoing connections: a port from that range may be taken by one
# of them at any time, also while a server that is to come back on its port is stopped.
_FIRST: Final = 10_240
_LAST: Final = 29_999
_ATTEMPTS_MAX: Final = 1_000
_GIVEN_MAX: Final = 5_000

_given: dict[int, None] = {}  # the latest ones, which may be listened on only later


def is_free(host: str, port: int) -> bool:
    """Returns True if a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Servers set it too: lingering connections of a former one are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str) -> int:
    """Returns a port that nobody listens on now, and that was not returned lately."""
    # The system's generator, because a seed of the common one, as in tests, would make all
    # processes choose the same ports.
    source = random.SystemRandom()
    for _ in range(_ATTEMPTS_MAX):
        port = source.randint(_FIRST, _LAST)
        if port not in _given and is_free(host, port):
            _given[port] = None
            if len(_given) > _GIVEN_MAX:
                del _given[next(iter(_given))]
            return port
    raise OSError(f"no free port between {_FIRST} and {_LAST} on {host}")
