"""Texts that take minutes to look at: normalization of Unicode, and the rules of lint on instructions.

The attacker writes a page, an answer, a skill or a path. The oracle is processor time for one size against the time for
four times it.
"""

from __future__ import annotations

import inspect
import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reyn
from reyn.documents import Document
from reyn.documents.unicode_forms import has_many_marks, to_normal_form
from reyn.journal.listing import words_of
from reyn.lint import instructions, lint_skill
from reyn.skills import LoadResult
from reyn.skills import folder as skill_folder
from reyn.workspace.paths import folded
from tests.properties import ALL_CASES, examples
from tests.support import grows_too_fast, write_skill

FORMS = ["NFC", "NFD", "NFKC", "NFKD"]
MARKS = ["\u0301", "\u0323\u0301", "\u0f73", "\u0344", "\u3099\u0334", "\ufdfa\u0301\u0323", "\U0001d165\u0301"]


@pytest.mark.parametrize("marks", MARKS)
def test_normalization_takes_time_in_proportion_to_the_length(marks: str):
    """Without a bound, 200,000 marks take minutes."""
    for form in FORMS:
        assert not grows_too_fast(
            lambda count, form=form: to_normal_form(form, "a" + marks * count + "\u0323" * count), 6_000
        )
    assert not grows_too_fast(lambda count: list(words_of("a" + marks * count)), 6_000)
    assert not grows_too_fast(lambda count: folded("a" + "\u0323" * count + marks * count), 6_000)


LETTERS = st.text(st.sampled_from("ae\u0301\u0323\u0344\u0f73\u1100\u1161\u212b\ufb01\u034f中\U0001d15e"), max_size=300)


