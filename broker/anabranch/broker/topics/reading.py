"""How far subscriptions have read: what is left, and how it is changed."""

from __future__ import annotations

import msgspec

from anabranch.broker.topics.backlogs import Backlogs
from anabranch.broker.topics.positions import Positions
from anabranch.broker.topics.resets import Resets


class Reading(msgspec.Struct, frozen=True):
    """The parts of a node that deal with positions."""

    backlogs: Backlogs
    resets: Resets
    positions: Positions

    async def stop(self) -> None:
        """Ends their thread."""
        await self.positions.stop()
        await self.backlogs.stop()
