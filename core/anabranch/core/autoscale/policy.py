"""The settings by which a scalable topic changes its segments by itself, and their sources.

A topic's override goes before its namespace's, that before the broker's settings, field by field
(PIP-483, "Policy resolution"). The log and the API hold only the fields that an override sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from functools import lru_cache
from operator import lt
from typing import Annotated, Any, Final, get_args

import msgspec

from anabranch.core.entities.segment import BUCKETS_MAX, SEGMENTS_MAX
from anabranch.core.errors import InvalidInputError
from anabranch.core.quantities import plain_form
from anabranch.core.settings.declared import about

_NUMBER_MAX: Final = 1e15  # for any field: milliseconds and sums of rates stay exact
_NEGLIGIBLE: Final = 0.25  # a share of a merge threshold
_OTHERWISE: Final[Mapping[str, str]] = {  # the names of settings that follow no rule
    "enabled": "scalableTopicAutoScaleEnabled",
    "max_entry_buckets_per_segment": "scalableTopicEntryBucketMaxPerSegment",
}
_WORDS: Final = {bool: "true or false", int: "a whole number", float: "a number"}


def setting_name(field: str) -> str:
    """The setting that is the default of a policy's field.

    >>> setting_name("merge_window_seconds")
    'scalableTopicMergeWindowSeconds'
    """
    found = _OTHERWISE.get(field)
    return found or "scalableTopic" + "".join(word.capitalize() for word in field.split("_"))


class AutoScalePolicy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A whole policy; rates are per second, over the last minute (PIP-483, "Configuration").

    The field names in JSON are those of Pulsar's `AutoScalePolicyOverride`. This is the only
    declaration of each field: a node's settings (`setting_name`) take from it the default, the
    bounds and the sentence of docs/settings.md. `fault_of` judges what a policy is made of.
    """

    enabled: Annotated[bool, about("Whether topics split and merge by themselves.")] = True
    max_segments: Annotated[int, about("Most active segments of a topic.", le=SEGMENTS_MAX)] = 64
    min_segments: Annotated[int, about("Fewest active segments of a topic.")] = 1
    max_dag_depth: Annotated[int, about("Most merges in the lineage of a segment.")] = 10
    split_cooldown_seconds: Annotated[float, about("Least time between two splits of a topic.")] = (
        60.0
    )
    rebucket_cooldown_seconds: Annotated[
        float, about("Least time between two additions of entry buckets to a topic.")
    ] = 60.0
    merge_cooldown_seconds: Annotated[float, about("Least time between two merges of a topic.")] = (
        300.0
    )
    merge_window_seconds: Annotated[
        float, about("Time that two neighbours must be cold before a merge.")
    ] = 300.0
    split_msg_rate_in_threshold: Annotated[
        float, about("Messages/s in, above which a segment is split.")
    ] = 10_000.0
    split_bytes_rate_in_threshold: Annotated[
        float, about("Bytes/s in, above which a segment is split.")
    ] = 50_000_000.0
    split_msg_rate_out_threshold: Annotated[
        float, about("Messages/s out, above which a segment is split.")
    ] = 50_000.0
    split_bytes_rate_out_threshold: Annotated[
        float, about("Bytes/s out, above which a segment is split.")
    ] = 250_000_000.0
    merge_msg_rate_in_threshold: Annotated[
        float, about("Messages/s in, below which a segment is cold.")
    ] = 1_000.0
    merge_bytes_rate_in_threshold: Annotated[
        float, about("Bytes/s in, below which a segment is cold.")
    ] = 5_000_000.0
    merge_msg_rate_out_threshold: Annotated[
        float, about("Messages/s out, below which a segment is cold.")
    ] = 5_000.0
    merge_bytes_rate_out_threshold: Annotated[
        float, about("Bytes/s out, below which a segment is cold.")
    ] = 25_000_000.0
    # Below this rate a consumer too many is given buckets, not a segment (PIP-486, use case 2).
    split_vs_rebucket_min_msg_rate_in_threshold: Annotated[
        float, about("Messages/s in from which a consumer too many gets a segment, not buckets.")
    ] = 1_000.0
    max_entry_buckets_per_segment: Annotated[
        int,
        about(
            "Most entry buckets, which are Kafka partitions, of one segment.", ge=1, le=BUCKETS_MAX
        ),
    ] = BUCKETS_MAX
    entry_bucket_budget: Annotated[
        int, about("Entry buckets of a new topic, all segments together.", ge=1, le=1_000_000)
    ] = 4

    @property
    def negligible(self) -> tuple[float, float, float, float]:
        """Rates that no rule tells from 0, in the order of `SegmentLoad.rates`."""
        low = self.merge_thresholds
        return (
            min(low[0] * _NEGLIGIBLE, self.split_vs_rebucket_min_msg_rate_in_threshold),
            low[1] * _NEGLIGIBLE,
            low[2] * _NEGLIGIBLE,
            low[3] * _NEGLIGIBLE,
        )

    @property
    def split_thresholds(self) -> tuple[float, float, float, float]:
        """In the order of `SegmentLoad.rates`."""
        return (
            self.split_msg_rate_in_threshold,
            self.split_bytes_rate_in_threshold,
            self.split_msg_rate_out_threshold,
            self.split_bytes_rate_out_threshold,
        )

    @property
    def merge_thresholds(self) -> tuple[float, float, float, float]:
        """In the order of `SegmentLoad.rates`."""
        return (
            self.merge_msg_rate_in_threshold,
            self.merge_bytes_rate_in_threshold,
            self.merge_msg_rate_out_threshold,
            self.merge_bytes_rate_out_threshold,
        )


