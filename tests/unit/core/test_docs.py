"""The documentation shows the machines as they are."""

from __future__ import annotations

from pathlib import Path

from anabranch.core.archives.machine import ARCHIVES
from anabranch.core.bundles.machine import BUNDLES, LEADING
from anabranch.core.cluster.machine import CLUSTERS
from anabranch.core.entities.archive import ArchiveOp
from anabranch.core.entities.subscription import SubscriptionOp
from anabranch.core.entities.topic import TopicMove
from anabranch.core.entities.unit import Move
from anabranch.core.policies.machine import PLACEMENTS
from anabranch.core.security.machine import PERMISSIONS
from anabranch.core.sessions.machine import SESSIONS
from anabranch.core.settings.machine import OVERRIDES
from anabranch.core.subscriptions.machine import SUBSCRIPTIONS
from anabranch.core.tenants.machine import NAMESPACES, TENANTS
from anabranch.core.topics.machine import LAYOUTS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "state-machine.md").read_text()


def test_the_pictures_are_drawn_from_the_machines() -> None:
    nouns = (SESSIONS, CLUSTERS, ARCHIVES, TENANTS, NAMESPACES, LAYOUTS, SUBSCRIPTIONS)
    for machine in (BUNDLES, LEADING, *nouns, PLACEMENTS, OVERRIDES, PERMISSIONS):
        picture = machine.mermaid()
        assert f"```mermaid\n{picture}```\n" in PAGE, f"paste this:\n{picture}"


def test_the_page_explains_every_move() -> None:
    for move in (*Move, *TopicMove, *SubscriptionOp, *ArchiveOp):
        assert move.name in PAGE
