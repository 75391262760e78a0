"""Convert between Reyn skills and Agent Skills (agentskills.io): a folder with `SKILL.md`, scripts and references.

Both directions are pure functions of files, and list what the other format cannot express.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.documents import DocumentError, TrustClasses, parse_front_matter, trust_classes
from reyn.errors import AgentSkillInvalid, SkillNotExportable
from reyn.skills.files import printable_line, to_front_matter, to_yaml
from reyn.skills.imports import requirements_text, third_party_imports
from reyn.skills.names import is_valid_name
from reyn.skills.values import DEFAULT_OPS, END, USER_MESSAGE, ArtifactType, Skill, is_skill_node

if TYPE_CHECKING:
    from reyn.skills.step_types import AnyStep

SKILL_FILE = "SKILL.md"
SOURCE = "agentskills"
"""The value of `imported_from` in a skill that was converted."""
_FILES = "files"
"""The folder of a converted skill with the scripts, references and assets of the Agent Skill."""
PHASE, RESULT_TYPE = "work", "result"
MAX_DESCRIPTION = 1_024
_MAX_SKILL_BYTES = 1_000_000
_AGENT_NAME = re.compile(r"[^\W_A-Z]+(-[^\W_A-Z]+)*")
STANDARD_KEYS: TrustClasses = {
    **trust_classes(plain="name description license compatibility metadata"),
    "allowed-tools": "request",
}
"""The keys that the format defines, with their trust classes; other keys have no effect."""
_KEPT = {
    "license": "imported_license",
    "compatibility": "imported_compatibility",
    "metadata": "imported_metadata",
    "allowed-tools": "imported_allowed_tools",
}
_REQUIREMENTS = "requirements.in"
"""The proposed list of packages that the scripts import."""
_OTHER = "imported_other"
_NAME = "imported_name"
_TOOL = re.compile(r"(?P<name>[\w-]+)(\((?P<argument>[^)]*)\))?")
_TOOL_OPS = {
    **dict.fromkeys(("Read", "Write", "Edit", "MultiEdit", "Glob", "Grep", "LS"), "file"),
    "AskUserQuestion": "ask_user",
    "Bash": "sandboxed_exec",
    "WebFetch": "web_fetch",
    "WebSearch": "web_search",
}
"""The ops for the tools that `allowed-tools` commonly names."""
_PROGRAMS = {
    ".py": "python3",
    ".sh": "sh",
    ".bash": "bash",
    ".js": "node",
    ".mjs": "node",
    ".rb": "ruby",
    ".pl": "perl",
}
"""The program that executes a script, by the suffix of its name."""
_CLIENT_SYNTAX = {
    re.compile(r"\$ARGUMENTS\b"): "`$ARGUMENTS` in the instructions is not replaced; the user's message is the input",
    re.compile(r"\$\{CLAUDE_"): "variables of another program in the instructions are not replaced",
    re.compile(r"(?<!\S)!`[^`\n]+`"): "commands in the instructions (!`…`) are not executed before the model sees them",
}


class AgentSkill(msgspec.Struct, frozen=True):
    """An Agent Skill.

    Attributes:
        name: Its name.
        description: What it does and when to use it.
        body: Its instructions.
        keys: The other keys of its front matter that the format defines.
        other: Keys that the format does not define.
        files: Its other files, by path.
    """

    name: str
    description: str
    body: str
    keys: dict[str, Any] = {}
    other: dict[str, Any] = {}
    files: dict[str, bytes] = {}


class Conversion(NamedTuple):
    """The files of a converted skill by path, and what was not converted, one sentence each.

    `imports` has the packages that the scripts of an Agent Skill import, by the name of the import.
    """

    name: str
    files: dict[str, bytes]
    unconverted: tuple[str, ...]
    imports: dict[str, str] = {}  # noqa: RUF012 - it is not changed


# -- reading ------------------------------------------------------------------------------------------------


def parse_agent_skill(files: Mapping[str, bytes]) -> AgentSkill:
    """Return the Agent Skill in a folder.

    Raises:
        AgentSkillInvalid: `SKILL.md` is missing or has errors.
    """
    name = next((name for name in files if name == SKILL_FILE), None) or next(
        (name for name in files if name.lower() == SKILL_FILE.lower()), None
    )
    if name is None:
        raise AgentSkillInvalid(f"the folder has no `{SKILL_FILE}`")
    value, body = _front_matter(files[name], name)
    if value.get("type") == "skill" and "entry" in value:
        raise AgentSkillInvalid(f"`{name}` is a skill of Reyn already", hint="Copy the folder to `reyn/local/`.")
    for key in ("name", "description"):
        if key not in value or value[key] is None or value[key] == "":
            raise AgentSkillInvalid(f"{name}: `{key}` is missing")
        if not isinstance(value[key], str):
            raise AgentSkillInvalid(f"{name}: `{key}` must be a text, not {value[key]!r}")
    keys = {key: value[key] for key in _KEPT if value.get(key) is not None}
    other = {str(key): one for key, one in value.items() if key not in STANDARD_KEYS}
    rest = {path: content for path, content in files.items() if path != name}
    return AgentSkill(value["name"].strip(), " ".join(value["description"].split()), body, keys, other, rest)


def _front_matter(content: bytes, name: str) -> tuple[dict[str, Any], str]:
    if len(content) > _MAX_SKILL_BYTES:
        raise AgentSkillInvalid(f"{name} is larger than {_MAX_SKILL_BYTES:,} bytes")
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
        document = parse_front_matter(text, name)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise AgentSkillInvalid(f"{name}, line {line}: it is not UTF-8 text") from error
    except DocumentError as error:
        raise AgentSkillInvalid(str(error.finding)) from error
    if not isinstance(document.value, dict):
        raise AgentSkillInvalid(f"{name}: the front matter must be a mapping with `name` and `description`")
    return document.value, document.body


# -- from an Agent Skill ------------------------------------------------------------------------------------


def to_reyn(skill: AgentSkill, name: str = "") -> Conversion:
    """Return an Agent Skill as a skill with one phase, which has its instructions.

    Args:
        skill: The Agent Skill.
        name: The name of the new skill; by default that of the Agent Skill.

    Raises:
        AgentSkillInvalid: A skill of Reyn cannot have this name.
    """
    name = name or skill.name
    if not is_valid_name(name):
        hint = "Choose a name that begins with a letter, then has letters, digits, `_` and `-`."
        raise AgentSkillInvalid(f"a skill of Reyn cannot be named {name[:80]!r}", hint=hint)
    tools = _Tools(skill)
    notes = [*tools.notes]
    notes += [f"`{printable_line(key)}` in the front matter has no effect here" for key in skill.other]
    if "compatibility" in skill.keys:
        notes.append(f"`compatibility` is not checked: {printable_line(str(skill.keys['compatibility']))}")
    notes += [note for sign, note in _CLIENT_SYNTAX.items() if sign.search(skill.body)]
    imports = third_party_imports(skill.files)
    notes += [_import_note(name, imports)] if imports else []
    keys: dict[str, Any] = {
        "type": "skill",
        "name": name,
        "description": skill.description,
        "entry": PHASE,
        "final_output": RESULT_TYPE,
        "final_output_description": "What was done, and the result for the user.",
        "graph": {PHASE: [END]},
        "permissions": tools.permissions,
        "imported_from": SOURCE,
        _NAME: "" if skill.name == name else skill.name,
        **{_KEPT[key]: value for key, value in skill.keys.items()},
        _OTHER: skill.other,
    }
    phase = {"type": "phase", "name": PHASE, "input": USER_MESSAGE.name, "allowed_ops": list(tools.ops)}
    instructions = skill.body if skill.body.strip() else f"{skill.description}\n"
    files = {
        "skill.md": to_front_matter(
            {key: value for key, value in keys.items() if value not in ("", {})}, _prose(notes)
        ),
        f"phases/{PHASE}.md": to_front_matter(phase, instructions + _footer(name, skill)),
        f"artifacts/{RESULT_TYPE}.yaml": to_yaml(_RESULT_SCHEMA),
    }
    if imports:
        files[_REQUIREMENTS] = requirements_text(imports)
    encoded = {path: text.encode() for path, text in files.items()}
    copied = {f"{_FILES}/{path}": one for path, one in skill.files.items()}
    return Conversion(name, encoded | copied, tuple(notes), imports)


def _import_note(name: str, imports: Mapping[str, str]) -> str:
    """Return what to do about the packages that scripts import."""
    named = ", ".join(
        f"`{one}`" + (f" ({package})" if package not in (one, "") else "") for one, package in imports.items()
    )
    lock = f"reyn/local/{name}/{_REQUIREMENTS}".removesuffix(".in") + ".txt"
    return (
        f"the scripts import packages: {named}. `{_REQUIREMENTS}` lists them: declare an environment with "
        f"`requirements: {lock}` in reyn.yaml, lock and make it, and add `environment: NAME` to skill.md"
    )


def _prose(notes: list[str]) -> str:
    text = "Converted from an Agent Skill. The instructions are those of its `SKILL.md`.\n"
    return text + ("\nNot converted:\n\n" + "".join(f"- {note}\n" for note in notes) if notes else "")


_RESULT_SCHEMA = {
    "description": "The result of the task.",
    "type": "object",
    "properties": {
        "text": {"description": "What the user sees.", "type": "string", "minLength": 1, "maxLength": 20_000}
    },
    "required": ["text"],
    "additionalProperties": False,
}


def _footer(name: str, skill: AgentSkill) -> str:
    """Return what the model has to know about the files of a skill."""
    if not skill.files:
        return ""
    return f"\n\nThe files that these instructions name are below reyn/local/{name}/{_FILES}/.\n"


class _Tools:
    """The ops and permissions for the tools and scripts of an Agent Skill."""

    def __init__(self, skill: AgentSkill) -> None:
        self.notes: list[str] = []
        ops, programs = list(DEFAULT_OPS), []
        for tool in tools_of(skill.keys.get("allowed-tools")):
            match = _TOOL.fullmatch(tool)
            op = _TOOL_OPS.get(match["name"]) if match else None
            if match is None or op is None:
                self.notes.append(self._without_op(tool))
                continue
            ops.append(op)
            if op == "sandboxed_exec":
                programs += self._program(tool, match["argument"] or "")
            elif match["argument"]:
                self.notes.append(f"`allowed-tools`: the argument of `{tool}` is not converted; restrict `permissions`")
        scripts = sorted(path for path in skill.files if os.path.splitext(path)[1] in _PROGRAMS)  # noqa: PTH122 - a name
        if scripts:
            ops.append("sandboxed_exec")
            programs += [_PROGRAMS[os.path.splitext(path)[1]] for path in scripts]  # noqa: PTH122 - a name
        self.ops = tuple(dict.fromkeys(ops))
        self.permissions: dict[str, Any] = {}
        if "sandboxed_exec" in self.ops:
            self.permissions["exec"] = list(dict.fromkeys(programs)) or ["sh"]
            named = ", ".join(f"`{one}`" for one in self.permissions["exec"])
            self.notes.append(f"programs run only if the operator grants `exec` for {named}; none is pre-approved")
        if {"web_fetch", "web_search"} & {*self.ops}:
            self.permissions["web"] = True
            self.notes.append("a person is asked about each host that is fetched; none is pre-approved")

    def _program(self, tool: str, argument: str) -> list[str]:
        program, *rest = re.split(r"[\s:]", argument.strip(), maxsplit=1)
        if program and not set(program) & set("*$`\"'()&|;<>"):
            if rest not in ([], ["*"]):
                self.notes.append(f"`allowed-tools`: `{tool}` becomes `{program}` with any arguments")
            return [program]
        self.notes.append(f"`allowed-tools`: `{tool}` runs shell commands; here, one program at a time can be run")
        return []

    @staticmethod
    def _without_op(tool: str) -> str:
        parts = tool.split("__")
        if len(parts) == 3 and parts[0] == "mcp":
            advice = f"add the MCP server `{parts[1]}`, then allow `mcp:{parts[1]}/{parts[2]}` in the phase"
            return f"`allowed-tools`: `{tool}` is not converted; {advice}"
        return f"`allowed-tools`: no op corresponds to `{tool[:80]}`"


def tools_of(value: Any) -> list[str]:
    """Return the tools of `allowed-tools`: a list, or a text with spaces or commas between them."""
    if isinstance(value, list):
        return [shown for one in value if (shown := printable_line(str(one)))]
    if not isinstance(value, str):
        return []
    return [part for part in re.findall(r"[^\s,(]+(?:\([^)]*\))?", value) if part]


# -- to an Agent Skill --------------------------------------------------------------------------------------


def from_reyn(skill: Skill, files: Mapping[str, bytes], name: str = "") -> Conversion:
    """Return a skill of Reyn as an Agent Skill.

    A skill that was converted from an Agent Skill and not changed since is converted back to the same files.

    Args:
        skill: The skill.
        files: The files of its folder, by path.
        name: The name of the Agent Skill; by default that of the skill, in lower case with hyphens.

    Raises:
        SkillNotExportable: An Agent Skill cannot have this name.
    """
    front, _ = _front_matter(files["skill.md"], "skill.md")
    chosen = name or str(front.get(_NAME, "")) or skill.name.lower().replace("_", "-")
    if not _AGENT_NAME.fullmatch(chosen) or chosen != chosen.lower() or len(chosen) > 64:
        hint = "An Agent Skill's name has lower-case letters and digits, with single hyphens between them."
        raise SkillNotExportable(f"an Agent Skill cannot be named `{chosen[:80]}`", hint=hint)
    keys: dict[str, Any] = {"name": chosen, "description": skill.description.strip() or skill.name}
    keys |= {key: front[kept] for key, kept in _KEPT.items() if kept in front}
    keys |= other if isinstance(other := front.get(_OTHER), dict) else {}
    own = {path.removeprefix(f"{_FILES}/"): one for path, one in files.items() if path.startswith(f"{_FILES}/")}
    if _is_converted(skill, front):
        agent = AgentSkill(chosen, skill.description, "", files=own)
        instructions = skill.phases[PHASE].instructions
        body = instructions.removesuffix(_footer(skill.name, agent))
        body = "" if body == f"{skill.description}\n" else body
        return Conversion(chosen, {SKILL_FILE: to_front_matter(keys, body).encode(), **own}, ())
    notes = [*_unexported(skill, files)]
    if len(keys["description"]) > MAX_DESCRIPTION:
        keys["description"] = f"{keys['description'][: MAX_DESCRIPTION - 1]}…"
        notes.append(f"`description` is longer than {MAX_DESCRIPTION} characters and was truncated")
    if chosen != skill.name:
        notes.append(f"the name is `{chosen}`, because `{skill.name}` is not valid there")
    modules = {f"scripts/{path.removeprefix('./')}": source.encode() for path, source in skill.modules.items()}
    exported = {SKILL_FILE: to_front_matter(keys, _body(skill)).encode(), _SCHEMAS: _schemas(skill).encode()}
    return Conversion(chosen, exported | modules | own, tuple(notes))


_SCHEMAS = "references/artifacts.md"


def _is_converted(skill: Skill, front: Mapping[str, Any]) -> bool:
    """Return whether a skill still has the shape that `to_reyn` gave it."""
    return (
        front.get("imported_from") == SOURCE
        and [*skill.phases] == [PHASE]
        and skill.graph == {PHASE: (END,)}
        and skill.final_output.name == RESULT_TYPE
        and not skill.phases[PHASE].preprocessor
        and skill.postprocessor is None
    )


def _body(skill: Skill) -> str:
    lines = [f"# {skill.name}\n"]
    lines += [f"{skill.description.strip()}\n"] if skill.description.strip() else []
    lines.append(
        f"Work in steps. Begin with the step `{skill.entry}`. After each step, choose what follows by the list"
    )
    lines.append(f"at its end. The schemas of the artifacts are in [{_SCHEMAS}]({_SCHEMAS}).\n")
    for name in skill.graph:
        lines += _step(skill, name)
    lines.append("## Result\n")
    lines.append(f"The result is `{skill.result.name}`. {skill.final_output_description}".rstrip() + "\n")
    lines += [f"- {criterion}" for criterion in skill.finish_criteria]
    return "\n".join(lines).rstrip() + "\n"


def _step(skill: Skill, name: str) -> Iterator[str]:
    yield f"## Step: {name}\n"
    phase = skill.phases.get(name)
    if phase is None:
        yield f"Use the skill `{name[1:].partition('[')[0]}` and take its result.\n"
    else:
        inputs = f"`{phase.input_name.replace(' | ', '` or `')}`"
        reads = f" Also use: {', '.join(f'`{one}`' for one in phase.reads)}." if phase.reads else ""
        yield f"Input: {inputs}.{reads}{f' Role: {phase.role}.' if phase.role else ''}\n"
        yield f"{phase.instructions.strip()}\n"
    yield "Then:\n"
    texts = skill.edge_texts.get(name, {})
    for target in skill.graph[name]:
        when = f": {texts[target]}" if target in texts else ""
        if target == END:
            yield f"- finish with `{skill.final_output.name}`{when}"
        else:
            produced = " or ".join(f"`{one.name}`" for one in skill.inputs_of(target))
            yield f"- go to the step `{target}` with {produced}{when}"
    yield ""


def _schemas(skill: Skill) -> str:
    lines = ["# Artifacts\n"]
    for artifact in _artifacts(skill):
        schema = msgspec.json.format(msgspec.json.encode(artifact.schema), indent=2).decode()
        lines.append(
            f"## {artifact.name}\n\n{artifact.description}\n\n```json\n{schema}\n```\n".replace("\n\n\n\n", "\n\n")
        )
    return "\n".join(lines)


def _artifacts(skill: Skill) -> list[ArtifactType]:
    found: dict[str, ArtifactType] = {}
    for node in skill.graph:
        for one in skill.inputs_of(node):
            found.setdefault(one.name, one)
    for one in (skill.final_output, skill.result):
        found.setdefault(one.name, one)
    return [*found.values()]


def _unexported(skill: Skill, files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield what an Agent Skill cannot express."""
    yield "the order of the steps and the schemas are instructions there; no program enforces them"
    for name, phase in skill.phases.items():
        if phase.preprocessor:
            yield f"the steps before the model in `{name}` are not converted: {_kinds(phase.preprocessor)}"
        if phase.allowed_ops:
            yield f"the ops of `{name}` are not converted: {', '.join(phase.allowed_ops)}"
        for key in ("requires_approval", "conversation", "model_class", "context", "allowed_skills"):
            if getattr(phase, key):
                yield f"`{key}` of `{name}` is not converted"
    for node in filter(is_skill_node, skill.graph):
        yield f"the skill of the node `{node}` is not included; export it, too"
    if skill.postprocessor is not None:
        yield f"the steps after the finish are not converted: {_kinds(skill.postprocessor.steps) or 'none'}"
    for module in skill.modules:
        yield f"`{module}` is copied to `scripts/`, but its functions are not called"
    for key in skill.permissions:
        yield f"the request of the permission `{key}` is not converted; clients have their own rules"
    for key, default in (("required_credentials", ()), ("on_phase_failure", "fail"), ("context", None)):
        if getattr(skill, key) != default:
            yield f"`{key}` is not converted"
    if count := len({path.split("/")[1] for path in files if path.startswith("cases/") and path.count("/") > 1}):
        yield f"{count} {'case is' if count == 1 else 'cases are'} not exported"


def _kinds(steps: tuple[AnyStep, ...]) -> str:
    return ", ".join(f"`{step.__struct_config__.tag}`" for step in steps)
