"""What a topic or a namespace overrides of the nodes' auto-scale policy."""

from __future__ import annotations

from typing import Final, TypedDict

import msgspec


class AutoScaleOverride(TypedDict, total=False):
    """Fields that are overridden, by the names of the interface; docs/autoscale.md explains them.

    What is left out is decided by the level above: the namespace's override, then the settings.
    """

    enabled: bool
    maxSegments: int
    minSegments: int
    maxDagDepth: int
    splitCooldownSeconds: float
    rebucketCooldownSeconds: float
    mergeCooldownSeconds: float
    mergeWindowSeconds: float
    rebucketDownWindowSeconds: float
    splitMsgRateInThreshold: float
    splitBytesRateInThreshold: float
    splitMsgRateOutThreshold: float
    splitBytesRateOutThreshold: float
    mergeMsgRateInThreshold: float
    mergeBytesRateInThreshold: float
    mergeMsgRateOutThreshold: float
    mergeBytesRateOutThreshold: float
    splitVsRebucketMinMsgRateInThreshold: float


_OVERRIDE: Final = msgspec.json.Decoder(AutoScaleOverride)


def override(body: bytes) -> AutoScaleOverride:
    """Reads an override; an answer without a body says that there is none."""
    return _OVERRIDE.decode(body) if body else AutoScaleOverride()
