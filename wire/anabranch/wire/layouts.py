"""A layout must fit one frame."""

from __future__ import annotations

from typing import Final

from anabranch.wire.anabranch_pb2 import ScalableTopicDAG
from anabranch.wire.framing import FRAME_BYTES_MAX

LAYOUT_BYTES_MAX: Final = FRAME_BYTES_MAX - 64 * 1024  # the frame has a head, and names


def fit(dag: ScalableTopicDAG) -> None:
    """Leaves the segments' addresses out where a frame has no room for them.

    All are the controller's, which is told by itself.
    """
    if dag.segment_brokers and dag.ByteSize() > LAYOUT_BYTES_MAX:
        del dag.segment_brokers[:]
