"""Convert files of the older form of the skill language to the documented one.

A skill is in the older form if a step has a `type:` key or an artifact has a `schema:` wrapper. There,
`max_act_turns: 0` means the default, unquoted `yes`, `no`, `on`, `off` are booleans, a word stands for a list of one,
ops on the web request `web` by themselves, and unknown keys are warnings. The conversion changes the nodes of the YAML
text, which have positions: the loader reads the result, and `reyn.lint.fix` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import yaml
from yaml.nodes import MappingNode, Node, SequenceNode

from reyn.documents import Document, DocumentError, KeyPath, Position, Severity, check_keys, fields_of, nearest_or_all
from reyn.errors import Finding, codes
from reyn.jsonschema import DRAFT_7, SchemaInvalid, compile_schema
from reyn.skills.front_matter import (
    FORBIDDEN_IN_PHASE,
    FRONT_MATTER,
    STEP_ARGUMENTS,
    PhaseFrontMatter,
    PostprocessorSection,
    SkillFrontMatter,
    foreign_keys,
    step_lists,
)
from reyn.skills.yaml_nodes import YamlNodes, node_at, value_of, yaml_entries

if TYPE_CHECKING:
    from reyn.skills.yaml_nodes import YamlEntry
    from reyn.vocabulary import Vocabulary

DEFAULT_INPUT = "artifact"
"""The input type of a phase without `input`; the conversion adds it to the skill."""
_IMPLIED = "web"
"""The permission that a skill did not have to request. The operator still decides about each host."""
_IGNORED_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "ask_user": ("required",),
    "embed": ("model",),
    "index_query": ("filters", "fallback_size_cap"),
    "index_write": ("description", "embedding_model", "path"),
    "judge_output": ("model", "target"),
    "recall": ("embedding_model", "filters"),
    "run_skill": ("model", "output_language"),
    "web_search": ("backend",),
}
"""Arguments of ops that have no effect, by kind."""
_SKILL_FILE = "/skill.md"
_RENAMED_ARGUMENTS = {
    "index_drop": {"source": "index"},
    "index_query": {"source": "index"},
    "index_write": {"source": "index"},
    "recall": {"sources": "index", "top_k": "limit"},
}
"""Arguments of ops that have other names now, by kind."""
_TARGET = "artifact."
"""Begins the `target` of a judgement: a path in the artifact, which is an argument from the artifact here."""
_BOOLEANS = {
    **dict.fromkeys(("yes", "Yes", "YES", "on", "On", "ON"), "true"),
    **dict.fromkeys(("no", "No", "NO", "off", "Off", "OFF"), "false"),
}


class OlderSkill(NamedTuple):
    """What the conversion of a file has to know about the skill around it.

    Attributes:
        vocabulary: The known ops and permissions.
        unsafe_calls: Module and function of each `permissions.python` entry with `mode: unsafe`.
        web_op: An op that needs the permission `web`; empty if the skill uses none.
    """

    vocabulary: Vocabulary
    unsafe_calls: frozenset[tuple[Any, Any]] = frozenset()
    web_op: str = ""

    @classmethod
    def of(cls, vocabulary: Vocabulary, skill: Any, phases: Iterable[Any]) -> OlderSkill:
        """Describe a skill by the front matter of `skill.md` and of its phases, as it is written."""
        permissions = _part(skill, "permissions", dict)
        unsafe = {
            (module_path(entry.get("module")), entry.get("function"))
            for entry in _part(permissions, "python", list)
            if isinstance(entry, dict) and entry.get("mode") == "unsafe"
        }
        values = [skill, *phases]
        kinds = {str(kind) for value in values for kind in _part(value, "allowed_ops", list)}
        kinds |= {
            kind for value in values for _, steps in step_lists(value) for step in steps for kind in _op_kinds(step)
        }
        web_ops = sorted(kind for kind in kinds if (spec := vocabulary.op(kind)) and spec.permission == _IMPLIED)
        return cls(vocabulary, frozenset(unsafe), web_ops[-1] if web_ops else "")


class Converted(NamedTuple):
    """A file in the documented form.

    Attributes:
        document: The values of the file, with their positions.
        nodes: The nodes of its YAML text, after the conversion.
        dropped: Keys that the documented form does not have, with their values.
        findings: Problems of the file.
        notes: What `lint` reports about the form.
    """

    document: Document
    nodes: YamlNodes
    dropped: list[YamlEntry]
    findings: list[Finding]
    notes: list[Finding]


def is_older(value: Any) -> bool:
    """Return whether a file, an artifact or front matter, is in the older form."""
    return is_wrapped(value) or any(
        "type" in step for _, steps in step_lists(value) for step in steps if isinstance(step, dict)
    )


def is_wrapped(value: Any) -> bool:
    """Return whether an artifact file has its schema under `schema:`, next to `name:`."""
    return isinstance(value, dict) and "schema" in value and "name" in value


def module_path(module: Any) -> Any:
    """Return `./stats.py` for the older spelling `stats`; other values unchanged."""
    is_bare = isinstance(module, str) and module and not module.endswith(".py")
    return f"./{module.removeprefix('./')}.py" if is_bare else module


def _part(value: Any, key: str, kind: type) -> Any:
    """Return the value of a key if it has a type, else an empty one."""
    part = value.get(key) if isinstance(value, dict) else None
    return part if isinstance(part, kind) else kind()


def _op_kinds(step: Any) -> Iterator[str]:
    """Yield the op kinds of a step in either form, also of the one that `iterate` applies."""
    if isinstance(step, dict):
        yield from filter(None, [_part(_part(step, "op", dict), "kind", str)])
        for key in step.keys() - {"op"}:
            yield from _op_kinds(step[key])


def convert(document: Document, text: str, skill: OlderSkill) -> Converted:
    """Convert a file.

    Args:
        document: The file, read as the documented form.
        text: The text of the file.
        skill: The skill around it.

    Raises:
        DocumentError: The YAML text cannot be converted.
    """
    first_line, is_artifact = 1, document.file.endswith(".yaml")
    if not is_artifact:
        first_line, text = 2, "\n".join(text.split("\n")[1 : document.body_line - 2])
    try:
        nodes = YamlNodes(text)
    except yaml.YAMLError as error:
        message = f"invalid YAML: {getattr(error, 'problem', None) or error}"
        raise DocumentError(document.finding(codes.BAD_YAML, message)) from error
    nodes.root = nodes.replace_scalars(nodes.root, _BOOLEANS)
    converter = _Converter(document.file, first_line, nodes, skill)
    converter.artifact() if is_artifact else converter.front_matter()
    marks: dict[KeyPath, Position] = {(): converter.start}
    value = converter.value(nodes.root, (), marks)
    new = msgspec.structs.replace(document, value=value, marks=marks)
    return Converted(new, nodes, converter.dropped, converter.findings, converter.notes)


class _Converter:
    """Converts the nodes of one file and collects findings."""

    def __init__(self, file: str, first_line: int, nodes: YamlNodes, skill: OlderSkill) -> None:
        self._file = file
        self._name = PurePath(file).stem
        self._first_line = first_line
        self._nodes = nodes
        self._skill = skill
        self.start = self._position(nodes.root)
        self.dropped: list[YamlEntry] = []
        self.findings: list[Finding] = []
        self.notes: list[Finding] = []

    def value(self, node: Node, path: KeyPath, marks: dict[KeyPath, Position]) -> Any:
        """Return the value of a node, and add the positions of its parts to `marks`."""
        if isinstance(node, SequenceNode):
            parts: Any = {index: (item, item) for index, item in enumerate(node.value)}
        elif isinstance(node, MappingNode):
            parts = yaml_entries(node)
        else:
            return value_of(node)
        marks |= {(*path, key): self._position(at) for key, (at, _) in parts.items() if at.start_mark}
        values = {key: self.value(part, (*path, key), marks) for key, (_, part) in parts.items()}
        return values if isinstance(node, MappingNode) else list(values.values())

    def _position(self, node: Node) -> Position:
        at = node.start_mark
        return Position(at.line + self._first_line, at.column + 1) if at else Position(self._first_line, 1)

    def _finding(self, node: Node, code: str, message: str, fix: str = "", severity: Severity = "warning") -> Finding:
        mark = self._position(node)
        return Finding(self._file, mark.line, mark.column, code, message, fix, severity)

    def _note(self, node: Node, message: str, fix: str = "", code: str = codes.OLDER_FORM) -> None:
        self.notes.append(self._finding(node, code, message, fix))

    def _drop_unknown(self, mapping: Node, shape: type[msgspec.Struct], allowed: Iterable[str] = ()) -> None:
        """Drop the entries that a struct does not have, with a warning for each."""
        known = {*allowed, *(field.name for field in fields_of(shape))}
        marks: dict[KeyPath, Position] = {}
        for name, entry in yaml_entries(mapping).items():
            if name not in known and not name.startswith("imported_"):
                marks[name,] = self._position(entry[0])
                self.dropped.append(self._nodes.pop(mapping, name))
        unknown = Document(self._file, {name: None for (name,) in marks}, marks)
        for finding in check_keys(unknown, shape, FRONT_MATTER, foreign=foreign_keys(shape)):
            if finding.code == codes.UNKNOWN_KEY:
                self.findings.append(msgspec.structs.replace(finding, severity="warning"))

    # -- front matter ---------------------------------------------------------------------------------

    def front_matter(self) -> None:
        nodes, root = self._nodes, self._nodes.root
        if not isinstance(root, MappingNode):
            return
        is_skill = self._file == "skill.md"
        if value_of(node_at(root, "max_act_turns")) == 0:
            nodes.pop(root, "max_act_turns")
        criteria = node_at(root, "finish_criteria")
        if criteria is not None and isinstance(text := value_of(criteria), str):
            words = [word.strip() for word in text.split(",") if word.strip()]
            nodes.put(
                root, "finish_criteria", nodes.sequence((nodes.scalar(word, criteria) for word in words), criteria)
            )
        graph = node_at(root, "graph")
        for name, (_, targets) in yaml_entries(graph).items():
            if graph is not None and isinstance(value_of(targets), str):
                nodes.put(graph, name, nodes.sequence([targets], targets))
        if is_skill:
            self._permissions(root)
        self._postprocessor(node_at(root, "postprocessor"))
        self._steps(node_at(root, "preprocessor"))
        self._drop_unknown(
            root, SkillFrontMatter if is_skill else PhaseFrontMatter, () if is_skill else FORBIDDEN_IN_PHASE
        )
        defaults = {"type": "skill"} if is_skill else {"input": DEFAULT_INPUT, "name": self._name, "type": "phase"}
        for name, text in defaults.items():
            if name not in yaml_entries(root):
                nodes.put(root, name, nodes.scalar(text))

    def _permissions(self, root: Node) -> None:
        """Convert `file: {read: …}` to `file.read: …`, drop unknown permissions, and request what is implied."""
        nodes, keys = self._nodes, self._skill.vocabulary.permission_keys
        permissions = node_at(root, "permissions")
        for name, (key, value) in yaml_entries(permissions).items():
            assert permissions is not None
            nested = yaml_entries(value)
            if name == "file" and isinstance(value, MappingNode) and nested.keys() <= {"read", "write"}:
                nodes.pop(permissions, name)
                for access, (access_key, paths) in reversed(nested.items()):
                    nodes.put(permissions, f"file.{access}", paths, at=access_key)
            elif name == "python":
                for entry in value.value if isinstance(value, SequenceNode) else ():
                    self._module(entry)
            elif name not in keys:
                self._note(key, f"unknown permission `{name}`", nearest_or_all(name, keys), codes.UNKNOWN_PERMISSION)
                self.dropped.append(nodes.pop(permissions, name))
        if not self._skill.web_op or _IMPLIED in yaml_entries(permissions):
            return
        if permissions is None:
            permissions = nodes.mapping(())
            nodes.put(root, "permissions", permissions)
        if isinstance(permissions, MappingNode):
            message = f"older form: `{self._skill.web_op}` without a request for `{_IMPLIED}`"
            fix = f"add `{_IMPLIED}: true` under `permissions`"
            key = yaml_entries(root)["permissions"][0]
            self.findings.append(self._finding(key, codes.OLDER_FORM, message, fix))
            nodes.put(permissions, _IMPLIED, nodes.scalar("true", is_text=False))

    def _module(self, mapping: Node) -> Any:
        """Convert `module: stats` to `module: ./stats.py`; return the module."""
        node = node_at(mapping, "module")
        path = module_path(value_of(node))
        if path != value_of(node):
            self._nodes.put(mapping, "module", self._nodes.scalar(path, node))
        return path

    # -- steps ----------------------------------------------------------------------------------------

    def _postprocessor(self, node: Node | None) -> None:
        if not isinstance(node, MappingNode):
            return
        if "output" in yaml_entries(node) and "output_schema" not in yaml_entries(node):
            self._nodes.rename(node, "output", "output_schema")
        self._steps(node_at(node, "steps"))
        self._drop_unknown(node, PostprocessorSection)

    def _steps(self, steps: Node | None) -> None:
        for step in steps.value if isinstance(steps, SequenceNode) else ():
            kind = value_of(node_at(step, "type"))
            if isinstance(kind, str):
                self._note(step, f"older form: the step has `type: {kind}`", f"write `- {kind}: {{…}}`")
            self._step(step)

    def _step(self, step: Node | None) -> None:
        """Convert `{type: python, module: …}` to `{python: {module: …}}`."""
        nodes = self._nodes
        kind = value_of(node_at(step, "type"))
        if step is not None and isinstance(kind, str):
            key, _ = nodes.pop(step, "type")
            nodes.update(step, [(nodes.scalar(kind, key), nodes.mapping(step.value, step))])
        for kind, (_, value) in yaml_entries(step).items():
            if kind in STEP_ARGUMENTS and isinstance(value, MappingNode):
                self._arguments(kind, value)

    def _arguments(self, kind: str, arguments: Node) -> None:
        nodes = self._nodes
        if kind == "python":
            call = (self._module(arguments), value_of(node_at(arguments, "function")))
            mode = node_at(arguments, "mode")
            if call in self._skill.unsafe_calls and value_of(mode) != "unsafe":  # the permission has the mode
                nodes.put(arguments, "mode", nodes.scalar("unsafe", mode))
        if kind == "run_op":
            self._op(arguments)
        self._step(node_at(arguments, "apply"))
        self._drop_unknown(arguments, STEP_ARGUMENTS[kind])

    def _op(self, arguments: Node) -> None:
        """Drop the arguments of an op that have no effect, and take what a judgement judges from the artifact."""
        nodes, op = self._nodes, node_at(arguments, "op")
        kind, target = value_of(node_at(op, "kind")), node_at(op, "target")
        for name in _IGNORED_ARGUMENTS.get(kind, ()) if isinstance(kind, str) else ():
            if op is not None and name in yaml_entries(op):
                message = f"older form: `{name}` of `{kind}` has no effect"
                self._note(nodes.pop(op, name)[0], message, "remove it")
        for name, new in _RENAMED_ARGUMENTS.get(kind, {}).items() if isinstance(kind, str) else ():
            for mapping in filter(None, (op, node_at(arguments, "args_from"))):
                self._rename(mapping, name, new, kind)
        skill = node_at(op, "skill") if kind == "run_skill" else None
        if op is not None and isinstance(name := value_of(skill), str) and name.endswith(_SKILL_FILE):
            nodes.put(op, "skill", nodes.scalar(name.removesuffix(_SKILL_FILE), skill), at=skill)
            self._note(skill or op, "older form: `skill` is the path of a file", "write the name of the skill")
        path = value_of(target) if kind == "judge_output" and node_at(op, "output") is None else None
        if isinstance(path, str) and path.startswith(_TARGET):
            if not isinstance(node_at(arguments, "args_from"), MappingNode):
                nodes.put(arguments, "args_from", nodes.mapping(()), at=target)
            bound = node_at(arguments, "args_from")
            if bound is not None and "output" not in yaml_entries(bound):
                nodes.put(bound, "output", nodes.scalar(path.removeprefix(_TARGET), target), at=target)

    def _rename(self, mapping: Node, name: str, new: str, kind: str) -> None:
        """Rename an argument of an op; of a list, which had the names of several, the only item is kept."""
        found = node_at(mapping, name)
        if found is None:
            return
        if isinstance(found, SequenceNode):
            if len(found.value) != 1:
                return
            self._nodes.put(mapping, name, found.value[0])
        self._nodes.rename(mapping, name, new)
        self._note(found, f"older form: `{name}` of `{kind}` is `{new}` now", f"write `{new}`")

    # -- artifacts ------------------------------------------------------------------------------------

    def artifact(self) -> None:
        """Take the schema of an artifact's data out of its wrapper.

        With `wrapped: false`, the older form described the whole artifact; a schema with the properties `type` and
        `data` then contains the schema of the data.
        """
        nodes, entries = self._nodes, yaml_entries(self._nodes.root)
        if not entries.keys() >= {"name", "schema"}:
            return
        is_flat = value_of(node_at(nodes.root, "wrapped")) is False
        self._check_wrapper(entries, is_flat=is_flat)
        key, schema = entries["schema"]
        properties = yaml_entries(node_at(schema, "properties"))
        if is_flat and properties.keys() >= {"type", "data"}:
            key, schema = properties["data"]
        self.start = self._position(key)
        if isinstance(value_of(schema), bool):  # the documented form is a mapping
            never = [(nodes.scalar("not"), nodes.mapping(()))]
            schema = nodes.mapping([] if value_of(schema) else never, schema)
        nodes.root = schema
        if not isinstance(schema, MappingNode):
            return
        self._set_draft(schema)
        if "description" in entries and value_of(entries["description"][1]):
            if "description" in yaml_entries(schema):
                self.dropped.append(nodes.pop(schema, "description"))
            nodes.put(schema, "description", entries["description"][1], at=entries["description"][0])

    def _check_wrapper(self, entries: dict[str, YamlEntry], *, is_flat: bool) -> None:
        self._note(entries["schema"][0], "older form: the schema is under `schema:`", "write the schema itself")
        key, name = entries["name"][0], value_of(entries["name"][1])
        if name != self._name:
            message, fix = f"`name` is `{name}`, but the file is `{self._name}.yaml`", f"write `name: {self._name}`"
            self.findings.append(self._finding(key, codes.WRONG_NAME, message, fix, "error"))
        if is_flat:
            message = "`wrapped: false` has no effect: an artifact always has `type` and `data`"
            self.findings.append(self._finding(entries["wrapped"][0], codes.OLDER_FORM, message, "remove `wrapped`"))
        for name in entries.keys() - {"name", "schema", "description", "wrapped"}:
            self._note(entries[name][0], f"unknown key `{name}` next to `schema`", code=codes.UNKNOWN_KEY)
            self.dropped.append(entries[name])

    def _set_draft(self, schema: Node) -> None:
        """Add the `$schema` of draft 7 to a schema that is valid as draft 7 alone."""
        value = self.value(schema, (), {})
        try:
            compile_schema(value)
        except SchemaInvalid:
            with suppress(SchemaInvalid):
                compile_schema({"$schema": DRAFT_7} | value)
                self._nodes.put(schema, "$schema", self._nodes.scalar(DRAFT_7))
