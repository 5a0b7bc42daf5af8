"""Figures of the view alone: replay of a log, and bulk load of a snapshot, from memory."""

from __future__ import annotations

import io
import json
import random
import statistics
import time
from collections.abc import Iterator
from importlib import resources
from itertools import islice
from typing import Any

import fastavro

from anabranch.channel.codec import Horizon, encode_entity
from anabranch.channel.log.entries import Entry
from anabranch.channel.registry import PREFIX_LENGTH, prefix_of
from anabranch.channel.snapshots.reader import Batch
from anabranch.channel.snapshots.state_sums import FORM, row_check
from anabranch.core.entities.unit import Move, Unit, UnitState
from anabranch.core.log.verdicts import Verdict
from anabranch.core.ring import even_ranges
from anabranch.projections.view import View
from bench.figure import Measured
from bench.place import Place
from bench.spark.audit import generated

SNAPSHOT_UNITS = 1_000_000
_RECORDS = 300_000
_BATCH = 5_000  # as a node that catches up
_REPEATS = 5
_PER_NAMESPACE = 1_000
_START_MS = 1_760_000_000_000


# --- replay ---------------------------------------------------------------------------------


def replay(place: Place) -> Measured:
    """Fold a log into a fresh view, and decode the same bytes with fastavro and nothing else."""
    count = _RECORDS // 10 if place.quick else _RECORDS
    entries = [
        Entry(offset, _START_MS + offset, key, value, schema)
        for offset, (key, value, schema) in enumerate(generated(count))
    ]
    scattered = _scattered(entries)
    schemas = _schemas()
    bare, folded, mixed = [], [], []
    for _ in range(_REPEATS):
        bare.append(count / _decode(entries, schemas))
        folded.append(count / _fold(place, entries))
        mixed.append(count / _fold(place, scattered))
    limit, value = statistics.median(bare), statistics.median(folded)
    return Measured(
        value,
        "records/s",
        _ratio(folded, bare),
        0.5,
        at_least=True,
        limit=limit,
        limit_what="fastavro, decoding the same values only",
        details={
            "records": count,
            "batch": _BATCH,
            "scattered_records_per_s": statistics.median(mixed),
            "scattered_ratio": _ratio(mixed, bare),
            "scattered": "the same records, with the moves of 1,000 units interleaved",
        },
    )


def _ratio(rates: list[float], limits: list[float]) -> float:
    """The median over pairs that were measured one right after the other."""
    return statistics.median(rate / limit for rate, limit in zip(rates, limits, strict=True))


def _scattered(entries: list[Entry]) -> list[Entry]:
    """The moves of 1,000 units at a time in a random order that keeps each unit's own."""
    chance = random.Random(1)
    found: list[Entry] = []
    size = 8_000
    for start in range(0, len(entries), size):
        part = entries[start : start + size]
        by_key: dict[bytes | None, list[Entry]] = {}
        for entry in part:
            by_key.setdefault(entry.key, []).append(entry)
        turns = [entry.key for entry in part]
        if start:  # the beginning, where the units are made, keeps its order
            chance.shuffle(turns)
        waiting = {key: iter(own) for key, own in by_key.items()}
        found += [next(waiting[key]) for key in turns]
    return [
        Entry(offset, _START_MS + offset, entry.key, entry.value, entry.schema)
        for offset, entry in enumerate(found)
    ]


def _schemas() -> dict[bytes, Any]:
    folder = resources.files("anabranch.channel") / "schemas"
    schemas = [json.loads(file.read_text()) for file in folder.iterdir()]
    return {prefix_of(schema): fastavro.parse_schema(schema) for schema in schemas}


def _decode(entries: list[Entry], schemas: dict[bytes, Any]) -> float:
    read = fastavro.schemaless_reader
    began = time.perf_counter()
    for entry in entries:
        value = entry.value or b""
        read(io.BytesIO(value[PREFIX_LENGTH:]), schemas[value[:PREFIX_LENGTH]], None)
    return time.perf_counter() - began


def _fold(place: Place, entries: list[Entry]) -> float:
    with View.open(place.folder / f"view-{place.number()}") as view:
        accepted = 0
        began = time.perf_counter()
        for at in range(0, len(entries), _BATCH):
            folded = view.read_batch(entries[at : at + _BATCH])
            accepted += sum(fold.outcome.verdict is Verdict.ACCEPTED for fold in folded[:1])
        took = time.perf_counter() - began
        if view.next_offset != len(entries) or not accepted:
            raise RuntimeError("the log was not folded")
    return took


# --- bulk load ------------------------------------------------------------------------------


def snapshot_pairs(count: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Owned units of many namespaces, in no order, as a cluster of three brokers leaves them."""
    chance = random.Random(3)
    ranges = [str(part) for part in even_ranges(_PER_NAMESPACE)]
    order = list(range(count))
    chance.shuffle(order)
    for number in order:
        home, bundle = divmod(number, _PER_NAMESPACE)
        unit = Unit(
            UnitState.OWNED,
            f"broker-{number % 3}.example:8080",
            "",
            number % 100 + 2,
            Move.OWN,
            _START_MS + number,
            number,
            f"{chance.getrandbits(128):032x}",
        )
        name = f"tenant-{home % 10}/namespace-{home:04d}/{ranges[bundle]}"
        yield name.encode(), encode_entity(unit)


def snapshot_horizon(next_offset: int, count: int) -> Horizon:
    """As the writer of these units has it; nobody asks for its digest."""
    check = sum(row_check(key, value) for key, value in snapshot_pairs(count) if value is not None)
    return Horizon(next_offset, "0" * 32, keys=count, check=check, form=FORM)


def bulk_loads(place: Place, count: int) -> list[float]:
    """Units a second of loading a snapshot of so many from memory, a few times over."""
    pairs = snapshot_pairs(count)
    batches: list[Batch] = []
    while batch := list(islice(pairs, _BATCH)):
        batches.append(batch)
    horizon = snapshot_horizon(count, count)
    rates = []
    for _ in range(3):
        with View.open(place.folder / f"view-{place.number()}") as view:
            began = time.perf_counter()
            view.load_snapshot(batches, lambda: horizon)
            rates.append(count / (time.perf_counter() - began))
            if view.unit_count("broker-0.example:8080") != (count + 2) // 3:
                raise RuntimeError("the units were not indexed")
    return rates
