"""What `make mutants` mutates, and which tests must notice: the rules that promises rest on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ROOTS: Final = (
    "core",
    "channel",
    "wire",
    "projections",
    "client",
    "broker",
    "proxy",
    "cli",
    "spark_replay",
    "devkit",
)
"""Source roots; together they make the package `anabranch` that is mutated."""

SHARE_MIN: Final = 0.95
"""Of the mutants of each target, how many must be noticed."""


@dataclass(frozen=True, slots=True)
class Target:
    """Modules, as paths below the package, and tests, as paths below `tests`; both may be globs.

    `but`: modules that another target has. Tests run without Kafka, Spark and RocksDB, in
    processes that are forked from one that has imported them, and perhaps run them: its threads are
    not in them.
    """

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    but: tuple[str, ...] = ()


# Core in parts, the most important first: the whole takes hours.
_OF_CORE: Final = ("unit/core/**/test_*.py", "property/core/**/test_*.py")
# Modules of core that its own tests do not reach.
_OF_REPORTS: Final = ("unit/broker/balance/test_reporter.py",)
_RULES: Final = (
    "core/*/guards.py",
    "core/*/machine.py",
    "core/log/state_machine.py",
    "core/sessions/lease.py",
    "core/bundles/propose.py",
)
_FOLDS: Final = ("core/log/conflicts.py", "core/*/evolve.py")
_PLANS: Final = (
    "core/topics/controller.py",
    "core/subscriptions/coordinator.py",
    "core/subscriptions/assignor.py",
    "core/subscriptions/handover.py",
)

TARGETS: Final = (
    Target("core-rules", _RULES, _OF_CORE),
    Target("core-folds", _FOLDS, _OF_CORE),
    Target("core-plans", _PLANS, _OF_CORE),
    Target(
        "core-rest",
        ("core/*.py", "core/*/*.py"),
        (*_OF_CORE, *_OF_REPORTS),
        but=(*_RULES, *_FOLDS, *_PLANS),
    ),
    Target(
        "producers",
        tuple(
            f"client/_producer/{each}.py"
            for each in ("batch", "outcomes", "partition_writer", "router", "sender", "sequences")
        ),
        ("unit/client/producer/test_*.py", "property/client/producer/test_*.py"),
    ),
    Target(
        "settlement",
        (
            "client/_producer/settlement.py",
            "wire/kafka/producer_state.py",
            "wire/kafka/protocol.py",
        ),
        (
            "unit/client/producer/test_settlement.py",
            "unit/wire/kafka/test_*.py",
            "unit/client/consumer/test_faults.py",
        ),
    ),
    Target(
        "sealing",
        ("channel/segments/seal*.py", "channel/segments/copies.py"),
        ("unit/channel/segments/test_sealing.py",),
    ),
    Target("heartbeats", ("channel/heartbeats.py",), ("unit/channel/test_heartbeats.py",)),
    Target(
        "checks",
        ("spark_replay/audit/checks/*.py", "spark_replay/audit/checks/*/*.py"),
        ("unit/spark_replay/audit/**/test_*.py",),
    ),
)
