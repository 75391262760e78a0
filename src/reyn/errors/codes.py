"""Codes of findings about skills and the configuration: each is declared once, with its meaning and its fix."""

from __future__ import annotations

from typing import NamedTuple


class FindingKind(NamedTuple):
    """The meaning of a finding code, and the fix."""

    meaning: str
    fix: str


FINDINGS: dict[str, FindingKind] = {}
"""Every finding code."""


def finding_code(meaning: str, fix: str) -> str:
    """Declare a code of findings: `RYN112: Unknown key.`. Returns the code."""
    code, _, text = meaning.partition(": ")
    FINDINGS[code] = FindingKind(text, fix)
    return code


UNSUPPORTED = finding_code(
    "RYN103: The skill uses a feature that this version cannot execute (error), or allows such an op (warning).",
    "Remove the feature, or the op from `allowed_ops`.",
)
UNREADABLE = finding_code(
    "RYN110: The file cannot be read: it is missing, too large or not UTF-8 text.",
    "Create the file, make it smaller than 1 MB, or save it as UTF-8.",
)
BAD_YAML = finding_code(
    "RYN111: Invalid YAML: a syntax error, a duplicate key, a tag, or too much nesting.",
    "Correct the line. Quote a text that contains `: ` or starts with a special character, such as `[` or `*`.",
)
UNKNOWN_KEY = finding_code(
    "RYN112: Unknown key.", "Correct the spelling, or remove the key. The skill language reference lists all keys."
)
MISSING_KEY = finding_code(
    "RYN113: A required key, or the instructions of a phase, are missing.",
    "Add the key. The instructions of a phase are the text below its front matter.",
)
WRONG_VALUE = finding_code(
    "RYN114: A value has the wrong type or is out of range.",
    "Write a value that the message names. A list of one item is `[item]`, a text that looks like a number `'7'`.",
)
WRONG_NAME = finding_code(
    "RYN115: A name is invalid, reserved, or differs from the name of its file or folder.",
    "Use letters, digits, `_` and `-`, starting with a letter. `name: draft` belongs in `phases/draft.md`.",
)
UNKNOWN_PHASE = finding_code(
    "RYN116: `graph` or `entry` names a phase that has no file.", "Create `phases/NAME.md`, or correct the name."
)
UNKNOWN_ARTIFACT = finding_code(
    "RYN117: A key names an artifact that has no file.",
    "Create `artifacts/NAME.yaml` with a JSON Schema, or correct the name.",
)
FORBIDDEN_KEY = finding_code(
    "RYN118: A phase has a key that belongs in skill.md: `output`, `next` or `permissions`.",
    "Move `permissions` to skill.md and `next` to its `graph`. Remove `output`: the next phase defines it.",
)
DEAD_END = finding_code(
    "RYN119: A phase cannot reach `end`.", "Add a path to the end in the graph of skill.md: `polish: [end]`."
)
UNREACHABLE = finding_code(
    "RYN120: A phase cannot be reached from the entry.", "Add the phase to the graph of skill.md, or delete its file."
)
BAD_SCHEMA = finding_code(
    "RYN121: Invalid JSON Schema, or a reference to another file.",
    "Correct the schema. A `$ref` can only refer to its own file: `#/$defs/NAME`.",
)
UNKNOWN_OP = finding_code(
    "RYN122: Unknown op.", "Correct the spelling in `allowed_ops`, or install the package that provides the op."
)
BAD_STEP = finding_code(
    "RYN123: A step is malformed, of an unknown kind, or not allowed there.",
    "Write a mapping with one key, the kind of the step: `- python: {module: count.py, function: words}`.",
)
UNKNOWN_PATH = finding_code(
    "RYN124: A path of a step (`into`, `args_from`, `over`, `target`) does not exist in the schema.",
    "Correct the path, or add the field to the schema of the artifact.",
)
BAD_MODULE = finding_code(
    "RYN125: The module or function of a python step is missing, invalid, or outside the skill's folder.",
    "Create the file in the skill's folder, with a function of that name that takes the artifact.",
)
MISSING_PERMISSION = finding_code(
    "RYN126: A python step has no matching entry under `permissions.python`.",
    "Add the entry to skill.md: `python: [{module: count.py, function: words}]` under `permissions`.",
)
MISSING_REQUEST = finding_code(
    "RYN127: An op needs a permission that skill.md does not request.",
    "Add the permission under `permissions` in skill.md: `file.write: [reports/]`.",
)
UNUSED_REQUEST = finding_code(
    "RYN128: A requested permission is not used.", "Remove the request, or add an op that needs it to `allowed_ops`."
)
MISSING_REASON = finding_code(
    "RYN129: A permission for unsafe Python has no reason.",
    "Add `reason: …` to the entry under `permissions.python`. The operator reads it before granting it.",
)
CONTRACT_IN_PROSE = finding_code(
    "RYN130: Instructions describe ops, output fields or other phases, which Reyn adds to the prompt.",
    "Remove the sentence, so that the prompt does not contain the same rule twice.",
)
COPYABLE_LITERAL = finding_code(
    "RYN131: Instructions contain a literal that small models may copy.",
    "Describe the value in words, or move it to the input.",
)
AMBIGUOUS_UNION = finding_code(
    "RYN132: Members of an input union have the same schema and description.",
    "Give each artifact a description of its own, or use one type.",
)
TYPE_MISMATCH = finding_code(
    "RYN133: A sub-skill's result does not match its successor's input, or it has several successors.",
    "Use the sub-skill's `final_output` as the input of the one phase that follows it.",
)
SKILL_CYCLE = finding_code(
    "RYN134: Skills run each other in a cycle, or are nested too deep.",
    "Remove one of the references between the skills.",
)
OLDER_FORM = finding_code(
    "RYN135: The skill is written in the older form, which can be rewritten automatically.",
    "Rewrite the skill, automatically or by hand. The older form still runs.",
)
NAME_COLLISION = finding_code(
    "RYN136: Two file names differ only in case or Unicode normalization.",
    "Rename one of the files. Some file systems cannot store both.",
)
UNKNOWN_PERMISSION = finding_code(
    "RYN137: Unknown permission.",
    "Correct the spelling. The keys are `file.read`, `file.write`, `web`, `exec`, `python` and others.",
)
LINK_OUTSIDE = finding_code(
    "RYN138: A symbolic link points outside the folder of the skill or the shared folder; Reyn does not follow it.",
    "Replace the link by a copy of the file.",
)
TOO_MANY_REFERENCES = finding_code(
    "RYN139: The references of a JSON Schema expand to too many schemas.",
    "Use fewer nested `$ref`s, or write the repeated part as an array or a string.",
)
PATTERN_UNSUPPORTED = finding_code(
    "RYN140: A pattern of a JSON Schema needs backtracking, or the patterns are too large.",
    "Write the pattern without look-around (except after `^`) and back-references, and with smaller counts of `{…}`.",
)
RESERVED_NAME = finding_code(
    "RYN143: A phase is named `end` or `abort`, which are choices of every phase.", "Rename the phase and its file."
)
MISSING_EDGE_TEXT = finding_code(
    "RYN144: A phase has several candidates, and the graph does not say when to choose one of them.",
    "Write a text for each candidate: `review: {draft: it needs more work, end: it is ready}`.",
)
EQUAL_EDGE_TEXTS = finding_code(
    "RYN145: Two candidates of a phase have the same text, so the model cannot distinguish them.",
    "Give each candidate a text of its own in the graph.",
)
UNPRODUCED_READ = finding_code(
    "RYN146: No path to a phase produces an artifact that it reads.",
    "Remove the artifact from `reads`, or let an earlier phase produce it.",
)
MUST_IMPOSSIBLE = finding_code(
    "RYN147: `must` names an op that no visit of the phase can do: it is not allowed, or there are no act turns.",
    "Add the op to `allowed_ops`, or remove it from `must`.",
)
BAD_FILL = finding_code(
    "RYN148: `nodes` names no phase of the graph, or `fill` a field or an op that does not exist or may not happen.",
    "Write a field of every artifact that can follow, and `ops.KIND.FORM.FIELD`; add the op to `must` of the phase.",
)
MUST_MISSING = finding_code(
    "RYN149: Information: the instructions ask for an op, but the phase can end without it.",
    "Add the op to `must` of the phase if no visit may end without it; otherwise there is nothing to fix.",
)
UNKNOWN_HANDOFF_FIELD = finding_code(
    "RYN151: `context` selects a handoff field that does not exist.",
    "Use `goal`, `epic_id`, `verdicts`, `artifacts_produced`, `decisions_made`, `open_risks` or `narrative`.",
)
UNPRODUCED_HANDOFF_FIELD = finding_code(
    "RYN152: `context` selects a handoff field that no earlier phase can produce.",
    "Remove the field, add it to an artifact, or set `ask_handoff: true` in an earlier phase.",
)
NARRATIVE_OMITTED = finding_code(
    "RYN153: `context` selects `narrative`, but `narrative_cap` is 0, which omits narratives.",
    "Raise `narrative_cap`, or remove `narrative`.",
)
OVERSIZED_INSTRUCTIONS = finding_code(
    "RYN154: The instructions of a phase alone exceed its `max_prompt_tokens`, or a skill has too many to check.",
    "Shorten the instructions, or raise `max_prompt_tokens` under `context`.",
)
BAD_RULE = finding_code(
    "RYN180: The rules of a node without a model are malformed, or the node has what only a model needs.",
    "Write `- {when: EXPRESSION, to: NODE}` for each rule and `- {else: NODE}` at the end.",
)
BAD_EXPRESSION = finding_code(
    "RYN181: An expression is not valid: its syntax, an unknown name or field, types that do not fit, or no value.",
    "Correct the expression at the column that the message names. The reference of the skill language lists all of it.",
)
UNGUARDED = finding_code(
    "RYN182: An expression needs a value that may be missing or null.",
    "Test it before: `has(data.score) && data.score > 1`, or `data.note != null && ...`.",
)
CONSTANT_CONDITION = finding_code(
    "RYN183: A condition is never true, or always, so that a rule or an edge has no effect.",
    "Correct the condition, or remove the rule.",
)
BAD_STATE = finding_code(
    "RYN185: `state` of skill.md is not valid, or something reads a field of it that does not exist.",
    "Write `{latest: TYPE}`, `{append: TYPE, max: 50}` or `{sum: TYPE.data.FIELD}`, and read it as `state.NAME`.",
)
UNPRODUCED_STATE = finding_code(
    "RYN186: No node produces an artifact that a field of the state follows, so that the field never changes.",
    "Correct the type, or remove the field.",
)
PYTHON_SANDBOX = finding_code(
    "RYN170: Information: the sandbox that Reyn selects for a python step, and the reason.",
    "There is nothing to fix. `python.sandbox` in reyn.yaml selects the sandbox.",
)
BAD_BRANCHES = finding_code(
    "RYN171: A fan-out of `nodes` names no branch that can run, joins results that do not fit, or can never be met.",
    "Write `each: {in: data.LIST, do: PHASE, output: TYPE}` or `all: {NAME: '@skill'}`, and `as: TYPE` beside it.",
)
BAD_ERRORS = finding_code(
    "RYN187: `retry` or `on_error` of a node names an error that nothing names, or a handler that cannot take it.",
    "Write `on_error: {NAME: NODE}`, where NODE is a node of the graph whose phase has `node_error` in its `input`.",
)
CONVERSATION_OP = finding_code(
    "RYN224: A phase allows an op that only conversations have, but the phase is not a conversation.",
    "Add `conversation: true` to the phase, or remove the op from `allowed_ops`.",
)
BAD_TRANSCRIPT = finding_code(
    "RYN225: A transcript that phases share has no valid name, several sizes, or only one phase.",
    "Write `conversation: {transcript: NAME}` with the same name and the same `max_tokens` in each of the phases.",
)
UNKNOWN_MODEL_CLASS = finding_code(
    "RYN524: A phase or a skill requests a model class that `models` in the configuration does not define.",
    "Add the class to `models` in reyn.yaml, such as `light: openai:NAME`, or correct the name.",
)
CONFIG_INVALID = finding_code(
    "RYN701: Invalid key or value in the configuration.",
    "Correct the key or the value at the line or in the variable that the message names.",
)
UNREAD_FILE = finding_code(
    "RYN188: Reyn does not read a file in `phases` or `artifacts`, because of the ending of its name.",
    "Write a phase to `phases/NAME.md` and an artifact to `artifacts/NAME.yaml`, or move the file out of the folder.",
)
DRAWN_EDGE = finding_code(
    "RYN189: The text of skill.md draws an edge, such as `a -> b`, that `graph` does not have.",
    "Write the edge under `graph`: `a: [b]`. The text is for people; Reyn does not read it.",
)
SPLIT_VALUE = finding_code(
    "RYN190: A comma in `{…}` ends a value, so that the rest of the text became a key without a value.",
    "Quote the text: `{description: 'Index, starting with 0'}`.",
)
