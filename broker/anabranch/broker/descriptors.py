"""File descriptors: each connection takes one, and so do Kafka's and the files of the view.

With none left a node could not reach Kafka, and would lose its lease. So its ports may take less
than the process may have, with some left over.
"""

from __future__ import annotations

import resource
from typing import Final, TypeVar

from anabranch.broker.errors import StartError
from anabranch.broker.logging import get_logger
from anabranch.broker.settings.ports import PortFields

RESERVED: Final = 512  # for Kafka, the view, and what is just being opened
_LEAST: Final = 16  # connections to a port, below which a node is of no use
_PortsT = TypeVar("_PortsT", bound=PortFields)


def fitted(settings: _PortsT, most: int, each: int = 1, more: int = 0) -> _PortsT:
    """The settings with as many connections as `most` descriptors allow. Raises StartError.

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
    return settings.model_copy(
        update={
            "max_http_server_connections": allowed[0],
            "broker_max_connections": allowed[1],
        }
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
