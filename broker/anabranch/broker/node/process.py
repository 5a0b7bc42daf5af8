"""A node's or proxy's process: its memory, Python's collector and file descriptors."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from typing import Final, TypeVar

from anabranch.broker.errors import StartError
from anabranch.broker.logging import get_logger
from anabranch.broker.settings.ports import PortFields

_MMAP_THRESHOLD: Final = -3  # M_MMAP_THRESHOLD of malloc.h
_LARGE_BYTES: Final = 128 << 10  # glibc's threshold at the start
_OF_OPERATORS: Final = ("MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
_NEW: Final = 10_000  # objects: gc.set_threshold(3)
_LOOKS: Final = 20  # at the new before one at those that survived, and of these before one at all
RESERVED: Final = 512  # descriptors for Kafka, the view, and what is just being opened
_LEAST: Final = 16  # connections to a port, below which a node is of no use
_PortsT = TypeVar("_PortsT", bound=PortFields)


def give_back_large_blocks() -> bool:
    """Has large blocks go back to the system whenever they are freed. To be called at the start.

    glibc maps a large block by itself, and unmaps it as soon as it is freed. But the first such
    free raises glibc's threshold (mallopt(3), M_MMAP_THRESHOLD): it then takes all blocks up to
    that size from its heap. Only the end of a heap goes back, so any small block behind the large
    ones keeps them. The payloads of long topic lists are such blocks.

    Does nothing, and returns False, where the environment has settings for the allocator, or the C
    library is none that can be told.
    """
    if any(name in os.environ for name in _OF_OPERATORS):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_MMAP_THRESHOLD, _LARGE_BYTES))


def collect_rarely() -> None:
    """Has the collector look more rarely for cycles. To be called at the start.

    The default looks through everything whenever a quarter was added that has survived two looks.
    A node with 10,000 topics spent a tenth of its time on looks that found nothing, and its event
    loop stood still meanwhile. A node makes few cycles, so they may wait.
    """
    gc.set_threshold(_NEW, _LOOKS, _LOOKS)


def fitted(settings: _PortsT, most: int, each: int = 1, more: int = 0) -> _PortsT:
    """The settings with as many connections as `most` descriptors allow. Raises StartError.

    Each connection takes one, and so do Kafka's and the files of the view. With none left a node
    could not reach Kafka, and would lose its lease.

    `each`: descriptors that a connection takes; `more`: those that are taken besides.
    """
    http, clients = settings.max_http_server_connections, settings.broker_max_connections
    left = (most - RESERVED - more) // each
    if http + clients <= left:
        return settings
    share = max(0, left) / (http + clients)
    allowed = (int(http * share), int(clients * share))
    if min(allowed) < min(_LEAST, http, clients):
        raise StartError(
            f"this process may have {most} file descriptors, which is not enough: {RESERVED} are "
            "for Kafka and its own files, and each connection takes one. Raise its limit "
            "(ulimit -n, LimitNOFILE)"
        )
    return settings.but(
        {"max_http_server_connections": allowed[0], "broker_max_connections": allowed[1]}
    )


def fit_connections(settings: _PortsT, each: int = 1, more: int = 0) -> _PortsT:
    """Raises this process's limit as far as needed and allowed, and fits the settings to it.

    `each`: descriptors that a connection takes; `more`: those that are taken besides. Raises
    StartError.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = settings.max_http_server_connections + settings.broker_max_connections
    wanted = RESERVED + more + each * connections
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return settings
    found = fitted(settings, soft, each, more)
    if found is not settings:
        get_logger().warning(
            "node.few_descriptors",
            limit=soft,
            wanted=wanted,
            http_connections=found.max_http_server_connections,
            client_connections=found.broker_max_connections,
            remedy="raise it (ulimit -n, LimitNOFILE), or lower maxHttpServerConnections and "
            "brokerMaxConnections",
        )
    return found