Override = Mapping[str, bool | int | float]  # by JSON name, without the unset ones

_BROKER_ONLY: Final = frozenset({"maxEntryBucketsPerSegment", "entryBucketBudget"})
_DECLARED: Final = {field.encode_name: field for field in msgspec.structs.fields(AutoScalePolicy)}
_KINDS: Final[Mapping[str, type]] = {
    name: get_args(field.type)[0] for name, field in _DECLARED.items()
}
FIELDS: Final = tuple(_KINDS)
OVERRIDE_FIELDS: Final = tuple(name for name in FIELDS if name not in _BROKER_ONLY)
_FIELD_NAMES: Final = frozenset(OVERRIDE_FIELDS)


@unique
class Level(Enum):
    """The source of a field of an effective policy."""

    BROKER = "broker"
    NAMESPACE = "namespace"
    TOPIC = "topic"


class EffectivePolicy(msgspec.Struct, frozen=True):
    """The policy in force for a topic, and the level that each field, by JSON name, is from.

    `fault`: the reason why it is unusable, so that auto-scaling does nothing; "" if it is usable.
    """

    policy: AutoScalePolicy
    origins: Mapping[str, Level]
    fault: str

    @property
    def values(self) -> dict[str, bool | int | float]:
        """The policy's fields by their JSON names."""
        fields: dict[str, bool | int | float] = msgspec.to_builtins(self.policy)
        return fields


@lru_cache(1_024)
def effective_policy(
    broker: AutoScalePolicy, namespace: tuple[str, ...], topic: tuple[str, ...]
) -> EffectivePolicy:
    """The policy in force, from overrides as the log keeps them."""
    try:
        return resolve(broker, override_of(namespace), override_of(topic))
    except InvalidInputError as error:  # written by another release
        return EffectivePolicy(broker, dict.fromkeys(FIELDS, Level.BROKER), str(error))


def resolve(broker: AutoScalePolicy, namespace: Override, topic: Override) -> EffectivePolicy:
    """Most specific wins, field by field; judged after that, for halves may only fit together."""
    origins = {
        name: Level.TOPIC
        if name in topic
        else Level.NAMESPACE
        if name in namespace
        else Level.BROKER
        for name in FIELDS
    }
    overridden = {**namespace, **topic}
    policy = msgspec.structs.replace(
        broker, **{_DECLARED[name].name: value for name, value in overridden.items()}
    )
    return EffectivePolicy(policy, origins, fault_of(policy))


