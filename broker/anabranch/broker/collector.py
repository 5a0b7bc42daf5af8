"""Sets how often Python's collector looks for cycles in a node or proxy.

The default looks through all new objects whenever 700 more are there than before. It looks through
everything whenever a quarter was added that has survived two such looks. The objects of one round
over thousands of topics survive those looks, and are freed without the collector when the round
ends. A node with 10,000 topics spent a tenth of its time on looks that found nothing, and its event
loop stood still meanwhile. A node makes few cycles, so they may wait.
"""

from __future__ import annotations

import gc
from typing import Final

_NEW: Final = 10_000  # objects: gc.set_threshold(3)
_LOOKS: Final = 20  # at the new before one at those that survived, and of these before one at all


def collect_rarely() -> None:
    """Has the collector look more rarely. To be called at the start."""
    gc.set_threshold(_NEW, _LOOKS, _LOOKS)
