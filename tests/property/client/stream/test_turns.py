"""Turns against a model that counts."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from anabranch.client._stream.turns import Turns


@given(st.integers())
def test_between_two_turns_each_other_one_that_was_ready_has_had_its_own(seed: int) -> None:
    """Of groups, and within each group of its members."""
    rng = random.Random(seed)
    turns: Turns[tuple[int, int]] = Turns()
    ready: dict[int, dict[int, None]] = {}
    waits: Counter[tuple[int, ...]] = Counter()  # turns of others since it was ready or had one
    for _ in range(300):
        group, member = rng.randrange(5), rng.randrange(3)
        what = rng.random()
        if what < 0.4:
            turns.add(group, (group, member))
            ready.setdefault(group, {})[member] = None
        elif what < 0.5:
            turns.discard(group, (group, member))
            ready.get(group, {}).pop(member, None)
        elif turns:
            group, member = turns.take()
            assert member in ready[group]
            assert waits[group,] <= 5
            assert waits[group, member] <= 3
            waits += Counter((other,) for other, has in ready.items() if has and other != group)
            waits += Counter((group, other) for other in ready[group] if other != member)
            del waits[group,], waits[group, member]
        for other in [each for each, has in ready.items() if not has]:
            del ready[other], waits[other,]
        for place in [each for each in waits if len(each) == 2]:
            if place[1] not in ready.get(place[0], {}):
                del waits[place]
        assert bool(turns) == bool(ready)
