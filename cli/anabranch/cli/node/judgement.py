"""What the answers of a Kafka mean for Anabranch: one sentence each. Pure.

`probe` asks. Kafkas of other makes answer alike and mean less, or take what they do not keep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from anabranch.channel.kafka.makes import Make, Proof
from anabranch.channel.segments.seal_settings import LIMIT, SEALED_BARE
from anabranch.cli.node.findings import Finding

Calls = Mapping[int, int]  # the newest version of each call of Kafka's protocol, by its number

# Kafka's numbers of its calls (`ApiKeys`), and what their lack costs.
_NEEDED: Final = {
    19: "no topic can be made (CreateTopics)",
    21: "seals wait for nobody, and read messages are never deleted (DeleteRecords)",
    22: "producers cannot run (InitProducerId)",
    32: "no setting can be read back (DescribeConfigs)",
    44: "no segment can be sealed (IncrementalAlterConfigs)",
}
_QUEUES: Final = frozenset({76, 78, 79})
_PREVIEW: Final = 1  # of the share groups' fetch; Kafka 4.2 has a newer one
_POSITIONS: Final = frozenset({90, 91})
_ACLS: Final = frozenset({29, 30, 31})
_GROUPS: Final = 68
# Some have other rules on when a message is safe, which no topic changes.
_OWN_RULES: Final = frozenset({"min.insync.replicas", "unclean.leader.election.enable"})


class Ends(msgspec.Struct, frozen=True):
    """The end that a seal gave, and the ends that the partition told later."""

    sealed_at: int
    later: Sequence[int]


def has_queues(calls: Calls) -> bool:
    """Tells whether these calls are of a Kafka with share groups for production."""
    return calls.keys() >= _QUEUES and calls[78] > _PREVIEW


def judge_calls(calls: Calls) -> Finding:
    """Step 2: the calls that it answers."""
    if missing := [cost for number, cost in _NEEDED.items() if number not in calls]:
        return Finding("kafka's calls", ok=False, found="; ".join(missing))
    costs = []
    if not has_queues(calls):
        costs.append("queues need Kafka 4.2")
    elif not calls.keys() >= _POSITIONS:
        costs.append("positions of queues cannot be set")
    if not calls.keys() >= _ACLS:
        costs.append("kafkaAclsEnabled cannot be used")
    if _GROUPS not in calls:
        costs.append("plain consumers have the old protocol of groups alone")
    return Finding("kafka's calls", True, f"all but: {'; '.join(costs)}" if costs else "all")


def judge_settings(
    wanted: Mapping[str, str], found: Mapping[str, str], refused: str = ""
) -> Finding:
    """Step 3: a segment's settings. `refused`: Kafka's words, if it makes no such topic."""
    check = "segment settings"
    if refused:
        return Finding(check, ok=False, found=f"no segment can be made: {refused}")
    lost = [name for name, value in wanted.items() if found.get(name) != value]
    if not lost:
        return Finding(check, True, f"all {len(wanted)} kept")
    told = "; ".join(f"took {n}={wanted[n]}, has {found.get(n, 'nothing')}" for n in lost)
    if _OWN_RULES.issuperset(lost):
        return Finding(check, True, f"{told}: its copies follow rules of its own")
    return Finding(check, False, f"{told}: what it does not keep cannot protect messages")


def judge_placement(refused: str) -> Finding:
    """Step 4: an assignment of copies to brokers."""
    kept = f"Kafka places segments itself, so nobody can choose their brokers: {refused}"
    return Finding("placement", True, kept if refused else "brokers can be chosen")


def judge_bound(answer: str) -> Finding:
    """Step 5: an append far in the future. `answer`: the name of the error, "" if it was stored."""
    check = "time bound"
    if answer == "INVALID_TIMESTAMP":
        return Finding(check, ok=True, found="an append from the future is refused")
    why = f"answered {answer}" if answer else "stored"
    return Finding(
        check, False, f"an append from the future was {why}: a probe of a seal could be stored"
    )


def judge_seal(make: Make, found: Mapping[str, str], answer: str) -> Finding:
    """Step 6: a seal. `found`: the sealed topic's settings; `answer`: to the smallest append after
    it.
    """
    check = "seal"
    if answer != "MSG_SIZE_TOO_LARGE":
        why = f"answers {answer} to" if answer else "takes"
        return Finding(
            check, False, f"this Kafka does not refuse: it {why} appends after a seal; use another"
        )
    told = f"refuses by {LIMIT}={found.get(LIMIT)}"
    if found.get(LIMIT) == SEALED_BARE[LIMIT]:
        told += ", as it keeps no compression.type: transactions open at a seal hang"
    if make.seal is not Proof.PROVEN:
        told += f"; unproven: {make.name}'s brokers need not put it into force in Kafka's order"
    return Finding(check, True, told)


def judge_end(make: Make, ends: Ends, refused: str) -> Finding:
    """Step 7: the end of a sealed partition. `refused`: to a deletion of nothing."""
    check = "end"
    if refused:
        return Finding(check, False, f"seals wait for nobody: unproven ({refused})")
    if {*ends.later} != {ends.sealed_at}:
        told = ", then ".join(map(str, ends.later))
        return Finding(
            check,
            False,
            f"a seal ended at {ends.sealed_at}, later at {told}: messages get lost",
        )
    more = "" if make.seal is Proof.PROVEN else ": unproven"
    return Finding(check, True, f"the end stays where the seal found it{more}")


def judge_sequence(offsets: Sequence[int], refused: str) -> Finding:
    """Step 8: two appends of an idempotent producer."""
    if refused or list(offsets) != [0, 1]:
        why = refused or f"its records went to offsets {', '.join(map(str, offsets))}"
        return Finding("idempotence", False, f"producers cannot run: {why}")
    return Finding("idempotence", True, "two appends kept their sequence")


def judge_group(committed: int | None, wanted: int) -> Finding:
    """Step 9: the position of a group without members."""
    if committed != wanted:
        return Finding(
            "groups", False, f"subscriptions keep no position: told {committed}, not {wanted}"
        )
    return Finding("groups", True, "a position can be kept, read and deleted")


def judge_pace(split_s: float, each_s: float, throttled: bool) -> Finding:
    """Step 10: how fast topics are made, and one is sealed."""
    if throttled:
        return Finding(
            "pace", False, "Kafka throttles new topics, so splits wait: raise the quota "
            "controller_mutation_rate of the nodes' user"
        )  # fmt: skip
    return Finding(
        "pace", True, f"a split takes about {split_s:.2f} s here, a new topic {each_s:.2f} s"
    )


def judge_room(make: Make, there: int, of_segment: int) -> Finding:
    """Step 11: partitions there, against the number that the make advises."""
    if not make.partitions:
        return Finding("room", True, f"{there} partitions there; their most depends on the brokers")
    left = max(0, make.partitions - there) // of_segment
    told = f"{there} of {make.partitions} partitions there: room for about {left} more segments"
    return Finding("room", left > 0, told)
