"""Ops on files disclose no part of a known secret, and no pattern takes more memory than its search needs.

The attacker is a model with the op `file` and no grant. The oracles are the secret itself, and the size that a pattern
has when every repeat is written out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.ops import budget, memory
from reyn.ops.budget import OpFailed
from reyn.ops.file.searching import _compile, _expanded
from reyn.ranking import best_matches
from tests.kernel.support import Project
from tests.properties import examples
from tests.support import act, file, finish, write_skill

VALUE = "tok-Zq81mPx77Lw0vRt5"

# -- secrets --------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("REYN_SECRET_DEPLOY", VALUE)
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file, recall"}, skill_keys="permissions: {memory: true}\n")
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "notes.md").write_text(f"first line\ndeploy with {VALUE} on friday\nlast line\n")
    (tmp_path / "output" / "other.md").write_text("deploy on tok-day\n")
    return Project(tmp_path)


NOTES = "output/notes.md"
PIECES: list[dict[str, Any]] = [
    *(file("read", NOTES, start=start, length=10) for start in (0, 20, 28, 33)),
    *(file("read", NOTES, offset=line, limit=1) for line in (0, 1, 2)),
    *(
        file("grep", NOTES, pattern=pattern, output_mode=mode)
        for pattern in ("tok-Z", "tok-Y", "^first", "no such text")
        for mode in ("content", "count", "files_with_matches")
    ),
    *(file("edit", NOTES, old_string=old, new_string="x") for old in ("tok-Z", "tok-Y", "first")),
    file("delete", NOTES),
    file("write", NOTES, content="x"),
]


def test_every_op_on_a_file_that_holds_a_secret_is_denied_alike(project: Project):
    """Whether a part of the secret is there makes no difference: no answer narrows it down."""
    project.run("s", [act(*PIECES[:12]), act(*PIECES[12:]), finish()])
    found = project.results()
    assert len(found) == len(PIECES)
    assert {(one["status"], one["rule"]) for one in found} == {("denied", "default: no secret in an op")}
    assert len({one["error"] for one in found}) == 1
    assert len(project.events("permission_denied")) == len(PIECES)
    assert VALUE in (project.root / NOTES).read_text()
    assert project.is_sound("k")


def test_a_search_of_a_folder_skips_files_that_hold_a_secret(project: Project):
    ops = [file("grep", "output", pattern=f"tok-{sign}", output_mode="count") for sign in ("Z", "Y", "d")]
    project.run("s", [act(*ops), finish()])
    assert [(one["status"], one["count"], one["skipped"]) for one in project.results()] == [
        ("ok", 0, 1),
        ("ok", 0, 1),
        ("ok", 1, 1),
    ]


# -- patterns -------------------------------------------------------------------------------------------------

atoms = st.sampled_from(("a", ".", "\\d", "[a-f0-9]", "[(]", "\\)", "x*", "\\p{L}", "\\X", "[^]]")).map(
    lambda text: (text, 1)
)
counts = st.sampled_from((0, 1, 2, 3, 40, 300, 5_000, 10**9))
forms = st.sampled_from(("{%d}", "{%d,}", "{%d,9999999999}"))


def _repeated(inner: st.SearchStrategy[tuple[str, int]]) -> st.SearchStrategy[tuple[str, int]]:
    group = st.sampled_from(("(?:%s)", "(%s)", "(?=%s)", "(?i:%s)", "(?>%s)", "(?:%s)(?#c)"))
    return st.one_of(
        st.builds(
            lambda one, n, form, kind: ((kind % one[0]) + form % n, one[1] * max(1, n)), inner, counts, forms, group
        ),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda all_: ("".join(t for t, _ in all_), sum(n for _, n in all_))
        ),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda all_: ("|".join(t for t, _ in all_), sum(n for _, n in all_))
        ),
    )


@given(st.recursive(atoms, _repeated, max_leaves=8))
@examples(200)
def test_the_size_of_a_pattern_is_not_underestimated(pattern: tuple[str, int]):
    text, written_out = pattern
    assert _expanded(text) >= written_out


@pytest.mark.parametrize("pattern", ["a{4000000000}", "(?:a{1000}){2000}", "(?:(?:a{50}b){50}c){50,}", "[^a]{90000}"])
def test_a_pattern_that_expands_beyond_the_limit_is_refused(pattern: str):
    with pytest.raises(OpFailed, match="repeats too much"):
        _compile(pattern, ignore_case=False)


@pytest.mark.parametrize("pattern", ["(?x) a {1} # {\n", "(?ix:a)", "(?i-x)a"])
def test_a_pattern_with_ignored_characters_is_refused(pattern: str):
    with pytest.raises(OpFailed, match="flag `x`"):
        _compile(pattern, ignore_case=False)


@pytest.mark.parametrize(
    "pattern",
    [
        r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        r"(?:\d{1,3}\.){3}\d{1,3}",
        r"^.{0,200}TODO.{0,2000}$",
        r"eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{10,}",
        r"(?:AKIA[0-9A-Z]{16}|ghp_[A-Za-z0-9]{36}|xox[abp]-[0-9]{12}-[0-9]{12}-[A-Za-z0-9]{24})",
        r"(?P<next>a)(?P=next)\{1000000\}",
        r"-{80}",
        r"\p{Lu}{3}",
    ],
)
def test_usual_patterns_are_compiled(pattern: str):
    assert _compile(pattern, ignore_case=True)


# -- recall ---------------------------------------------------------------------------------------------------


def recall(*folders: str) -> dict[str, Any]:
    return {"kind": "recall", "query": "deploy day", "folders": list(folders)}


def test_recall_searches_a_folder_once_however_often_it_is_named(project: Project, monkeypatch: pytest.MonkeyPatch):
    (project.root / "output/deep").mkdir()
    (project.root / "output/other.md").rename(project.root / "output/deep/other.md")
    monkeypatch.setattr(memory, "_MAX_SEARCHED", len("deploy on tok-day\n"))
    project.run("s", [act(recall("output", "./output", "output/", "output/../output", "output/deep")), finish()])
    [found] = project.results()
    assert [one["path"] for one in found["found"]] == ["output/deep/other.md"]


def test_recall_refuses_more_text_than_it_can_index(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory, "_MAX_SEARCHED", 10)
    project.run("s", [act(recall("output")), finish()])
    [found] = project.results()
    assert found["status"] == "error"
    assert "give narrower ones" in found["error"]


def test_recall_ranks_outside_of_the_event_loop_and_within_its_time(project: Project, monkeypatch: pytest.MonkeyPatch):
    def rank(query: str, texts: list[str], limit: int, check_time: Callable[[], object]) -> list[tuple[int, float]]:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        monkeypatch.setattr(budget.time, "monotonic", lambda: float("inf"))
        try:
            return best_matches(query, texts, limit, check_time)
        finally:
            monkeypatch.undo()

    monkeypatch.setattr(memory, "best_matches", rank)
    project.run("s", [act(recall("output")), finish()])
    assert [one["status"] for one in project.results()] == ["timeout"]


@pytest.mark.parametrize("count", [1, 1_999, 2_001, 4_500])
def test_the_passage_of_a_file_with_many_parts_is_found(project: Project, count: int):
    (project.root / "output/parts.md").write_text("word\n\n" * count + "the day to deploy\n\n" + "word\n\n" * count)
    project.run("s", [act(recall("output")), finish()])
    [found] = project.results()
    assert {one["path"]: one["text"] for one in found["found"]}["output/parts.md"] == "the day to deploy"
