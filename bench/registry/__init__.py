"""All figures, in the order in which they are measured: those that need quiet come first."""

from __future__ import annotations

from bench.figure import Figure
from bench.registry.clients import OF_CLIENTS
from bench.registry.nodes import OF_NODES
from bench.registry.topics import OF_TOPICS
from bench.registry.working import OF_WORK
from bench.spark import processes

_OF_SPARK = (
    Figure(
        "audit",
        "Spark audit of 5,000,000 records",
        "at most 4 x Spark's read-and-checksum",
        "-",
        processes.audit,
        on_one=True,
    ),
)

FIGURES = (*OF_NODES, *OF_TOPICS, *OF_CLIENTS, *OF_WORK, *_OF_SPARK)
