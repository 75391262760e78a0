"""Hostile skill folders: whatever is in them, no file outside them is read or written, and cost stays bounded."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

from reyn import SyncRuntime
from reyn.models.decoding import decoding_schema
from tests.fuzz.harness import Case
from tests.fuzz.oracles import (
    FORGED,
    STATUSES,
    World,
    check_command,
    check_disclosure,
    check_state_size,
    recorded,
)
from tests.fuzz.project import CANARIES, Overheard, command, make_surroundings
from tests.lint.test_fuzz import LARGE as HEAVY_FILES
from tests.lint.test_fuzz import NASTY, apply
from tests.support import finish, go, write_skill

LINKED = "CANARY-linked-9d20"
PHASE = f"---\ntype: phase\nname: a\ninput: note\nallowed_ops: []\n---\nDo it. {LINKED}\n"
SKILL = f"---\ntype: skill\nname: s\nentry: a\nfinal_output: note\ngraph: {{a: [b], b: [a, end]}}\n---\n{LINKED}\n"
NOTE = f"type: object\ndescription: {LINKED}\nproperties: {{text: {{type: string, description: {LINKED}}}}}\n"
MODULE = f"def f(artifact):\n    return '{LINKED}'\n"
OLDER = "name: note\nschema: {type: object, properties: {text: {type: string}}}\n"
TARGETS = {
    "skill.md": SKILL,
    "phases/a.md": PHASE,
    "artifacts/note.yaml": NOTE,
    "m.py": MODULE,
}
HOSTILE_NAMES = [
    f"x\n{FORGED}",
    f"x\u2028{FORGED}",
    "\x1b]52;c;aGk=\x07",
    "../../x",
    "end",
    "a b",
    "\x00",
    "é" * 200,
]
PYTHON = "preprocessor:\n  - python: {module: ./m.py, function: f, into: data.x}\n"


def target(case: Case) -> None:
    chance = case.random
    root = make_surroundings(case.folder)
    folder = write_skill(root, "s", {"a": ["b"], "b": ["a", "end"]})
    make = chance.choices([maker for maker, _ in MIXES], [weight for _, weight in MIXES])[0]
    case.label(make.__name__)
    make(chance, folder, case.folder / "outside")
    world = World(case.folder, root)
    printed: list[tuple[str, bytes]] = []

    def cli(*words: str) -> None:
        code, text = command(root, *words)
        printed.append((f"the output of `reyn {words[0]}`", text.encode("utf-8", "replace")))
        check_command(case, words[0], code, text)

    cli("skills")
    cli("lint", "s")
    cli("frame", "s")
    cli("graph", "s")
    _run(case, root, printed)
    cli("lint", "s", "--fix")
    _check_files(case, world, "fix")
    for name in ("k", "k2"):
        cli("show", name)
    _export(case, root, world, printed)
    check_state_size(case, root / ".reyn")
    check_disclosure(case, {"discloses-linked-file": LINKED} | CANARIES, [*printed, *recorded(root / ".reyn")])


def _run(case: Case, root: Path, printed: list[tuple[str, bytes]]) -> None:
    model = Constrained(case, [json.dumps(answer) for answer in (go("b"), finish(), finish(), finish())])
    with SyncRuntime.open(root, model=model) as rt:
        with case.guarded("load"):
            rt.project.load("s")
        with case.guarded("first frame"):
            printed.append(
                ("the first frame", repr(rt.project.first_frame("s", {"text": "in"})).encode("utf-8", "replace"))
            )
        for name in ("k", "k2"):
            with case.guarded("run"):
                result = rt.run("s", {"text": "in"}, run_id=name)
                if result.status not in STATUSES:
                    case.found("status", result.status)
                with case.holds("verify"):
                    rt.runs.verify(name)
                with case.holds("replay"):
                    rt.runs.replay(name)
            with case.guarded("frame at"):
                printed.append(("a frame", repr(rt.runs.prompt_at(name)).encode("utf-8", "replace")))


class Constrained(Overheard):
    """Turns the contract into a schema for decoding, as the adapters of real models do."""

    async def complete(self, request: Any) -> Any:
        with self._case.guarded("decoding schema"):
            decoding_schema(request.contract, is_one_object=self.calls % 2 == 0)
        return await super().complete(request)


def _export(case: Case, root: Path, world: World, printed: list[tuple[str, bytes]]) -> None:
    """Export beside a link that has the temporary file's likely name."""
    folder = root / "output"
    folder.mkdir(exist_ok=True)
    canary = case.folder / "outside" / "exported.txt"
    canary.write_text("untouched")
    for name in (f".run.jsonl.{os.getpid()}", ".run.jsonl.new", ".run.jsonl.tmp"):
        (folder / name).symlink_to(canary)
    command(root, "export", "k", "--output", str(folder / "run.jsonl"))
    command(root, "export", "k", str(folder / "run.jsonl"))
    if canary.read_text() != "untouched":
        case.found("export-writes-through-link", canary.read_bytes()[:80])
    if (folder / "run.jsonl").is_file():
        printed.append(("an export", (folder / "run.jsonl").read_bytes()))
    canary.unlink()


