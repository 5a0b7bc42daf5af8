"""What a consumer of the simulation knows of its topic's layout: it never goes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.client import TopicLayout

if TYPE_CHECKING:
    from simulation.topic_world import TopicWorld


class Watch:
    """In the place of the product's `LayoutWatch`."""

    def __init__(self, world: TopicWorld, topic: str) -> None:
        self.topic = topic
        self.layout = TopicLayout(topic, incarnation=-1, epoch=0, segments={})
        self.traffic = None  # nobody counts what is read
        self._world = world

    def look(self) -> bool:
        """Asks some broker; whether it knows more than was known."""
        layout = self._world.layout_heard_of(self.topic)
        if layout is None or not layout.is_newer_than(self.layout):
            return False
        self.layout = layout
        return True
