"""Search indexes. The attacker is a skill that may use their ops; other skills write and search the same indexes.

An index is shared by all runs of a project. What one run may not read or remove, it must not through an index either.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reyn.retrieval.embedders import of_length_one
from tests.kernel.support import Project
from tests.support import act, file, finish, write_skill

CANARY = "canary of the other run"
OPS = "file, recall, index_write, index_query, embed"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with two skills. The rules deny `docs/` to the second one."""
    (tmp_path / "reyn.yaml").write_text("retrieval: {embedder: none}\n")
    for name in ("docs", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text(f"# Notes\n\nThe {CANARY} in {name}.\n")
    (tmp_path / "given:a.md").write_text(f"The {CANARY} in a file with the name of a text.\n")
    for skill in ("owner", "thief"):
        write_skill(tmp_path, skill, {"a": ["end"]}, ops={"a": OPS}, phase_keys={"a": "max_act_turns: 12\n"})
    return Project(tmp_path)


RULES = {"file.read": [{"deny": ["docs/", "given:a.md"], "skill": "thief"}]}


def run(project: Project, skill: str, *ops: dict[str, Any], run_id: str) -> list[dict[str, Any]]:
    assert project.run(skill, [*map(act, ops), finish()], run_id=run_id, permissions=RULES).ok
    return project.results(run_id)


def write(*paths: str, **more: Any) -> dict[str, Any]:
    return {"kind": "index_write", "index": "all"} | ({"paths": [*paths]} if paths else {}) | more


SEARCH: list[dict[str, Any]] = [
    {"kind": "recall", "query": CANARY, "index": "all", "limit": 20},
    {"kind": "index_query", "index": "all", "query_vector": [1.0] * 256, "top_k": 50},
]
HIDDEN = ["docs", "docs/a.md", "given:a.md", "workspace:own.md", "workspace:", "workspace:.full"]


@pytest.mark.parametrize("path", HIDDEN)
def test_an_index_shows_nothing_that_only_another_run_may_read(project: Project, path: str):
    own = [file("write", f"workspace:{name}", content=f"The {CANARY}.") for name in ("own.md", "sub/own.md")]
    run(project, "owner", write("open"), *own, write(path), run_id="o")
    own = [file("write", f"workspace:{name}", content="mine") for name in ("own.md", "sub/own.md")]
    _, _, *found = run(project, "thief", *own, *SEARCH, run_id="t")
    paths = {one["path"] for result in found for one in result.get("found", ())}
    assert paths <= {"open/a.md"}


WORDS = ("canary", "other", "notes", "password", "hunter2", "tea")
HIDDEN_TEXTS = {
    "nothing": [],
    "the word alone": ["canary"],
    "another word": ["hunter2"],
    "all words": [" ".join(WORDS)],
    "most passages": [f"canary hunter2 {number}" for number in range(120)],
}


@pytest.mark.parametrize("embedder", ["none", "static"])
def test_no_result_depends_on_documents_that_may_not_be_read(tmp_path: Path, embedder: str):
    """Neither which passages are found nor their order and scores: a skill could ask word by word what is in them."""
    found = []
    for number, (name, texts) in enumerate(HIDDEN_TEXTS.items()):
        root = tmp_path / str(number)
        (root / "docs").mkdir(parents=True)
        (root / "open").mkdir()
        (root / "reyn.yaml").write_text(f"retrieval: {{embedder: {embedder}}}\n")
        (root / "docs/z.md").write_text("z")
        for at, text in enumerate(texts):
            (root / f"docs/{at}.md").write_text(f"# {text}\n\n{text}\n")
        for at, word in enumerate(WORDS):
            (root / f"open/{at}.md").write_text(f"{word} is one of many words in a long sentence about tea {at}.\n")
        for skill in ("owner", "thief"):
            write_skill(root, skill, {"a": ["end"]}, ops={"a": OPS}, phase_keys={"a": "max_act_turns: 12\n"})
        project = Project(root)
        run(project, "owner", write("docs", "open"), run_id="o")
        asked = [SEARCH[0] | {"query": query} for query in (*WORDS, "canary password tea", "hunter2 notes")]
        found.append([one["found"] for one in run(project, "thief", *asked, SEARCH[1], run_id="t") if "found" in one])
        assert all(one["path"].startswith("open/") for result in found[-1] for one in result), name
    assert found[0]
    assert all(one == found[0] for one in found)


NUMBERS: list[Any] = [1e308, -1e308, 1e39, 2**70, 10**400, 5e-324, -0.0]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda one: f"{one:.0e}" if isinstance(one, float) else str(one)[:9])
def test_vectors_of_any_numbers_are_compared_or_refused(project: Project, number: Any):
    """Of a query, which a model makes up, and of a server. No result has a number that is none."""
    (project.root / "reyn.yaml").write_text("retrieval: {embedder: static}\n")
    queries = ([number] * 256, [number] + [0.0] * 255, [number, -number] * 128, [number])
    asked = [SEARCH[1] | {"query_vector": query} for query in queries]
    for result in run(project, "owner", write("open"), *asked, run_id="o"):
        assert result["status"] in ("ok", "error")
        assert "Warning" not in result.get("error", "")
        assert all(0 < one["score"] < 10 for one in result.get("found", ()))
    for rows in ([[number], [1.0]], [[number] * 3, [1.0] * 3], [[1.0], [1.0, 2.0]], [[], []], [["x"], [None]]):
        with suppress(ValueError):
            made = of_length_one(rows)
            lengths = [sum(float(one) ** 2 for one in row) for row in made]
            assert all(length == 0 or abs(length - 1) < 1e-5 for length in lengths)


