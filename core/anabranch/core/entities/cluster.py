"""`Cluster`: the settings that the first record of the log lays down for all nodes."""

from __future__ import annotations

import msgspec


class Cluster(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The settings that all nodes share; durations in milliseconds."""

    version: int
    cluster: str
    heartbeat_ms: int
    lease_ms: int
    liveness_timeout_ms: int
    default_bundles: int
    proposal_id: str
