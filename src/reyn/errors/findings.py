"""Findings: what each code means, and how to fix it.

The loader, the configuration and lint report findings at a position; `reyn.errors.Finding` is one of them.
"""

from __future__ import annotations

from typing import NamedTuple


class FindingKind(NamedTuple):
    """The meaning of a finding code, and the fix."""

    meaning: str
    fix: str


FINDINGS: dict[str, FindingKind] = {
    "RYN103": FindingKind(
        "The skill uses a feature that this version cannot execute (error), or allows such an op (warning).",
        "Remove the feature, or the op from `allowed_ops`.",
    ),
    "RYN110": FindingKind(
        "The file cannot be read: it is missing, too large or not UTF-8 text.",
        "Create the file, make it smaller than 1 MB, or save it as UTF-8.",
    ),
    "RYN111": FindingKind(
        "Invalid YAML: a syntax error, a duplicate key, a tag, or too much nesting.",
        "Correct the line. Quote a text that contains `: ` or starts with a special character, such as `[` or `*`.",
    ),
    "RYN112": FindingKind(
        "Unknown key.", "Correct the spelling, or remove the key. The skill language reference lists all keys."
    ),
    "RYN113": FindingKind(
        "A required key, or the instructions of a phase, are missing.",
        "Add the key. The instructions of a phase are the text below its front matter.",
    ),
    "RYN114": FindingKind(
        "A value has the wrong type or is out of range.",
        "Write a value that the message names. A list of one item is `[item]`, a text that looks like a number `'7'`.",
    ),
    "RYN115": FindingKind(
        "A name is invalid, reserved, or differs from the name of its file or folder.",
        "Use letters, digits, `_` and `-`, starting with a letter. `name: draft` belongs in `phases/draft.md`.",
    ),
    "RYN116": FindingKind(
        "`graph` or `entry` names a phase that has no file.", "Create `phases/NAME.md`, or correct the name."
    ),
    "RYN117": FindingKind(
        "A key names an artifact that has no file.",
        "Create `artifacts/NAME.yaml` with a JSON Schema, or correct the name.",
    ),
    "RYN118": FindingKind(
        "A phase has a key that belongs in skill.md: `output`, `next` or `permissions`.",
        "Move `permissions` to skill.md and `next` to its `graph`. Remove `output`: the next phase defines it.",
    ),
    "RYN119": FindingKind(
        "A phase cannot reach `end`.", "Add a path to the end in the graph of skill.md: `polish: [end]`."
    ),
    "RYN120": FindingKind(
        "A phase cannot be reached from the entry.", "Add the phase to the graph of skill.md, or delete its file."
    ),
    "RYN121": FindingKind(
        "Invalid JSON Schema, or a reference to another file.",
        "Correct the schema. A `$ref` can only refer to its own file: `#/$defs/NAME`.",
    ),
    "RYN122": FindingKind(
        "Unknown op.", "Correct the spelling in `allowed_ops`, or install the package that provides the op."
    ),
    "RYN123": FindingKind(
        "A step is malformed, of an unknown kind, or not allowed there.",
        "Write a mapping with one key, the kind of the step: `- python: {module: count.py, function: words}`.",
    ),
    "RYN124": FindingKind(
        "A path of a step (`into`, `args_from`, `over`, `target`) does not exist in the schema.",
        "Correct the path, or add the field to the schema of the artifact.",
    ),
    "RYN125": FindingKind(
        "The module or function of a python step is missing, invalid, or outside the skill's folder.",
        "Create the file in the skill's folder, with a function of that name that takes the artifact.",
    ),
    "RYN126": FindingKind(
        "A python step has no matching entry under `permissions.python`.",
        "Add the entry to skill.md: `python: [{module: count.py, function: words}]` under `permissions`.",
    ),
    "RYN127": FindingKind(
        "An op needs a permission that skill.md does not request.",
        "Add the permission under `permissions` in skill.md: `file.write: [reports/]`.",
    ),
    "RYN128": FindingKind(
        "A requested permission is not used.", "Remove the request, or add an op that needs it to `allowed_ops`."
    ),
    "RYN129": FindingKind(
        "A permission for unsafe Python has no reason.",
        "Add `reason: …` to the entry under `permissions.python`. The operator reads it before granting it.",
    ),
    "RYN130": FindingKind(
        "Instructions describe ops, output fields or other phases, which Reyn adds to the prompt.",
        "Remove the sentence, so that the prompt does not contain the same rule twice.",
    ),
    "RYN131": FindingKind(
        "Instructions contain a literal that small models may copy.",
        "Describe the value in words, or move it to the input.",
    ),
    "RYN132": FindingKind(
        "Members of an input union have the same schema and description.",
        "Give each artifact a description of its own, or use one type.",
    ),
    "RYN133": FindingKind(
        "A sub-skill's result does not match its successor's input, or it has several successors.",
        "Use the sub-skill's `final_output` as the input of the one phase that follows it.",
    ),
    "RYN134": FindingKind(
        "Skills run each other in a cycle, or are nested too deep.", "Remove one of the references between the skills."
    ),
    "RYN135": FindingKind(
        "The skill is written in the older form, which can be rewritten automatically.",
        "Rewrite the skill, automatically or by hand. The older form still runs.",
    ),
    "RYN136": FindingKind(
        "Two file names differ only in case or Unicode normalization.",
        "Rename one of the files. Some file systems cannot store both.",
    ),
    "RYN137": FindingKind(
        "Unknown permission.",
        "Correct the spelling: `file.read`, `file.write`, `web`, `exec`, `shell`, `python`, `mcp`, `memory` or `tool`.",
    ),
    "RYN138": FindingKind(
        "A symbolic link points outside the folder of the skill or the shared folder; Reyn does not follow it.",
        "Replace the link by a copy of the file.",
    ),
    "RYN139": FindingKind(
        "The references of a JSON Schema expand to too many schemas.",
        "Use fewer nested `$ref`s, or write the repeated part as an array or a string.",
    ),
    "RYN143": FindingKind(
        "A phase is named `end` or `abort`, which are choices of every phase.", "Rename the phase and its file."
    ),
    "RYN144": FindingKind(
        "A phase has several candidates, and the graph does not say when to choose one of them.",
        "Write a text for each candidate: `review: {draft: it needs more work, end: it is ready}`.",
    ),
    "RYN145": FindingKind(
        "Two candidates of a phase have the same text, so the model cannot distinguish them.",
        "Give each candidate a text of its own in the graph.",
    ),
    "RYN146": FindingKind(
        "No path to a phase produces an artifact that it reads.",
        "Remove the artifact from `reads`, or let an earlier phase produce it.",
    ),
    "RYN151": FindingKind(
        "`context` selects a handoff field that does not exist.",
        "Use `goal`, `epic_id`, `verdicts`, `artifacts_produced`, `decisions_made`, `open_risks` or `narrative`.",
    ),
    "RYN152": FindingKind(
        "`context` selects a handoff field that no earlier phase can produce.",
        "Remove the field, add it to an artifact, or set `ask_handoff: true` in an earlier phase.",
    ),
    "RYN153": FindingKind(
        "`context` selects `narrative`, but `narrative_cap` is 0, which omits narratives.",
        "Raise `narrative_cap`, or remove `narrative`.",
    ),
    "RYN154": FindingKind(
        "The instructions of a phase alone exceed its `max_prompt_tokens`.",
        "Shorten the instructions, or raise `max_prompt_tokens` under `context`.",
    ),
    "RYN170": FindingKind(
        "Information: the sandbox that Reyn selects for a python step, and the reason.",
        "There is nothing to fix. `python.sandbox` in reyn.yaml selects the sandbox.",
    ),
    "RYN224": FindingKind(
        "A phase allows an op that changes the memory of a conversation, but the phase is not a conversation.",
        "Add `conversation: true` to the phase, or remove the op from `allowed_ops`.",
    ),
    "RYN701": FindingKind(
        "Invalid key or value in the configuration.",
        "Correct the key or the value at the line or in the variable that the message names.",
    ),
}
"""Every finding code."""
