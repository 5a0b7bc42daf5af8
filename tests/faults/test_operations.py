"""Each operation of the workload's operator is one that a node does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.admin import AsyncAdmin
from anabranch.core.placement import Copies, KafkaSurvey
from faults import operations
from faults.history import History, read
from faults.operations import CHANCES, Operation, Operator
from support.http import http_nodes

# What is said of each to have been asked for; there may be nobody to transfer a bundle to.
_SAID: dict[Operation, set[str]] = {
    Operation.RESHAPE: {"split", "merge"},
    Operation.REBUCKET: {"rebucket"},
    Operation.RELOCATE: {"relocate"},
    Operation.UNLOAD: {"unload"},
    Operation.TRANSFER: {"transfer", "unload"},
    Operation.SPLIT_BUNDLE: {"split bundle"},
    Operation.POLICY: {"set policy", "remove policy"},
}


def test_each_may_be_drawn() -> None:
    assert set(CHANCES) == set(Operation) == set(_SAID)
    assert all(chance > 0 for chance in CHANCES.values())


class _Once(History):
    """Stops the operator once it has done something, or was refused."""

    stop: Callable[[], None]

    def say(self, what: str, **fields: Any) -> None:
        super().say(what, **fields)
        if what in ("operated", "not_operated"):
            self.stop()


async def _operated(url: str, folder: Path, kind: Operation) -> list[dict[str, Any]]:
    """What an operator said of one operation."""
    with _Once(folder, "operator") as history:
        async with AsyncAdmin(url) as admin:
            operator = Operator(admin, history, 1, [kind])
            history.stop = operator.stop
            await operator.run()
    return [dict(line) for line in read(folder)]


@pytest.mark.parametrize("kind", Operation)
async def test_a_node_does_it(
    kind: Operation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "OPERATION_S", 0.01)

    async with http_nodes(replicationFactor=1, minInsyncReplicas=1) as (nodes, cluster):
        two = Copies(1, (1, 2))
        cluster.kafka.survey = KafkaSurvey({1: "", 2: "", 3: ""}, {(0, 0): (two, two)})
        lines = await _operated(str(nodes[0].http.base_url), tmp_path, kind)
        assert [line["why"] for line in lines if line["what"] == "not_operated"] == []
        (said,) = (line["kind"] for line in lines if line["what"] == "operation")
        assert said in _SAID[kind]
        assert [line["what"] for line in lines][-1] == "operated"
