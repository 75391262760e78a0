"""No answer causes an effect outside of the candidates, the allowed ops and the zones.

The oracle is not the gate: it hashes every file on the disk around the project before and after, listens to the
interpreter's own audit events for sockets and processes, and reads the path of the run. The model may say anything.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reyn import SyncRuntime
from reyn.contract.verdicts import REJECTION_CLASSES
from reyn.journal import decode, kinds
from reyn.testing import ScriptedModel
from tests.properties import examples
from tests.support import abort, act, file, finish, go, question, with_ops, write_skill

CANARY = "CANARY-7f3a"
FORBIDDEN = ("socket.connect", "socket.bind", "subprocess.Popen", "os.exec", "os.system", "os.posix_spawn", "os.fork")
PROTECTED = re.compile(r"(?i)makefile|package\.json|hooks|.*\.py")
"""Names of files that other programs execute, as far as they occur here."""
GRAPH = {"plan": ["build", "plan"], "build": ["end"]}
_audited: list[str] | None = None


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _audited is not None and event in FORBIDDEN:
        _audited.append(f"{event} {args!r}"[:200])


sys.addaudithook(_audit)


@contextmanager
def audited_process() -> Iterator[list[str]]:
    """Collect the attempts of this process to reach the network or other processes."""
    global _audited  # noqa: PLW0603 - an audit hook cannot be removed
    _audited = []
    try:
        yield _audited
    finally:
        _audited = None


def tree(folder: Path) -> dict[str, str]:
    """Return content, link target and mode of every path below a folder."""
    found: dict[str, str] = {}
    for base, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(base, name)
            if path.is_symlink():
                found[str(path)] = f"link {path.readlink()}"
            elif path.is_file():
                mode = path.stat().st_mode & 0o777
                found[str(path)] = f"{mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return found


def make_world(around: Path) -> Path:
    """Create a project next to unrelated files, with links that lead to them."""
    root = around / "project"
    write_skill(root, "s", GRAPH, ops={"plan": "file, ask_user"})
    outside = around / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(CANARY)
    (root / "notes.txt").write_text("a note")
    (root / ".env").write_text(CANARY)
    (root / "output" / ".private").mkdir(parents=True)
    (root / "output" / ".private" / "key.txt").write_text(CANARY)
    (root / "output" / "draft.txt").write_text("a draft")
    (root / "output" / "Makefile").write_text("all: draft.txt\n")
    (root / "output" / "tool.py").write_text("print()\n")
    (root / "out").symlink_to(outside)
    (root / "output" / "out").symlink_to(outside)
    (root / "output" / "leak.txt").symlink_to(outside / "secret.txt")
    (root / "state").symlink_to(root / ".reyn")
    (root / "output" / "up").symlink_to("..")
    return root


NAMES = ["..", "reyn", "output", "out", "state", ".reyn", "up", "a", ".a", "a.py", "."]
PATHS = st.one_of(
    st.sampled_from(
        ["notes.txt", "output/draft.txt", "output/new/deep.txt", "workspace:a.txt", "workspace:../../../notes.txt",
         "../outside/secret.txt", "../../etc/passwd", "/etc/passwd", "out/secret.txt", "out/new.txt",
         "output/out/secret.txt", "output/out/new.txt", "output/leak.txt", "output/up/notes.txt", "output/up/new.txt",
         "state/journal.db", ".reyn/journal.db", ".reyn/workspace/k/a.txt", "reyn.yaml", "reyn", ".", "", "~/x",
         "reyn/new.txt", "reyn/project/s/skill.md", "output", ".env", "output/.private/key.txt", "output/.private",
         "output/up/.env", "output/.new", "output/tool.py", "output/new/TOOL.PY", "output/Makefile", "output/makefile",
         "output/new/hooks/x", "output/package.json", "workspace:.new", "workspace:new/.git/config",
         "output/../notes.txt", "workspace:", "workspace:.full/1.1.1", "output/a\x00b", "output/" + "x" * 300, "\udcff"]
    ),
    st.text(max_size=12),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=6).map("/".join),
)  # fmt: skip
TEXTS = st.text(max_size=20)
FILE_OPS = st.builds(
    lambda op, path, extra: {"kind": "file", "op": op, "path": path} | extra,
    st.sampled_from(["read", "write", "edit", "delete", "glob", "grep", "regenerate_index", "chmod", None]),
    PATHS,
    st.one_of(
        st.just({}),
        st.fixed_dictionaries({"content": TEXTS}),
        st.fixed_dictionaries({"pattern": TEXTS}),
        st.fixed_dictionaries({"old_string": TEXTS, "new_string": TEXTS}),
        st.fixed_dictionaries({"output_path": PATHS, "entry_template": st.just("- {slug}\n")}),
        st.dictionaries(TEXTS, st.integers(), max_size=2),
    ),
)
OPS = st.one_of(
    FILE_OPS,
    FILE_OPS,
    st.builds(question, TEXTS),
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["shell", "sandboxed_exec", "web_fetch", "run_skill", 7, None]), "cmd": TEXTS}
    ),
    st.dictionaries(TEXTS, st.none() | st.integers() | TEXTS, max_size=3),
    st.none() | st.integers(),
)  # fmt: skip
DECISIONS = st.one_of(
    st.builds(go, st.sampled_from(["build", "plan", "end", "abort", "rollback", "nowhere", ""]), TEXTS),
    st.builds(finish, TEXTS),
    st.builds(abort, TEXTS),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
ANSWERS = st.one_of(
    st.lists(OPS, min_size=1, max_size=4).map(lambda ops: act(*ops)),
    st.builds(lambda decision, ops: with_ops(decision, *ops), DECISIONS, st.lists(OPS, max_size=3)),
    DECISIONS,
    st.builds(lambda decision, key, value: decision | {key: value}, DECISIONS, TEXTS, JSON),
    JSON.map(json.dumps),
    TEXTS,
)


def may_change(path: Path, root: Path) -> bool:
    """Whether a run may change a file without a grant: its workspace or `output/`, without protected names."""
    for zone in (root / ".reyn" / "workspace" / "k", root / "output"):
        if path.is_relative_to(zone):
            names = path.relative_to(zone).parts
            is_hidden = any(name.startswith(".") for name in names)
            return not is_hidden and (".reyn" in zone.parts or not any(map(PROTECTED.fullmatch, names)))
    return path.is_relative_to(root / ".reyn") and not path.is_relative_to(root / ".reyn" / "workspace")


def violations(root: Path, around: Path, answers: list[Any]) -> tuple[list[str], set[str]]:
    """Return the violations of a run with these answers, and the rules that rejected answers."""
    before, wrong = tree(around), []
    with audited_process() as attempts, SyncRuntime.open(root, model=ScriptedModel(map(as_text, answers))) as rt:
        result = rt.run("s", {"text": "in"}, run_id="k")
        for _ in range(10):
            if result.status == "waiting":
                rt.answer("k", result.question.id, "yes")
                result = rt.resume("k")
            elif result.status == "failed":
                break
        events = list(rt.runs.events("k"))
        rt.runs.verify("k")
        rt.runs.replay("k")
        resumable = result.status in ("finished", "aborted", "failed", "limited", "waiting")
    wrong += [f"left the process: {what}" for what in attempts]
    wrong += [] if resumable else [f"the run is {result.status}"]
    for path in sorted({name for name, what in (before.items() ^ tree(around).items()) if what is not None}):
        wrong += [] if may_change(Path(path).resolve(), root) else [f"changed outside its zones: {path}"]
    bodies = [decode(event) for event in events]
    phases = [body.phase for body in bodies if isinstance(body, kinds.PhaseStarted)]
    wrong += [f"went from {a} to {b}" for a, b in pairwise(phases) if b not in GRAPH[a]]
    wrong += [f"`{event.kind}` in phase build" for event in _ops_in(bodies, "build")]
    shown = b"".join(_shown(root, bodies))
    wrong += ["the canary was read"] if CANARY.encode() in shown else []
    wrong += ["the records were read"] if b"SQLite format 3" in shown else []
    return wrong, {body.class_ for body in bodies if isinstance(body, kinds.ValidationError)}


def as_text(answer: Any) -> Any:
    return answer if isinstance(answer, str) else json.dumps(answer)


def _ops_in(bodies: list, phase: str) -> Iterator[Any]:
    current = ""
    for body in bodies:
        if isinstance(body, kinds.PhaseStarted):
            current = body.phase
        if current == phase and isinstance(body, kinds.OpStarted):
            yield body


def _shown(root: Path, bodies: list) -> Iterator[bytes]:
    from reyn.journal.sqlite import SqliteJournal

    journal = SqliteJournal(root / ".reyn")
    try:
        for body in bodies:
            if isinstance(body, kinds.OpCompleted):
                yield journal.blob(body.result)
    finally:
        journal.close()


NOT_WRITABLE = (
    "output/Makefile", "output/tool.py", "output/.private/key.txt", "output/.new", "output/new/hooks/x",
    "workspace:.new", "reyn/project/s/skill.md", "reyn/new.txt", "notes.txt",
)  # fmt: skip


@examples(60)
@given(st.lists(ANSWERS, min_size=1, max_size=6))
@example([act(file("write", "output/out/new.txt", content="x")), act(file("read", "output/leak.txt")), go("build")])
@example([with_ops(go("build"), file("delete", "output/up/notes.txt")), finish()])
@example([act({"kind": "file", "op": "grep", "pattern": "CANARY", "path": "."}), go("build"), finish()])
@example([act(file("read", ".env")), act(file("read", "output/.private/key.txt")), go("build"), finish()])
@example([act(*(file("write", path, content="x") for path in NOT_WRITABLE)), go("build"), finish()])
@example([act(*(file("delete", path) for path in NOT_WRITABLE)), go("build"), finish()])
@example([act({"kind": "file", "op": "grep", "pattern": "CANARY", "path": "output/.private"}), finish()])
@example([act({"kind": "file", "op": "glob", "pattern": "../**/*"}), go("abort"), go("build"), finish()])
def test_no_answer_has_an_effect_outside_of_what_is_allowed(answers: list[Any]):
    around = Path(tempfile.mkdtemp()).resolve()
    try:
        wrong, _ = violations(make_world(around), around, answers)
        assert wrong == []
    finally:
        shutil.rmtree(around)


HOSTILE = {
    "empty": "",
    "size": json.dumps(go("build", "x" * 5_000_000)),
    "depth": "[" * 100_000,
    "not_json": "I will not.",
    "duplicate_key": json.dumps(go("build"))[:-1] + ', "control_ir": []}',
    "not_object": "[1, 2]",
    "shape": '{"control": {"type": "transition"}}',
    "consistency": json.dumps(go("build", decision="finish")),
    "candidate": json.dumps(go("abort")),
    "artifact_type": json.dumps(go("build", type="secret")),
    "schema": json.dumps(go("build") | {"artifact": {"type": "note", "data": {"text": 7}}}),
    "ops": json.dumps(act({"kind": "shell", "cmd": "id"})),
}


@pytest.mark.parametrize("rule", [rule for rule in REJECTION_CLASSES if rule != "value"])  # only Python code gives it
def test_every_class_of_rule_rejects_before_any_effect(tmp_path: Path, rule: str):
    root = make_world(tmp_path)
    wrong, classes = violations(root, tmp_path, [HOSTILE[rule]] * 3)
    assert (wrong, classes) == ([], {rule})
    with SyncRuntime.open(root, model=ScriptedModel([HOSTILE[rule]] * 3 + [go("build"), finish()])) as rt:
        assert rt.resume("k", retry=True).ok


def test_the_oracle_detects_an_effect_outside_of_what_is_allowed(tmp_path: Path):
    """A file changed outside of the zones, a started process and a canary in a frame are each detected."""
    root = make_world(tmp_path)

    class Meddling(ScriptedModel):
        async def complete(self, request):
            (tmp_path / "outside" / "secret.txt").write_text("changed")
            shutil.copy(tmp_path / "outside/secret.txt", root / "output" / "copied.txt")
            return await super().complete(request)

    before = tree(tmp_path)
    with audited_process() as attempts, SyncRuntime.open(root, model=Meddling([go("build"), finish()])) as rt:
        rt.run("s", {"text": "in"})
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    assert any("posix_spawn" in what for what in attempts)
    assert str(tmp_path / "outside/secret.txt") in {name for name, _ in before.items() ^ tree(tmp_path).items()}


@pytest.mark.parametrize(
    "path",
    [*NOT_WRITABLE, "reyn.yaml", "../outside/secret.txt", "output/new/TOOL.PY", ".reyn/workspace/other/a.txt"],
)
def test_the_oracle_counts_a_change_of_a_protected_file(tmp_path: Path, path: str):
    name = path.replace("workspace:", ".reyn/workspace/k/")
    assert not may_change((tmp_path / "project" / name).resolve(), tmp_path / "project")


@pytest.mark.parametrize("path", ["output/new/deep.txt", "workspace:a.py", "workspace:deep/a.txt"])
def test_the_default_zones_are_writable(tmp_path: Path, path: str):
    """Otherwise the oracle would have nothing to allow."""
    root = make_world(tmp_path)
    answers = [act(file("write", path, content="x")), go("build"), finish()]
    assert violations(root, tmp_path, answers) == ([], set())
    written = root / path.replace("workspace:", ".reyn/workspace/k/")
    assert written.read_text() == "x"
    assert may_change(written, root)


@pytest.mark.parametrize("path", NOT_WRITABLE)
def test_protected_files_are_not_writable_without_a_grant(tmp_path: Path, path: str):
    root = make_world(tmp_path)
    before = tree(root / "output")
    answers = [act(file("write", path, content="x")), go("build"), finish()]
    assert violations(root, tmp_path, answers) == ([], set())
    assert tree(root / "output") == before