CLEARING: list[dict[str, Any]] = [
    write(chunks=[{"text": "x"}], mode="replace"),
    write(chunks=[{"text": "x", "source": "docs/a.md"}], mode="replace"),
    write("docs", mode="replace"),
    write("open", mode="replace"),
    write("output", mode="replace"),
    write("workspace:", mode="replace"),
]


@pytest.mark.parametrize("clearing", CLEARING, ids=str)
def test_no_write_removes_what_the_run_may_not_read(project: Project, clearing: dict[str, Any]):
    """To remove an index with everything in it needs the permission `index_drop`."""
    run(project, "owner", write("docs", "open"), run_id="o")
    run(project, "thief", clearing, run_id="t")
    [found] = run(project, "owner", SEARCH[0], run_id="p")
    assert "docs/a.md" in {one["path"] for one in found["found"]}


@pytest.mark.parametrize("clearing", CLEARING, ids=str)
def test_a_write_that_replaces_needs_the_permission_to_remove(project: Project, clearing: dict[str, Any]):
    """Also one of an empty folder, and one of texts, which others may have given."""
    run(project, "owner", write("open"), write(chunks=[{"text": "x"}]), run_id="o")
    before = project.journal.documents("all")
    [denied] = run(project, "thief", clearing, run_id="t")
    assert denied["status"] == "denied"
    assert project.journal.documents("all") == before


def test_texts_name_the_skill_that_gave_them(project: Project):
    """Whatever source it states, and also if it states none."""
    sources = ("", "a", "../owner", "/owner/a", "owner", "s/owner")
    chunks = [{"text": f"{CANARY} {number}", "source": one} for number, one in enumerate(sources)]
    run(project, "owner", write(chunks=[{"text": f"the {CANARY}", "source": "a"}, {"text": CANARY}]), run_id="o")
    run(project, "thief", write(chunks=[{"text": "none"}, *chunks]), run_id="t")
    [found] = run(project, "owner", SEARCH[0] | {"limit": 20}, run_id="p")
    by_path = {one["path"]: one["text"] for one in found["found"]}
    assert by_path.pop("given:owner/a") == f"the {CANARY}"
    assert by_path.pop("given:owner") == CANARY
    assert all(path.partition("/")[0] == "given:thief" for path in by_path)


@pytest.mark.parametrize("source", ["\0", "a\0b", "a\nb", "\x1b[2J", "\u202e", "\u2028"])
def test_a_source_that_is_no_name_leaves_an_index_as_it_is(project: Project, source: str):
    """Some journals cannot store it: the write would not end."""
    run(project, "owner", write("open"), run_id="o")
    before = project.journal.documents("all")
    [refused] = run(project, "thief", write(chunks=[{"text": "x"}, {"text": "y", "source": source}]), run_id="t")
    assert "printable characters only" in refused["error"]
    assert project.journal.documents("all") == before


@pytest.mark.parametrize("clearing", CLEARING[:2], ids=str)
def test_texts_replace_texts_alone(project: Project, clearing: dict[str, Any]):
    write_skill(project.root, "owner", {"a": ["end"]}, ops={"a": OPS}, skill_keys="permissions: {index_drop: true}\n")
    allowed = {"index_drop": "allow"}
    answers = [*map(act, (write("docs", "open"), write(chunks=[{"text": "old"}]), clearing)), finish()]
    assert project.run("owner", answers, run_id="o", permissions=allowed).ok
    assert {row.path for row in project.journal.documents("all") if row.path and "given" not in row.path} == {
        "docs/a.md",
        "open/a.md",
    }
