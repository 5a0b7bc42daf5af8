"""One expression knows all names of a cluster in Kafka, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import re2
from hypothesis import given
from hypothesis import strategies as st

from anabranch.channel.kafka.topics import Topics
from anabranch.core.entities.segment import new_segment
from anabranch.core.topics.kafka_names import (
    groups_head,
    kafka_group,
    kafka_topic,
    names_pattern,
    segments_head,
    stem,
    transactions_head,
)

ROOT = Path(__file__).parents[4]
prefixes = st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True)
parts = st.text(st.characters(codec="ascii", exclude_characters="/\n"), min_size=1, max_size=60)
topics = st.tuples(parts, parts, parts).map("/".join)
offsets = st.integers(0, 1 << 62)


def matches(prefix: str, name: str) -> bool:
    """What Python and RE2 say, which must be the same."""
    pattern = names_pattern(prefix)
    found = re.fullmatch(pattern, name) is not None
    assert (re2.fullmatch(pattern, name) is not None) is found
    return found


@given(prefixes, topics, parts, offsets, offsets)
def test_all_names_of_topics_groups_and_transactions_match(
    prefix: str, topic: str, subscription: str, number: int, segment_id: int
) -> None:
    segment = new_segment(segment_id, 0, 0x7FFF, 2)
    assert matches(prefix, kafka_topic(prefix, topic, number, segment))
    assert matches(prefix, kafka_group(prefix, topic, subscription, number))
    assert matches(prefix, f"{transactions_head(prefix)}{stem(topic)}my-job")


@given(prefixes)
def test_so_do_those_of_the_cluster_itself(prefix: str) -> None:
    names = Topics(prefix)
    made = [
        getattr(names, each) for each in dir(Topics) if isinstance(getattr(Topics, each), property)
    ]
    assert len(made) == 7
    for each in (*made, names.archive_group("0f1e")):
        assert matches(prefix, each)


def test_no_name_is_made_anywhere_that_the_expression_does_not_know() -> None:
    made = set()
    for root in ("core", "channel", "broker", "cli", "spark_replay"):
        for source in (ROOT / root).rglob("*.py"):
            made.update(re.findall(r"prefix\}([a-z][a-z-]*\.?)", source.read_text("utf-8")))
    assert {"segment.", "wal", "doctor."} <= made
    for each in made:
        assert matches("eu.", f"eu.{each}{'x' if each.endswith('.') else ''}"), each


@given(prefixes, st.text(min_size=1, max_size=50), offsets)
def test_names_of_strangers_do_not(prefix: str, text: str, number: int) -> None:
    heads = (segments_head(prefix), groups_head(prefix), transactions_head(prefix))
    for name in (
        *(text if not text.startswith(prefix) else f"x{text}", f"x{heads[0]}a", f"{prefix}orders"),
        *(head[:-1] for head in heads),  # nothing behind the kind
        *(heads if number % 2 else ()),
        *(f"{prefix}walrus", f"{prefix}my.segment.a", f"{prefix}{prefix}wal", prefix),
    ):
        assert not matches(prefix, name), name
    # A dot of the prefix is no other sign.
    if "." in prefix:
        assert not matches(prefix, f"{segments_head(prefix.replace('.', '_'))}a")


def test_the_page_has_it_for_the_usual_prefix() -> None:
    page = (ROOT / "docs" / "kafka.md").read_text("utf-8")
    assert f"\n    {names_pattern('anabranch.')}\n" in page
