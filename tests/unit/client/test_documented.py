"""docs/client.md knows every public name, and every setting, of the SDK."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

import anabranch.client as sdk
from anabranch.client import sync
from anabranch.core.topics.entries import BOUNDS_HEADERS, PRODUCER_HEADER

_DOCS: Final = (Path(__file__).parents[3] / "docs" / "client.md").read_text(encoding="utf-8")
_INSIDE: Final = {"abandon", "adopt", "count", "delivery", "ends", "index", "is_closed", "only"} | {
    *("source", "source_of", "parts", "start", "from_proto", "as_deleted", "is_newer_than"),
    *("in_flight", "is_leaving", "is_over", "joined", "over", "poll", "take_lost"),
    *("note_acknowledged", "note_all_acknowledged", "note_saved", "without_removed"),
}
_OBJECTS: Final = (
    *(sdk.Client, sdk.Producer, sdk.StreamConsumer, sdk.CheckpointConsumer, sdk.QueueConsumer),
    *(sdk.Message, sdk.QueueMessage, sdk.Batch, sdk.QueueBatch, sdk.Checkpoint),
    *(sdk.StreamTopicsConsumer, sdk.CheckpointTopicsConsumer, sdk.QueueTopicsConsumer),
    *(sdk.TopicsCheckpoint,),
)


def _not_told(names: set[str]) -> set[str]:
    return names - set(re.findall(r"\w+", _DOCS))


def test_each_public_name_of_the_sdk_is_in_its_documentation() -> None:
    assert _not_told({*sdk.__all__, *sync.__all__}) == set()


@pytest.mark.parametrize("kind", [sdk.ProducerSettings, sdk.ConsumerSettings, sdk.QueueSettings])
def test_each_setting_is_in_the_documentation(kind: type[sdk.ProducerSettings]) -> None:
    assert _not_told(set(kind.__struct_fields__)) == set()


@pytest.mark.parametrize("kind", _OBJECTS)
def test_each_public_method_and_property_is_in_the_documentation(kind: type) -> None:
    assert _not_told({name for name in dir(kind) if not name.startswith("_")} - _INSIDE) == set()


def test_header_names_that_are_the_producers_own_are_documented() -> None:
    assert f"The name `{PRODUCER_HEADER}`" in _DOCS
    for name in BOUNDS_HEADERS:
        assert f"`{name}`" in _DOCS