@examples(200)
@given(LETTERS, st.integers(0, 250), st.sampled_from(FORMS))
def test_texts_of_people_are_normalized_as_ever(text: str, marks: int, form: Any):
    text = text[:200] + "\u0323" * (marks // 5) + text[200:]
    if not has_many_marks(text):
        assert to_normal_form(form, text) == unicodedata.normalize(form, text)
    once = to_normal_form(form, text)
    assert to_normal_form(form, once) == once


def test_no_other_module_normalizes():
    modules = Path(inspect.getfile(reyn)).parent.rglob("*.py")
    found = {path.name for path in modules if re.search(r"unicodedata(\.| import .*)normalize", path.read_text())}
    assert found == {"unicode_forms.py"}


# -- lint ---------------------------------------------------------------------------------------------------------

FRAGMENTS = ['{"type": ', "a/", "/a", "x/y.z ", "\u0323\u0301", "read, with ", "-"]
MORE = [
    "<a>", "{a}", "[A]", "http://a ", "a@b.c ", "a@", "../a", "a-", "a.b/", "/-", "C:\\a", "abc1", "2020-01-01", "{",
    "{ ", '"', "kind: ", "op: ", "ops: [", "control_ir", "file read ", "file(", "set kind to ", "mcp:a/b", '"file-',
    "- a: ", "=", "->", "\t", "*_", "&#", "&#9", "&#x0", "&amp;", "\u0301", "\ufdfa", "`", "_", "1", "\\", "path: ",
    "--path ", "~", "|", "judge output", "next phase", "op (", "kind is ", "read as the op ", "tool: ", "call `file` ",
    "\u200b", "A ", "a",
]  # fmt: skip
if ALL_CASES:
    FRAGMENTS += MORE


def lint(root: Path, text: str) -> int:
    folder = root / "reyn" / "project" / "job"
    (folder / "phases" / "work.md").write_text(f"---\ntype: phase\nname: work\ninput: note\n---\n{text}\n")
    return len(lint_skill(folder))


@pytest.mark.sampled
def test_rules_on_instructions_take_time_in_proportion_to_the_length(tmp_path: Path):
    write_skill(tmp_path, "job", {"work": ["end"]})
    slow = [one for one in FRAGMENTS if grows_too_fast(lambda n, one=one: lint(tmp_path, one * (n // len(one))), 6_000)]
    assert not slow


@pytest.mark.parametrize("entity", ["&#" + "9" * 5_000, "&#x" + "f" * 5_000 + ";", "&#" + "0" * 5_000 + "102;"])
def test_an_entity_with_thousands_of_digits_is_a_character_like_others(tmp_path: Path, entity: str):
    write_skill(tmp_path, "job", {"work": ["end"]})
    assert lint(tmp_path, entity) >= 0


@pytest.mark.parametrize("text", ["word ", "`b` ", "<ab> ", "x\n", "kind: file op: read ", "a/b/c.md "])
def test_what_lint_reads_of_a_skill_is_bounded(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A clone can have any number of large files."""
    read: list[int] = []
    lines = instructions._lines

    def counted(loaded: LoadResult) -> Iterator[tuple[Document, int, str]]:
        for document, number, line in lines(loaded):
            read.append(len(line))
            yield document, number, line

    monkeypatch.setattr(instructions, "_lines", counted)
    monkeypatch.setattr(instructions, "MAX_CHECKED", 20_000)
    monkeypatch.setattr(skill_folder, "MAX_SKILL_CHARACTERS", 200_000)
    edges = {f"p{number}": [f"p{number + 1}"] for number in range(7)} | {"p7": ["end"]}
    folder = write_skill(tmp_path, "large", edges)
    for name in edges:
        with (folder / f"phases/{name}.md").open("a") as file:
            file.write(text * (40_000 // len(text)))
    found = lint_skill(folder)
    assert sum(read) <= 5 * instructions.MAX_CHECKED  # five rules read lines
    assert any(one.code == "RYN154" for one in found)
    assert any("is not read" in one.message and one.code == "RYN110" for one in found)


def pattern_steps(patterns: list[str]) -> str:
    one = "  - validate: {{schema: {{type: string, pattern: '{0}'}}, target: data.text}}\n"
    return "preprocessor:\n" + "".join(map(one.format, patterns))


def pattern_conditions(patterns: list[str]) -> str:
    one = "  - expression: \"data.text.matches('{0}')\"\n"
    return "preprocessor:\n" + "".join(one.format(pattern.replace("\\", "\\\\")) for pattern in patterns)


def pattern_schema(patterns: list[str], key: str) -> dict[str, Any]:
    named: dict[str, Any] = {f"p{one}": {"pattern": one} for one in patterns}
    return {"type": "object", key: named if key == "properties" else dict.fromkeys(patterns, True)}


MANY_PATTERNS: dict[str, Callable[[list[str]], dict[str, Any]]] = {
    "steps": lambda patterns: {"phase_keys": {"a": pattern_steps(patterns)}},
    "conditions": lambda patterns: {"phase_keys": {"a": pattern_conditions(patterns)}},
    "properties": lambda patterns: {"artifacts": {"other": pattern_schema(patterns, "properties")}},
    "names": lambda patterns: {"artifacts": {"other": pattern_schema(patterns, "patternProperties")}},
}


@pytest.mark.parametrize("place", MANY_PATTERNS)
def test_the_patterns_of_a_skill_are_bounded(place: str, tmp_path: Path):
    """To compile a short pattern with classes of Unicode takes as long as a hundred thousand others."""
    allowed = skill_folder.MAX_PATTERNS
    for count in (allowed, allowed + 1):
        patterns = [f"^x{number}" for number in range(count)]
        folder = write_skill(tmp_path / str(count), "s", {"a": ["end"]}, **MANY_PATTERNS[place](patterns))
        found = [one.message for one in lint_skill(folder) if "patterns" in one.message]
        assert bool(found) == (count > allowed), found


@pytest.mark.parametrize("place", MANY_PATTERNS)
@pytest.mark.parametrize("slow", [r"\p{L}{1,99}", r"(?:\P{N}\p{L}){40}", r"[\p{L}\p{N}]{0,45}x"])
def test_patterns_that_take_long_to_compile_count_as_several(place: str, slow: str, tmp_path: Path):
    """They would take a minute, if as many were allowed as of the others."""
    for count in (8, 15):
        patterns = [f"^x{number}{slow}" for number in range(count)]
        folder = write_skill(tmp_path / str(count), "s", {"a": ["end"]}, **MANY_PATTERNS[place](patterns))
        found = [one.message for one in lint_skill(folder) if "more than 200 patterns" in one.message]
        assert bool(found) == (count == 15), found
