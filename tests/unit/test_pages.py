"""The pages lead where they say, and know every package that there is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

_REPOSITORY: Final = Path(__file__).parents[2]
_DOCS: Final = _REPOSITORY / "docs"
_PAGES: Final = (*sorted(_REPOSITORY.glob("*.md")), *sorted(_DOCS.rglob("*.md")))
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_NAMED: Final = re.compile(r"^`(\w+)`:", re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """What a link may name behind `#`: made of headings, as GitHub makes it."""
    found: Counter[str] = Counter()
    anchors = set()
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#+ (.+)$", prose, re.MULTILINE):
        said = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", said).replace(" ", "-")
        anchors.add(f"{slug}-{found[slug]}" if found[slug] else slug)
        found[slug] += 1
    return anchors


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.relative_to(_REPOSITORY)))
def test_links_lead_to_pages_and_headings_that_are_there(page: Path) -> None:
    dead = []
    for link in _LINK.findall(page.read_text("utf-8")):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        there = page.parent / path if path else page
        if not there.exists() or (anchor and anchor not in _anchors(there)):
            dead.append(link)
    assert dead == []


def test_a_heading_that_stands_twice_has_two_anchors(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n## What it is, `x` too\n```\n# no heading\n```\n## A\n", "utf-8")
    assert _anchors(page) == {"a", "what-it-is-x-too", "a-1"}


def _packages() -> Iterator[Path]:
    """Every package of the project, but for the insides of packages of packages."""
    for root in _REPOSITORY.glob("*/anabranch"):
        for each in root.glob("*/__init__.py"):
            yield each.parent
            yield from (inner.parent for inner in each.parent.glob("*/__init__.py"))


def test_the_architecture_names_every_package() -> None:
    page = (_DOCS / "architecture.md").read_text("utf-8")
    named = set(re.findall(r"`(?:anabranch\.)?(\w+)/?`", page))
    assert {each.name for each in _packages()} - named == set(), "say in docs/architecture.md what"


def test_a_package_that_names_its_modules_names_all_of_them() -> None:
    wrong = {}
    for package in _packages():
        said = (package / "__init__.py").read_text("utf-8").split('"""')[1]
        named = set(_NAMED.findall(said))
        if not named:
            continue
        there = {each.stem for each in package.glob("*.py")} - {"__init__"}
        missing = there - set(re.findall(r"`(\w+)`", said))
        if missing or named - there:
            wrong[package.name] = (missing, named - there)
    assert wrong == {}


def test_the_glossary_is_in_order() -> None:
    rows = (_DOCS / "glossary.md").read_text("utf-8").splitlines()
    words = [row.split("|")[1].strip().lower() for row in rows if row.startswith("| ")][2:]
    assert words == sorted(words)


def test_the_wire_page_explains_each_error_of_a_node() -> None:
    page = (_DOCS / "wire.md").read_text("utf-8")
    explained = set(re.findall(r"^\| \d+ \| (\w+) \|", page, re.MULTILINE))
    binary = _REPOSITORY / "broker" / "anabranch" / "broker" / "binary"
    sources = (each.read_text("utf-8") for each in binary.glob("*.py"))
    sent = {name for text in sources for name in re.findall(r"\bServerError\.(\w+)", text)}
    assert len(sent) > 5
    assert sent - explained == set()
