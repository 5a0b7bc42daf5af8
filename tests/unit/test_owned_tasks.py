"""No task ends by a fault that nobody sees."""

from __future__ import annotations

import ast
import asyncio
import logging
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from anabranch.wire import supervised as tasks
from mutation.targets import ROOTS
from support.waiting import until

_REPOSITORY = Path(__file__).parents[2]
_MAKERS = ("asyncio.create_task", "asyncio.ensure_future")  # a group's own waits for its tasks


def _unowned(code: str) -> Iterator[int]:
    """Lines that make a task whose fault nobody would see.

    Whoever makes one waits for it, returns it, or has its end looked at; or its work catches all.
    """
    tree = ast.parse(code)
    functions = [
        each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    catching = {each.name for each in functions if "except Exception" in ast.unparse(each)}
    looking = {
        each.name
        for each in functions
        if any(f".{how}()" in ast.unparse(each) for how in ("exception", "result"))
    }
    made = [
        (function, each)
        for function in functions
        for each in ast.walk(function)
        if isinstance(each, ast.Call) and ast.unparse(each.func) in _MAKERS
    ]
    for function, call in made:
        work = call.args[0]
        if isinstance(work, ast.Call) and ast.unparse(work.func).removeprefix("self.") in catching:
            continue
        if not any(_sees(node, call, function, looking) for node in ast.walk(function)):
            yield call.lineno


def _sees(node: ast.AST, call: ast.Call, function: ast.AST, looking: Collection[str]) -> bool:
    if isinstance(node, ast.Return | ast.Await):
        return call in ast.walk(node) or any(
            f" {name}" in ast.unparse(node).replace("(", " ") for name in _names(call, function)
        )
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr != "add_done_callback" or not node.args:
        return False
    looks = ast.unparse(node.args[0]).rpartition(".")[2] in looking
    return looks and ast.unparse(node.func.value) in _names(call, function)


def _names(call: ast.Call, function: ast.AST) -> set[str]:
    """What the task is called where it is made."""
    return {
        ast.unparse(target)
        for each in ast.walk(function)
        if isinstance(each, ast.Assign) and each.value is call
        for target in each.targets
    }


def test_each_task_has_an_owner_who_sees_its_fault() -> None:
    found = [
        f"{path.relative_to(_REPOSITORY)}:{line}"
        for root in ROOTS
        for path in sorted((_REPOSITORY / root).rglob("*.py"))
        if any(each in (code := path.read_text(encoding="utf-8")) for each in _MAKERS)
        for line in _unowned(code)
    ]
    assert found == [], "let anabranch.wire.supervised make it, or wait for it"


@pytest.mark.parametrize(
    ("body", "is_owned"),
    [
        ("self.t = asyncio.create_task(self.go())", False),
        ("t = asyncio.create_task(go()); t.add_done_callback(self.ts.discard)", False),
        ("t = asyncio.create_task(go()); t.add_done_callback(self.f)", False),
        ("t = asyncio.create_task(go()); t.add_done_callback(f); t.exception()", True),
        ("t = asyncio.create_task(go()); await asyncio.shield(t)", True),
        ("return asyncio.create_task(go())", True),
        ("async with asyncio.TaskGroup() as group: group.create_task(go())", True),
    ],
)
def test_whose_a_task_is_can_be_told(body: str, is_owned: bool) -> None:
    assert list(_unowned(f"async def f():\n    {body}")) == [2] * (not is_owned)


async def test_what_is_kept_going_begins_anew_after_a_fault_which_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "AGAIN_S", 0.0)
    begun: list[int] = []

    async def run() -> None:
        begun.append(len(begun))
        if len(begun) < 3:
            raise ValueError("a fault")
        await asyncio.Event().wait()

    with caplog.at_level(logging.ERROR):
        task = tasks.kept_going(run, "what goes on")
        await until(lambda: len(begun) == 3)
        task.cancel()
        await asyncio.wait([task])
    assert caplog.text.count('task.fault task="what goes on"') == 2


async def test_the_fault_of_a_task_that_nobody_waits_for_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> None:
        raise ValueError("a fault")

    task = tasks.supervised(fail(), "alone")
    await asyncio.wait([task])
    await until(lambda: "task.fault task=alone" in caplog.text)
