"""Skills with rules: a claim is assessed by a model, decided by rules, and paid, reviewed or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support import NOTE

CLAIM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "minimum": 0},
        "kind": {"enum": ["food", "travel"]},
        "note": {"type": "string"},
        "limit": {"type": "number"},
    },
    "required": ["amount", "kind"],
    "additionalProperties": False,
}
DECIDE = """\
    - {when: "data.amount < 50.0", to: pay}
    - {when: "data.kind == 'travel' && visits.review < 2", to: review}
    - {else: end, artifact: {type: note, data: {text: "${data.kind}: ${data.amount} after ${visits.review} reviews"}}}
"""


def write_rules(
    root: Path,
    rules: str = DECIDE,
    *,
    name: str = "claims",
    graph: str = "  review: [decide]\n  pay: [end]\n",
    entry: str = "decide",
    node_file: str | None = "type: phase\nname: decide\ninput: claim\n",
    skill_keys: str = "",
    artifacts: dict[str, Any] | None = None,
    phases: dict[str, str] | None = None,
    files: dict[str, str] | None = None,
) -> Path:
    """Write a skill whose node `decide` has rules; without `node_file`, the node has no file."""
    folder = root / "reyn" / "project" / name
    (folder / "phases").mkdir(parents=True, exist_ok=True)
    (folder / "artifacts").mkdir(exist_ok=True)
    decide = f"  decide:\n{rules}" if rules else ""
    front = f"type: skill\nname: {name}\nentry: {entry}\nfinal_output: note\n{skill_keys}graph:\n{decide}{graph}"
    (folder / "skill.md").write_text(f"---\n{front}---\nFor people.\n")
    if node_file is not None:
        (folder / "phases" / "decide.md").write_text(f"---\n{node_file}---\n")
    for phase, text in ({"review": "input: claim\n", "pay": "input: claim\n"} | (phases or {})).items():
        head = f"---\ntype: phase\nname: {phase}\nallowed_ops: []\n{text}---\nDo what {phase} does.\n"
        (folder / "phases" / f"{phase}.md").write_text(head)
    for artifact, schema in ({"note": NOTE, "claim": CLAIM} | (artifacts or {})).items():
        (folder / "artifacts" / f"{artifact}.yaml").write_text(json.dumps(schema))
    for file, text in (files or {}).items():
        (folder / file).write_text(text)
    return folder


def claim(next_phase: str = "decide", **data: Any) -> dict[str, Any]:
    """A transition with a claim."""
    return {
        "control": {
            "type": "transition",
            "decision": "continue",
            "next_phase": next_phase,
            "confidence": 0.9,
            "reason": {"summary": "because"},
        },
        "artifact": {"type": "claim", "data": data},
        "control_ir": [],
    }
