"""How often Python's collector looks for cycles in a node or proxy.

By default it looks through all that is new whenever 700 objects more are there than before, and
through everything whenever a quarter was added that has survived two such looks. What is made for
one round over thousands of topics survives them, and is freed without the collector when the round
ends: a node with 10,000 topics spent a tenth of its time on looks that found nothing, and its event
loop stood still meanwhile. What a node makes has few cycles, and so they may wait.
"""

from __future__ import annotations

import gc
from typing import Final

_NEW: Final = 10_000  # objects: gc.set_threshold(3)
_LOOKS: Final = 20  # at the new before one at those that survived, and of these before one at all


def collect_rarely() -> None:
    """Has the collector look more rarely. To be called at the start."""
    gc.set_threshold(_NEW, _LOOKS, _LOOKS)
