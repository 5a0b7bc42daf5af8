"""A node's requests to its shell, its settings, and the state that it tells of itself."""

from __future__ import annotations

from enum import Enum, unique

import msgspec

from anabranch.core.balance.settings import BalanceSettings
from anabranch.core.entities.cluster import Cluster
from anabranch.core.log.records import Record
from anabranch.core.sessions.lease import Heartbeat


@unique
class BrokerState(Enum):
    """The state that a node tells in its heartbeats."""

    JOINING = "joining"  # has no session yet
    SERVING = "serving"
    SAFE = "safe"  # its lease lapsed: it serves nothing that only an owner may
    DRAINING = "draining"
    STOPPED = "stopped"


class NodeSettings(msgspec.Struct, frozen=True):
    """The settings of a node; durations in seconds. `broker.settings` has their names in Pulsar."""

    broker: str
    cluster: str
    web_url: str
    service_url: str
    version: str = "0.1.0"
    heartbeat_s: float = 0.5
    lease_s: float = 4.0
    liveness_timeout_s: float = 6.0
    default_bundles: int = 4
    stuck_after_s: float = 30.0
    monitor_interval_s: float = 60.0
    tombstone_delay_s: float = 3600.0
    retry_s: float = 1.0  # a proposal without an answer is made again
    burst: int = 5_000  # proposals of one clean-up round
    balance: BalanceSettings = BalanceSettings()
    authorizes: bool = False  # callers must have the right to their requests
    superusers: tuple[str, ...] = ()
    web_url_tls: str = ""
    service_url_tls: str = ""


class AppendRecord(msgspec.Struct, frozen=True):
    """Append this record to the WAL."""

    record: Record


class SendHeartbeat(msgspec.Struct, frozen=True):
    """Publish this heartbeat; report `beat_acked` with it when it is acknowledged."""

    beat: Heartbeat


class OpenUnit(msgspec.Struct, frozen=True):
    """Start to serve the unit."""

    unit: str


class CloseUnit(msgspec.Struct, frozen=True):
    """Stop serving the unit; report `closed` when nothing of it is served any more."""

    unit: str


class Halt(msgspec.Struct, frozen=True):
    """End the process: `clean` after a drain, else because it must not go on."""

    reason: str
    clean: bool


Effect = AppendRecord | SendHeartbeat | OpenUnit | CloseUnit | Halt


def settings_difference(found: Cluster, wanted: NodeSettings) -> str:
    """Says how a node's settings contradict the cluster's; returns "" when they do not."""
    pairs = (
        ("clusterName", found.cluster, wanted.cluster),
        ("heartbeatIntervalMillis", found.heartbeat_ms, round(wanted.heartbeat_s * 1000)),
        ("leaseMillis", found.lease_ms, round(wanted.lease_s * 1000)),
        (
            "livenessTimeoutMillis",
            found.liveness_timeout_ms,
            round(wanted.liveness_timeout_s * 1000),
        ),
    )
    different = [f"{name} is {has!r}, not {wants!r}" for name, has, wants in pairs if has != wants]
    if not different:
        return ""
    return (
        f"the log belongs to a cluster with other settings: {'; '.join(different)}; "
        "use these, or give this cluster a topicPrefix of its own"
    )