def _check_files(case: Case, world: World, doing: str) -> None:
    """A skill may be rewritten in its own folder."""
    for what, path in world.changes():
        if not path.startswith("project/reyn/project/s/"):
            case.found(f"{doing}-{what}", path)


# -- hostile folders ----------------------------------------------------------------------------------


def nasty_bytes(chance: random.Random, folder: Path, outside: Path) -> None:
    """Bytes that YAML, Markdown or JSON Schema do not expect."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for _ in range(chance.randint(1, 4)):
        path = chance.choice(files)
        kind = chance.choice(["insert", "replace_line", "drop_line", "cut", "bytes", "append"])
        raw = chance.randbytes(chance.randint(0, 12))
        path.write_bytes(apply(path.read_bytes(), kind, chance.randrange(400), chance.choice(NASTY), raw))


def heavy_files(chance: random.Random, folder: Path, outside: Path) -> None:
    """One very large file."""
    path = folder / chance.choice(["skill.md", "phases/a.md", "artifacts/note.yaml", "artifacts/other.yaml"])
    content = HEAVY_FILES[chance.choice(sorted(HEAVY_FILES))]
    path.write_bytes(content if path.suffix == ".yaml" else b"---\n" + content + b"\n---\nbody\n")
    if chance.random() < 0.3:
        (folder / "phases" / "a.md").write_text(PHASE.replace(LINKED, "x" * chance.choice([900_000, 5_000_000])))


def linked_files(chance: random.Random, folder: Path, outside: Path) -> None:
    """Files and folders of the skill that are links to files outside it."""
    (folder / "m.py").write_text("def f(artifact):\n    return 1\n")
    if chance.random() < 0.3:
        phase = folder / "phases" / "a.md"
        phase.write_text(phase.read_text().replace("allowed_ops: []\n", f"allowed_ops: []\n{PYTHON}"))
    if chance.random() < 0.3:
        (folder / "artifacts" / "note.yaml").write_text(OLDER)
    for name in chance.sample(sorted(TARGETS), chance.randint(1, 2)):
        hidden = outside / name.replace("/", "-")
        hidden.write_text(TARGETS[name])
        path = folder / name
        path.unlink()
        path.symlink_to(hidden)  # a hard link would be a file of the folder like any other
    if chance.random() < 0.3:
        (outside / "artifacts").mkdir()
        (outside / "artifacts" / "note.yaml").write_text(NOTE)
        for path in (folder / "artifacts").iterdir():
            path.unlink()
        (folder / "artifacts").rmdir()
        (folder / "artifacts").symlink_to(outside / "artifacts")
    if chance.random() < 0.2:
        name = chance.choice(["extra.yaml", "passwd.yaml"])
        (folder / "artifacts" / name).symlink_to(chance.choice(["/etc/passwd", "/proc/self/environ", "/dev/zero", "."]))


def linked_shared(chance: random.Random, folder: Path, outside: Path) -> None:
    """Shared phases and artifacts, or the whole skill, behind links."""
    reyn = folder.parent.parent
    (outside / "shared" / "artifacts").mkdir(parents=True)
    (outside / "shared" / "artifacts" / "note.yaml").write_text(NOTE)
    (outside / "shared" / "phases").mkdir()
    (outside / "shared" / "phases" / "a.md").write_text(PHASE)
    if chance.random() < 0.5:
        (folder / "artifacts" / "note.yaml").unlink()
        (folder / "phases" / "a.md").unlink()
        (reyn / "shared").symlink_to(outside / "shared")
    else:
        folder.rename(outside / "s")
        (outside / "s" / "artifacts" / "note.yaml").write_text(NOTE)
        folder.symlink_to(outside / "s")


def planted_temporaries(chance: random.Random, folder: Path, outside: Path) -> None:
    """Links under the names that `lint --fix` might write first; the skill has the older form."""
    (folder / "artifacts" / "note.yaml").write_text(OLDER)
    victim = outside / "victim.txt"
    victim.write_text("untouched")
    for name in ("skill.md", "phases/a.md", "phases/b.md", "artifacts/note.yaml"):
        path = folder / name
        for spelled in (f".{path.name}.new", f"{path.name}.new", f"{path.name}.tmp", f".{path.name}.{os.getpid()}"):
            path.with_name(spelled).symlink_to(victim)


def references(chance: random.Random, folder: Path, outside: Path) -> None:
    """Schemas that double with every reference, refer to themselves, or to something elsewhere."""
    depth = chance.choice([5, 12, 26, 26, 40])
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    combine = chance.choice(["properties", "allOf", "allOf", "anyOf", "items"])
    for n in range(1, depth + 1):
        above = {"$ref": f"#/$defs/d{n - 1}"}
        match combine:
            case "properties":
                definitions[f"d{n}"] = {
                    "type": "object",
                    "properties": {"a": above, "b": above},
                    "required": ["a", "b"],
                }
            case "items":
                definitions[f"d{n}"] = {"type": "array", "prefixItems": [above, above]}
            case _:
                definitions[f"d{n}"] = {combine: [above, above]}
    if chance.random() < 0.2:
        definitions["d0"] = {"$ref": chance.choice(["#/$defs/d1", "#", f"file://{outside}/secret.txt", "other.yaml"])}
    schema = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "deep": {"$ref": f"#/$defs/d{depth}"}},
        "$defs": definitions,
        "required": chance.choice([[], ["text"]]),
    }
    (folder / "artifacts" / "note.yaml").write_text(json.dumps(schema))


def schemas(chance: random.Random, folder: Path, outside: Path) -> None:
    """Schemas with expensive patterns, large numbers and many alternatives."""
    text: dict[str, Any] = chance.choice(
        [
            {"type": "string", "pattern": "(a+)+$"},
            {"type": "string", "pattern": "(?=.*a)(?=.*b)" * 30},
            {"type": "string", "pattern": "a{1,60000}"},
            {"type": "string", "minLength": 2**80, "maxLength": -1},
            {"enum": [f"v{n}" for n in range(50_000)]},
            {"oneOf": [{"const": n} for n in range(5_000)]},
            {"type": "array", "items": {}, "minItems": 10**9},
            {"not": {"not": {"not": {}}}},
            {"type": "string", "multipleOf": 1e-300},
            {"$dynamicRef": "#x", "$recursiveRef": "#"},
            {"type": "string", "format": "regex", "default": FORGED, "description": f"x\n{FORGED}\n"},
        ]
    )
    deep: Any = text
    for _ in range(chance.choice([0, 0, 50, 150, 400])):
        deep = {"type": "object", "properties": {"n": deep}, "required": ["n"]}
    schema = {"type": "object", "properties": {"text": {"type": "string"}, "x": deep}}
    (folder / "artifacts" / "note.yaml").write_text(json.dumps(schema))


def names(chance: random.Random, folder: Path, outside: Path) -> None:
    """Names of phases, artifacts and roles that look like sections of the prompt, or steer a terminal."""
    hostile = chance.choice(
        [f"x\n{FORGED}", f"x\u2028{FORGED}", "\x1b]52;c;aGk=\x07", "../../x", "end", "a b", "\x00", "é" * 200]
    )
    path = folder / chance.choice(["phases/a.md", "skill.md"])
    key = chance.choice(["role", "name", "input", "entry", "final_output", "description", "finish_criteria", "graph"])
    value = {"graph": {hostile: ["end"]}, "finish_criteria": [hostile]}.get(key, hostile)
    head, _, rest = path.read_text().removeprefix("---\n").partition("---\n")
    lines = [line for line in head.splitlines() if not line.startswith(f"{key}:")]
    path.write_text("---\n" + "\n".join([*lines, f"{key}: {json.dumps(value)}"]) + f"\n---\n{rest}")
    if chance.random() < 0.4:
        name = hostile.replace("/", "_").replace("\x00", "_")[:80]
        (folder / "artifacts" / f"{name}.yaml").write_text(NOTE.replace(LINKED, "x"))


def odd_entries(chance: random.Random, folder: Path, outside: Path) -> None:
    """Pipes, folders, loops of links, many files."""
    path = folder / chance.choice(["skill.md", "phases/a.md", "artifacts/note.yaml", "artifacts/x.yaml", "m.py"])
    path.unlink(missing_ok=True)
    match chance.randrange(4):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            path.symlink_to(path.name)
        case 3:
            for n in range(chance.choice([200, 3000])):
                (folder / "artifacts" / f"n{n}.yaml").write_text("type: object\n")


MIXES = [
    (nasty_bytes, 5),
    (heavy_files, 1),
    (linked_files, 5),
    (linked_shared, 2),
    (planted_temporaries, 2),
    (references, 4),
    (schemas, 4),
    (names, 4),
    (odd_entries, 2),
]
