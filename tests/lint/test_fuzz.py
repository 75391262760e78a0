"""Lint answers any file content with findings: no exception, bounded time, bounded memory."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reyn.lint import lint_skill
from reyn.skills import Library
from tests.properties import examples
from tests.support import write_skill

PYTHON = (
    "preprocessor:\n  - python: {module: ./m.py, function: f, into: data.x}\n  - validate: {schema: {type: object}}\n"
)
FILES = ["skill.md", "phases/a.md", "phases/b.md", "artifacts/note.yaml", "m.py"]
NASTY = [
    b"&a [*a]",
    b"*x",
    b"!!python/object/apply:os.system [id]",
    b"- - - - -",
    b"{" * 200,
    b"[" * 5000,
    b"? ",
    b": : :",
    b"\t",
    b"\xff\xfe",
    b"\x00",
    b"---\n",
    b"...\n",
    b"%YAML 9.9\n",
    b"<<: {a: b}",
    b"type: step",
    b"type: [1]",
    b"schema: 3",
    b"name: null",
    b"graph: {a: {b: c}}",
    b"graph: {end: [end]}",
    b"input: ''",
    b"input: '|'",
    b"allowed_ops: {a: b}",
    b"preprocessor: [{iterate: {over: data, apply: {iterate: {over: x, apply: {}}}}}]",
    b"preprocessor: [{type: iterate, over: data, apply: {type: x}}]",
    b"preprocessor: [{run_skill: {skill: s}}]",
    b"preprocessor: [{python: null}]",
    b"postprocessor: {output_schema: {}, steps: [{}]}",
    b"postprocessor: [1]",
    b"permissions: {python: [3, {module: 4}], shell: null}",
    b"permissions: []",
    b"entry: '@s'",
    b"$ref: '#'",
    b"$ref: file:///etc/passwd",
    b"$ref: http://127.0.0.1:9/x",
    b"$schema: 7",
    b"properties: 3",
    b"pattern: '(a+)+$'",
    b"1e999",
    b".inf",
    b"9" * 5000,
    "é\u2028\ud7ff".encode(),
]


@pytest.fixture(scope="module")
def seed():
    root = Path(tempfile.mkdtemp())
    folder = write_skill(root, "s", {"a": ["b"], "b": ["a", "end"]}, phase_keys={"a": PYTHON})
    (folder / "m.py").write_text("def f(artifact):\n    return 1\n")
    yield {name: (folder / name).read_bytes() for name in FILES}
    shutil.rmtree(root)


def lint(files: dict[str, bytes]) -> list:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "reyn" / "project" / "s"
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return lint_skill(folder, Library(Path(scratch)))


@st.composite
def changes(draw) -> list:
    kinds = st.sampled_from(["insert", "replace_line", "drop_line", "cut", "bytes", "append"])
    one = st.tuples(st.sampled_from(FILES), kinds, st.integers(0, 400), st.sampled_from(NASTY), st.binary(max_size=12))
    return draw(st.lists(one, min_size=1, max_size=4))


def apply(content: bytes, kind: str, at: int, nasty: bytes, raw: bytes) -> bytes:
    lines = content.split(b"\n")
    line = at % len(lines)
    match kind:
        case "insert":
            return b"\n".join([*lines[:line], nasty, *lines[line:]])
        case "replace_line":
            return b"\n".join([*lines[:line], nasty, *lines[line + 1 :]])
        case "drop_line":
            return b"\n".join([*lines[:line], *lines[line + 1 :]])
        case "cut":
            return content[: at % (len(content) + 1)]
        case "bytes":
            place = at % (len(content) + 1)
            return content[:place] + raw + content[place:]
    return content + nasty


@examples(300)
@given(changes())
@example([("phases/a.md", "replace_line", 6, b"  - python: {module: ., function: f}", b"")])
@example([("skill.md", "replace_line", 5, b"graph: {a: [a], ? [x] : y}", b"")])
def test_mutated_files_give_findings(seed: dict[str, bytes], mutations: list):
    files = dict(seed)
    for file, *change in mutations:
        files[file] = apply(files[file], *change)
    for finding in lint(files):
        assert finding.line >= 1
        assert finding.column >= 1
        str(finding)


@examples(150)
@given(st.sampled_from(FILES), st.binary(max_size=300))
def test_arbitrary_bytes_give_findings(seed: dict[str, bytes], file: str, content: bytes):
    lint({**seed, file: content})
    lint({**seed, file: b"---\n" + content + b"\n---\nbody\n"})


LARGE = {
    "ten megabytes": b"x: " + b"y" * 10_000_000,
    "ten megabytes of lines": b"- a\n" * 2_500_000,
    "deep flow": b"x: " + b"[" * 100_000,
    "deep block": b"".join(b" " * n + b"a:\n" for n in range(2_000)),
    "an alias bomb": b"a: &a ["
    + b"x," * 50
    + b"]\n"
    + b"".join(b"%c: &%c [%s]\n" % (n, n, b",".join([b"*%c" % (n - 1)] * 50)) for n in b"bcdefgh"),
    "many keys": b"".join(b"k%d: 1\n" % n for n in range(40_000)),
    "a long line": b"a: '" + b"z" * 900_000 + b"'",
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("file", ["skill.md", "phases/a.md", "artifacts/note.yaml"])
def test_large_files_are_cheap(seed: dict[str, bytes], tmp_path: Path, name: str, file: str):
    content = LARGE[name] if file.endswith(".yaml") else b"---\n" + LARGE[name] + b"\n---\nbody\n"
    folder = tmp_path / "s"
    for other, text in {**seed, file: content}.items():
        path = folder / other
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    code = (
        "import sys, time; from pathlib import Path; from reyn.lint import lint_skill; "
        "start = time.process_time(); found = lint_skill(Path(sys.argv[1])); "
        "spent = time.process_time() - start; lines = open('/proc/self/status').read().splitlines(); "
        "peak = next(line for line in lines if line.startswith('VmHWM')); "
        "print(len(found), spent, int(peak.split()[1]) / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    count, seconds, megabytes = (float(word) for word in done.stdout.split())
    assert count >= 1
    assert seconds <= 2
    assert megabytes <= 200


def test_symlink_loops_and_links_outside_are_findings(seed: dict[str, bytes], tmp_path: Path):
    folder = tmp_path / "s"
    for other, text in seed.items():
        path = folder / other
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    (tmp_path / "outside.py").write_text("def f(artifact): return 1\n")
    (folder / "m.py").unlink()
    (folder / "m.py").symlink_to(tmp_path / "outside.py")
    assert "RYN125" in {finding.code for finding in lint_skill(folder)}
    (folder / "phases" / "b.md").unlink()
    (folder / "phases" / "b.md").symlink_to("b.md")
    assert "RYN116" in {finding.code for finding in lint_skill(folder)}
    os.mkfifo(folder / "artifacts" / "pipe.yaml")
    (folder / "artifacts" / "folder.yaml").mkdir()
    lint_skill(folder)


def test_a_schema_may_refer_to_itself_but_not_to_other_files(tmp_path: Path):
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    assert lint_skill(write_skill(tmp_path, "s", {"a": ["end"]}, artifacts={"note": tree})) == []
    for target in ("other.yaml", "file:///etc/hosts", "http://127.0.0.1:9/x", "#/nowhere"):
        folder = write_skill(tmp_path, "s", {"a": ["end"]}, artifacts={"note": {"$ref": target}})
        assert [finding.code for finding in lint_skill(folder)] == ["RYN121"]


SLOW = {
    "a long word": ("phases/a.md", b"---\ntype: phase\nname: a\ninput: note\n---\n" + b"a" * 900_000),
    "many steps": (
        "phases/a.md",
        b"---\ntype: phase\nname: a\ninput: note\npreprocessor:\n"
        + b"  - {type: validate, schema: true}\n" * 5_000
        + b"---\nx\n",
    ),
    "many bindings": (
        "phases/a.md",
        b"---\ntype: phase\nname: a\ninput: note\npreprocessor:\n"
        + b"".join(b"  - validate: {schema: true, into: data.k%d}\n" % n for n in range(2_000))
        + b"---\nx\n",
    ),
}


@pytest.mark.parametrize("name", SLOW)
def test_expensive_inputs_are_bounded(seed: dict[str, bytes], name: str):
    file, content = SLOW[name]
    gc.freeze()  # collections must not search what earlier tests of this process left
    started = time.thread_time()
    lint({**seed, file: content})
    taken = time.thread_time() - started
    gc.unfreeze()
    assert taken < 2


def test_a_named_pipe_does_not_block(seed: dict[str, bytes], tmp_path: Path):
    folder = tmp_path / "s"
    for other, text in seed.items():
        path = folder / other
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    (folder / "m.py").unlink()
    os.mkfifo(folder / "m.py")
    assert "RYN125" in {finding.code for finding in lint_skill(folder)}


VALUES = [
    None,
    True,
    -1,
    3.5,
    "",
    "x",
    "data",
    [],
    {},
    [1],
    {"a": 1},
    [{}],
    [{"python": 3}],
    {"type": "iterate"},
    "@s",
    "\0/",
]


@examples(250)
@given(st.data())
def test_any_value_of_any_key_is_handled_by_lint_and_fix(seed: dict[str, bytes], data):
    import json

    import yaml

    from reyn.errors import FixImpossible
    from reyn.lint import fix_skill

    front = data.draw(st.sampled_from(["skill.md", "phases/a.md"]))
    head = yaml.safe_load(seed[front].decode().split("---\n")[1])
    for _ in range(data.draw(st.integers(1, 3))):
        keys = [*head, "postprocessor", "permissions", "context", "preprocessor"]
        head[data.draw(st.sampled_from(keys))] = data.draw(st.sampled_from(VALUES))
    older = {"artifacts/note.yaml": b"name: note\nschema: {type: object}\n"} if data.draw(st.booleans()) else {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "reyn" / "project" / "s"
        for name, content in {**seed, **older, front: f"---\n{json.dumps(head)}\n---\nx\n".encode()}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        library = Library(Path(scratch))
        lint_skill(folder, library)
        with suppress(FixImpossible):
            fix_skill(folder, library)
