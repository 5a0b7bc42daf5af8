"""What the images hold: who runs in them, nothing to build with, packages by their hashes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any, Final

import pytest

from support.metrics_page import ROOT

pytestmark = pytest.mark.faults

_TAG: Final = os.environ.get("STACK_TAG", "dev")
_IMAGES: Final = ("node", "spark", "kafka", "prometheus")
_REQUIREMENTS: Final = {"node": "node.txt", "spark": "spark.txt"}
_NODE_BYTES_MAX: Final = 250_000_000
_TOOLS: Final = "for tool in gcc cc c++ make pip pip3; do command -v $tool; done"
_CACHES: Final = "find / -xdev -path '*/.cache/pip' -o -path '/var/lib/apt/lists/*_*' -type f"


def _in(image: str, command: str) -> str:
    return subprocess.run(
        ["docker", "run", "--rm", "--entrypoint", "sh", f"anabranch-{image}:{_TAG}", "-c", command],
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _told(image: str) -> dict[str, Any]:
    found = subprocess.run(
        ["docker", "image", "inspect", f"anabranch-{image}:{_TAG}"], capture_output=True, check=True
    )
    answer: list[dict[str, Any]] = json.loads(found.stdout)
    return answer[0]


@pytest.mark.parametrize("image", _IMAGES)
def test_nobody_is_root_and_nothing_can_be_built(image: str) -> None:
    assert _told(image)["Config"]["User"] == "anabranch"
    assert _in(image, "id -u").strip() == "10001"
    assert _in(image, f"{_TOOLS}; {_CACHES}").split() == []


def test_the_image_of_a_node_is_small() -> None:
    assert _told("node")["Size"] < _NODE_BYTES_MAX


@pytest.mark.parametrize("image", _REQUIREMENTS)
def test_packages_are_those_of_the_hashed_file(image: str) -> None:
    text = (ROOT / "requirements" / _REQUIREMENTS[image]).read_text("utf-8")
    named = re.findall(r"^([\w.-]+)(?:\[[^]]*\])?==([^\s;]+)", text, re.MULTILINE)
    pinned = {(_normal(name), version) for name, version in named}  # some by Python's version
    listed = _in(
        image,
        "/opt/anabranch/bin/python -c 'import importlib.metadata as m, json; "
        "print(json.dumps([[d.name, d.version] for d in m.distributions()]))'",
    )
    held = {(_normal(name), version) for name, version in json.loads(listed)}
    ours = {(name, version) for name, version in held if name == "anabranch"}
    assert len(ours) == 1
    assert len(held) > 10
    assert held - ours <= pinned
