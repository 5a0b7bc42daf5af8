"""Digests: nodes' and snapshots' claims about their state equal the log's state at that offset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from anabranch.core.fold import digests
from anabranch.core.fold.digests import EMPTY, Digest
from anabranch.spark_replay.audit.tally import CheckTally


class Claim(msgspec.Struct, frozen=True):
    """A digest of the state before `next_offset`, claimed by somebody."""

    who: str
    next_offset: int
    digest: str


def digests_at(changes: Iterable[tuple[int, str]], offsets: Iterable[int]) -> dict[int, str]:
    """Returns the digest of the whole at each offset, from the parts' sums up to each stop."""
    added: dict[int, Digest] = {}
    for offset, delta in changes:
        added[offset] = digests.combined(added.get(offset, EMPTY), Digest(int(delta, 16)))
    result: dict[int, str] = {}
    running = EMPTY
    for offset in sorted({*offsets, *added}):
        running = digests.combined(running, added.get(offset, EMPTY))
        result[offset] = digests.to_hex(running)
    return result


def check_digests(
    claims: Iterable[Claim], folded: Mapping[int, str], first_offset: int, next_offset: int
) -> CheckTally:
    """Checks the claims.
    One from before `first_offset` cannot be judged, and one from beyond the log is false.
    """
    tally = CheckTally()
    for claim in sorted(claims, key=lambda claim: (claim.next_offset, claim.who)):
        if claim.next_offset < first_offset:
            continue
        tally.examined += 1
        if claim.next_offset > next_offset:
            tally.violate(
                claim.next_offset,
                f"{claim.who}: says that it has folded up to offset {claim.next_offset}, but the "
                f"log ends at {next_offset}",
            )
        elif folded[claim.next_offset] != claim.digest:
            tally.violate(
                claim.next_offset,
                f"{claim.who}: says {claim.digest} at offset {claim.next_offset}; the log makes "
                f"it {folded[claim.next_offset]}",
            )
    return tally
