"""Write the golden journals of the current rules version: `python -m tests.goldens`.

Until the first release, existing journals are overwritten; after it, different bytes need a new rules version.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from reyn import SyncRuntime
from reyn.kernel.versions import RULES
from reyn.testing import CountingIds, ScriptedModel, SteppingClock
from tests.support import NOTE, abort, act, file, finish, go, question, with_ops, write_skill

FOLDER = Path(__file__).parent / f"rules-{RULES}"
RUN_INNER = {"kind": "run_skill", "skill": "inner", "input": {"text": "for inner"}}
OPEN = {"type": "object", "additionalProperties": True}
GLOB = {"kind": "file", "op": "glob", "pattern": "*.txt"}


def write_skills(root: Path) -> None:
    """Write skills that together have a branch, a loop, reads, every op and step kind, a rollback, sub-skills and
    handoffs."""
    write_skill(
        root, "loop", {"write": ["check"], "check": ["write", "end"]}, skill_keys="finish_criteria: [it is good]\n"
    )
    write_skill(
        root,
        "drafts",
        {"write": ["check"], "check": {"write": "it is not good yet", "end": "it is good"}},
        inputs={"write": "note | remark", "check": "draft"},
        artifacts={"remark": NOTE | {"description": "What to change."}, "draft": NOTE},
        phase_keys={"write": "reads: [note, draft]\n", "check": "reads: [note]\n"},
        ops={"write": "file"},
    )
    write_skill(root, "typed", {"x": ["end"]}, artifacts={"note": TYPED})
    write_skill(root, "inner", {"x": ["end"]}, ops={"x": "file, ask_user"}, artifacts={"note": OPEN})
    write_skill(
        root,
        "rich",
        {"plan": ["build"], "build": ["@inner", "end"], "@inner": ["check"], "check": ["plan", "end"]},
        ops={"plan": "file, ask_user, run_skill", "build": "file"},
        phase_keys={
            "plan": "role: planner\npreprocessor:\n"
            "  - run_op: {op: {kind: file, op: glob, pattern: '*.txt'}, into: data.found}\n"
            "  - validate: {schema: {type: object, required: [title]}, into: data.findings}\n"
            "  - run_op: {op: {kind: file, op: read, path: nowhere}, into: data.none, on_error: empty}\n"
        },
        artifacts={"note": OPEN, "card": {"type": "object"}},
        skill_keys="on_phase_failure: rollback\npostprocessor:\n  output_schema: card\n"
        "  steps:\n    - run_skill: {skill: inner, input: {text: data.text}, into: data.inner}\n",
    )
    write_skill(
        root,
        "guarded",
        {"a": ["end"]},
        ops={"a": "file"},
        phase_keys={
            "a": "requires_approval: true\npreprocessor:\n"
            "  - ask_user: {question: Which tone?, suggestions: [formal, plain], into: data.tone}\n"
        },
        artifacts={"note": OPEN},
        skill_keys="permissions: {file.write: [tickets/]}\npostprocessor:\n  output_schema: note\n"
        "  steps:\n    - ask_user: {question: Send it?, show: data, schema: {type: boolean}, into: data.sent}\n",
    )
    write_skill(root, "asked", {"a": ["end"]}, ops={"a": "file"})
    write_skill(
        root,
        "handing",
        {"look": ["@inner"], "@inner": ["build"], "build": ["check"], "check": ["end"]},
        ops={"build": "file"},
        phase_keys={"look": "context: {ask_handoff: true}\n", "check": "context: {max_tokens: 60}\n"},
        artifacts={"note": OPEN},
        skill_keys="context: all\non_phase_failure: rollback\n",
    )


TYPED = {
    "type": "object",
    "$defs": {"row": {"allOf": [{"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 5}}}]}},
    "properties": {
        "text": {"type": "string"},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}, "minItems": 2},
        "loss": {"type": "number", "maximum": -0.5},
    },
    "required": ["text"],
}

RUNS: dict[str, tuple[str, list, dict]] = {
    "typed": ("typed", [f"<think>\nperhaps {{}}\n</think>\n{json.dumps(finish('thought'))}"], {}),
    "plain": ("loop", [go("check"), "no JSON", go("nowhere"), go("write", "again"), go("check"), finish()], {}),
    "fenced": ("loop", ["```json\n" + '{"control": 1}\n```', go("check"), abort()], {}),
    "limited": (
        "loop",
        [go("check"), go("write"), go("write"), go("check"), finish()],
        {"max_phase_visits": 1, "max_phase_retries": 0},
    ),
    "repeated": (
        "drafts",
        [
            *[act(file("read", "nowhere"))] * 3,
            *[go("check", "draft", "draft"), go("write", "again", "remark")] * 3,
            go("check", "better", "draft"),
            finish(),
        ],
        {"max_phase_visits": 4},
    ),
    "rich": (
        "rich",
        [
            act(file("read", "long.txt"), file("write", "workspace:a.txt", content="one"), GLOB),
            act(question("Go on?", suggestions=["yes", "no"])),
            act(RUN_INNER),
            act(file("write", "output/x.txt", content="inner wrote")),
            finish("inner"),
            go("build", "first"),
            act(file("edit", "workspace:a.txt", old_string="one", new_string="two"), file("delete", "output/x.txt")),
            "no",
            "no",
            go("build", "second"),
            with_ops(go("@inner"), file("write", "../out", content="x")),
            with_ops(go("@inner"), file("write", "workspace:b.txt", content="b")),
            finish("node"),
            finish("end"),
            finish("after"),
        ],
        {"max_phase_retries": 1},
    ),
}

HANDOFF = {"open_risks": ["slow disks"], "verdicts": {"plan": "PASS"}, "narrative": "All files were read. " * 20}
RUNS["handing"] = (
    "handing",
    [
        go("@inner") | {"handoff": HANDOFF},
        finish("inner"),
        with_ops(go("check", "first"), file("write", "output/code.txt", content="x")),
        "no",
        "no",
        go("check", "second"),
        finish("end"),
    ],
    {"max_phase_retries": 1},
)
ASK = {"permissions": {"file.write": [{"ask": "tickets/"}, {"ask": "output/"}]}}
RUNS |= {
    "approved": (
        "guarded",
        [
            act(file("write", "tickets/1.md", content="one\n"), file("write", "output/y.txt", content="y\n")),
            finish("first draft"),
            with_ops(finish("second draft"), file("write", "workspace:b.txt", content="b")),
        ],
        ASK,
    ),
    "expired": (
        "asked",
        [act(file("write", "output/z.txt", content="z\n")), finish()],
        ASK | {"limits": {"approval_seconds": 1}},
    ),
}
SAID: tuple[object, ...] = (
    "plain",
    "defer",
    {"decision": "edit", "args": file("write", "tickets/1.md", content="two\n")},
    {"decision": "approve", "always": True},
    {"decision": "reject", "remark": "not there"},
    {"decision": "reject", "remark": "say more"},
    {"decision": "edit", "artifact": {"type": "note", "data": {"text": "third draft"}}},
    True,
)
"""What people answer to the questions of `approved`, in order."""


def play(root: Path, name: str) -> list[bytes]:
    """Execute one run as an operator would, and export it."""
    skill, answers, settings = RUNS[name]
    model, clock, said = ScriptedModel(answers), SteppingClock(), iter(SAID if name == "approved" else ())
    with SyncRuntime.open(root, model=model, ids=CountingIds(name), clock=clock, **settings) as rt:
        result = rt.run(skill, {"type": "note", "data": {"text": "in"}}, run_id=name)
        while result.status in ("waiting", "limited"):
            if name == "expired":
                clock.advance(10)
                result = rt.resume(name)
            elif result.status == "waiting":
                assert result.question is not None
                rt.answer(name, result.question.id, next(said, "yes"), by="ada")
                result = rt.resume(name)
            else:
                limit = "no_progress" if result.reason.startswith("no progress") else "max_phase_visits"
                result = rt.resume(name, raise_limits={limit: 9})
        assert result.status in ("finished", "aborted"), result
        return list(rt.runs.export(name))


def make_all(root: Path, names: Iterable[str] = tuple(RUNS)) -> dict[str, list[bytes]]:
    write_skills(root)
    (root / "long.txt").write_text("".join(f"line {number}\n" for number in range(2000)))
    return {name: play(root, name) for name in names}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        made = make_all(Path(folder))
    FOLDER.mkdir(exist_ok=True)
    for name, lines in made.items():
        (FOLDER / f"{name}.jsonl").write_bytes(b"".join(lines))
        print(f"{FOLDER.name}/{name}.jsonl: {len(lines)} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
