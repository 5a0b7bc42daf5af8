"""Docstrings and pages put the subject of a sentence first, so that anybody can follow them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_REPOSITORY = Path(__file__).parents[2]
_PAGES = [_REPOSITORY / "README.md", *sorted((_REPOSITORY / "docs").rglob("*.md"))]
_NO_PROSE = re.compile(r"```.*?```|^\|.*?$|^    .*?$", re.S | re.M)  # code and tables
_DOCSTRINGS_SHARE_MAX = 0.04
_PAGES_SHARE_MAX = 0.08
# A sentence that begins so puts a clause or a genitive where its subject should stand.
_CLAUSE = re.compile(
    r"\W*(what(ever)?|whether|which|who(ever|m|se)?|where|how|when|as|of|by|nobody)\b", re.I
)
_RELATIVE = re.compile(r"\b(what|who|whom|whose|whoever|whatever)\b", re.I)


def _docstrings() -> Iterator[str]:
    for path in sorted(_REPOSITORY.glob("*/anabranch/**/*.py")):
        if path.name.endswith("_pb2.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield ast.get_docstring(node) or ""


def _sentences(text: str, ends: str) -> Iterator[str]:
    yield from re.split(rf"(?<=[{ends}])\s+", " ".join(text.split()))


def _words(sentence: str) -> int:
    return len(re.findall(r"[A-Za-z'`]+", sentence))


def test_docstrings_begin_their_sentences_with_a_subject() -> None:
    sentences = [
        sentence
        for text in _docstrings()
        for sentence in _sentences(text, ".!?;:")
        if _words(sentence) > 2
    ]
    found = [each for each in sentences if _CLAUSE.match(each)]
    assert len(found) <= _DOCSTRINGS_SHARE_MAX * len(sentences), "\n".join(found)


def test_pages_name_things_instead_of_paraphrasing_them() -> None:
    sentences = [
        sentence
        for page in _PAGES
        for paragraph in _NO_PROSE.sub("", page.read_text()).split("\n\n")
        for sentence in _sentences(paragraph, ".!?")
        if _words(sentence) > 3
    ]
    found = [each for each in sentences if _RELATIVE.search(each)]
    assert len(found) <= _PAGES_SHARE_MAX * len(sentences), "\n".join(found)