def fault_of(policy: AutoScalePolicy) -> str:
    """The first thing that is wrong with a policy, in words; "" for nothing.

    Checked also when it is switched off: it may be switched on by one word later.
    """
    wrong = (text for ok, text in _rules(policy) if not ok)
    return next((f"Invalid auto split/merge configuration: {each}" for each in wrong), "")


def _rules(policy: AutoScalePolicy) -> list[tuple[bool, str]]:
    values: dict[str, Any] = msgspec.to_builtins(policy)
    durations = ("splitCooldown", "rebucketCooldown", "mergeCooldown", "mergeWindow")
    metrics = ("MsgRateIn", "BytesRateIn", "MsgRateOut", "BytesRateOut")
    split = [f"split{metric}Threshold" for metric in metrics]
    merge = [f"merge{metric}Threshold" for metric in metrics]
    floor = "splitVsRebucketMinMsgRateInThreshold"
    return [
        (policy.min_segments >= 1, "minSegments must be >= 1"),
        (policy.max_segments >= policy.min_segments, "maxSegments must be >= minSegments"),
        (policy.max_dag_depth >= 0, "maxDagDepth must be >= 0"),
        *((values[f"{name}Seconds"] >= 0, f"{name} must not be negative") for name in durations),
        *((values[name] > 0, f"{name} must be > 0") for name in split),
        *((values[name] >= 0, f"{name} must be >= 0") for name in merge),
        (values[floor] >= 0, f"{floor} must be >= 0"),
        *(
            (values[high] > values[low], f"{high} must be > {low} (hysteresis)")
            for high, low in zip(split, merge, strict=True)
        ),
    ]


# --- overrides as they are given, and as they are stored ---------------------------------------


def checked_override(given: Mapping[str, object]) -> Override:
    """An override from JSON; a null is the same as leaving the field out.

    A duration or a size may be written with its unit: `"mergeWindow": "5m"`, as `quantities` has
    it. Raises InvalidInputError for unknown fields and values of a wrong kind. Conflicts between
    values show only in the resolved policy.
    """
    found: dict[str, bool | int | float] = {}
    for written, said in given.items():
        try:
            name, value = plain_form(written, said, _FIELD_NAMES)
        except InvalidInputError as error:
            raise InvalidInputError(f"{written:.100}: {error}") from None
        if name in found:
            raise InvalidInputError(f"{name} is given twice, once without Seconds in its name")
        if name not in OVERRIDE_FIELDS:
            raise InvalidInputError(
                f"{name!r:.100} is no field of an auto-scale policy; there are "
                + ", ".join(OVERRIDE_FIELDS)
            )
        if value is not None:
            found[name] = _checked(name, value)
    return found


def _checked(name: str, value: object) -> bool | int | float:
    kind = _KINDS[name]
    if kind is bool or isinstance(value, bool):
        if kind is bool and isinstance(value, bool):
            return value
    elif isinstance(value, int | float) and abs(value) <= _NUMBER_MAX:  # not so for NaN
        if kind is float:
            return float(value)
        if value == int(value):
            return int(value)
    raise InvalidInputError(f"{name} must be {_WORDS[kind]}, got {value!r:.200}")


def override_flat(override: Override) -> tuple[str, ...]:
    """Returns it as the log keeps it: name, value, name, value, sorted by name."""
    return tuple(
        part
        for name in sorted(override)
        for part in (name, msgspec.json.encode(override[name]).decode())
    )


def is_override_form(flat: tuple[str, ...]) -> bool:
    """Tells whether the log takes it: pairs, by name. The check ignores the names' meaning, so that
    nodes of two releases reach the same verdict.
    """
    names = flat[::2]
    return len(flat) % 2 == 0 and all(map(lt, names, names[1:]))


def override_of(flat: tuple[str, ...]) -> Override:
    """The inverse of `override_flat`. Raises InvalidInputError."""
    try:
        pairs = {
            name: msgspec.json.decode(value)
            for name, value in zip(flat[::2], flat[1::2], strict=True)
        }
    except msgspec.DecodeError as error:
        raise InvalidInputError(f"an auto-scale policy has a value that is none: {error}") from None
    return checked_override(pairs)
