"""Load a skill's folder into a `Skill` value, or report every error in it.

The loader checks front matter, resolves names, parses steps and follows their paths, loads sub-skills and checks the
graph. Rules that do not prevent a run are in `reyn.lint`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from reyn.documents import nearest
from reyn.errors import Finding, SkillError, SkillInvalid, codes
from reyn.jsonschema import SchemaInvalid, compile_schema
from reyn.skills.artifacts import ANY_OBJECT, Artifacts
from reyn.skills.flow import enrich
from reyn.skills.folder import SkillFolder
from reyn.skills.front_matter import (
    FORBIDDEN_IN_PHASE,
    PhaseFrontMatter,
    PostprocessorSection,
    SkillFrontMatter,
    invalid_step_target,
    parse_steps,
    read_front_matter,
)
from reyn.skills.graph import dead_ends, reachable
from reyn.skills.modules import Modules
from reyn.skills.names import is_reserved_phase_name, is_valid_name, is_valid_skill_node
from reyn.skills.resolve import Library
from reyn.skills.values import (
    ABORT,
    END,
    USER_MESSAGE,
    ArtifactType,
    ConversationSettings,
    Iterate,
    Phase,
    Postprocessor,
    PythonCall,
    RunOp,
    RunSkill,
    Skill,
    is_skill_node,
    skill_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from reyn.documents import Document, KeyPath, Severity
    from reyn.skills.values import AnyStep
    from reyn.vocabulary import Vocabulary

UNKNOWN_OP_FIX = "correct the name, or install the package that provides the op"

S = TypeVar("S", bound=msgspec.Struct)
_MAX_NESTING = 16


class LoadResult(NamedTuple):
    """The result of reading a skill's folder.

    Attributes:
        skill: The skill; `None` if there are errors.
        partial: The parts of the skill that could be read, for rules that run despite errors.
        findings: Every error and warning, sorted by position.
        folder: The skill's parsed files.
    """

    skill: Skill | None
    partial: Skill | None
    findings: list[Finding]
    folder: SkillFolder

    def document(self, phase: str | None = None) -> Document:
        """Return the front matter of `skill.md`, or of a phase that `partial` has."""
        document = self.folder.read("skill.md" if phase is None else f"phases/{phase}.md")
        assert document is not None
        return document


def load_skill(folder: Path, vocabulary: Vocabulary, library: Library | None = None) -> Skill:
    """Load the skill in a folder.

    Raises:
        SkillInvalid: the skill has errors; the exception holds all of them.
    """
    result = read_skill(folder, vocabulary, library)
    errors = [finding for finding in result.findings if finding.severity == "error"]
    if result.skill is None or errors:
        raise SkillInvalid(f"skill `{folder.name}` has errors:", errors)
    return result.skill


def read_skill(folder: Path, vocabulary: Vocabulary, library: Library | None = None) -> LoadResult:
    """Read the skill in a folder; unlike `load_skill`, return its findings instead of raising."""
    return _read(folder, library or Library.around(folder), vocabulary, (), {})


def _read(
    folder: Path,
    library: Library,
    vocabulary: Vocabulary,
    ancestors: tuple[tuple[Path, str], ...],
    cache: dict[Path, LoadResult],
) -> LoadResult:
    """Read a folder once, however many skills run it; `ancestors` are the skills that are being read around it."""
    path = folder.resolve()
    if path not in cache:
        loader = _Loader(folder, library, vocabulary, ancestors, cache)
        partial = loader.load()
        has_errors = any(finding.severity == "error" for finding in loader.findings)
        cache[path] = LoadResult(None if has_errors else partial, partial, sorted(loader.findings), loader.folder)
    return cache[path]


class _Loader:
    """Loads one folder and collects findings."""

    def __init__(
        self,
        folder: Path,
        library: Library,
        vocabulary: Vocabulary,
        ancestors: tuple[tuple[Path, str], ...],
        cache: dict[Path, LoadResult],
    ) -> None:
        self.cache = cache
        self.folder = SkillFolder(folder, library.shared, vocabulary)
        self.library = library
        self.vocabulary = vocabulary
        self.ancestors = ancestors
        self.own_findings: list[Finding] = []
        self.artifacts = Artifacts(self.folder, self._report)
        self.skills: dict[str, Skill | None] = {}
        self.modules = Modules(self.folder, self._report)

    @property
    def findings(self) -> list[Finding]:
        return [*self.folder.findings, *self.own_findings]

    def load(self) -> Skill | None:
        document = self.folder.read("skill.md")
        front = self._front_matter(document, SkillFrontMatter)
        if document is None or front is None:
            return None
        self.ancestors = (*self.ancestors, (self.folder.path.resolve(), front.name))
        self._check_names(document, front)
        graph = self._graph(document, front)
        texts = {
            node: found
            for node in graph
            if isinstance(edges := front.graph.get(node), dict)
            and (found := {target: text.strip() for target, text in edges.items() if text and text.strip()})
        }
        phases = {
            name: phase for name in graph if not is_skill_node(name) and (phase := self._phase(document, front, name))
        }
        final_output = self.artifacts.get(document, front.final_output, "final_output")
        postprocessor = self._postprocessor(document, front, final_output)
        self._check_dead_ends(document, graph, phases)
        fields = msgspec.structs.asdict(front)
        del fields["type"], fields["routing"], fields["model_class"]  # the phases have it
        skill = Skill(
            **fields
            | {
                "graph": graph,
                "edge_texts": texts,
                "phases": phases,
                "final_output": final_output or ANY_OBJECT,
                "postprocessor": postprocessor,
                "skills": self._all_skills(),
                "modules": self.modules.sources(),
            }
        )
        self._check_sub_skill_types(document, skill)
        return skill

    def _all_skills(self) -> dict[str, Skill]:
        """Return every sub-skill, direct or indirect, in one flat table."""
        table: dict[str, Skill] = {}
        for name, skill in self.skills.items():
            if skill is not None:
                table |= {**skill.skills, name: msgspec.structs.replace(skill, skills={})}
        return dict(sorted(table.items()))

    # -- graph ----------------------------------------------------------------------------------------

    def _check_names(self, document: Document, front: SkillFrontMatter) -> None:
        if not is_valid_name(front.name):
            message = f"invalid skill name `{front.name}`"
            fix = "start with a letter, then use letters, digits, `_` and `-`"
            self._report(document, codes.WRONG_NAME, message, "name", fix=fix)
        self.folder.check_names()
        self.artifacts.check_user_message()

    def _graph(self, document: Document, front: SkillFrontMatter) -> dict[str, tuple[str, ...]]:
        """Return the part of the graph that the entry reaches; report every node that does not exist."""
        if END in front.graph:
            self._report(document, codes.WRONG_NAME, "`end` is not a phase", "graph", END, fix="remove this key")
        self._check_reserved_names(document, front)
        nodes = reachable(front.graph, front.entry)
        named = {*front.graph, *(name for targets in front.graph.values() for name in targets)}
        for name in sorted(named - {END, *nodes}):
            if not is_skill_node(name) and not (is_valid_name(name) and self.folder.exists(f"phases/{name}.md")):
                self._report_unknown_phase(document, front, name)
        for name in nodes:
            if is_skill_node(name):
                self._check_skill_node(document, front, name)
        return {name: tuple(dict.fromkeys(front.graph.get(name, ()))) or (END,) for name in nodes}

    def _check_reserved_names(self, document: Document, front: SkillFrontMatter) -> None:
        """Report phases that are named as one of the choices that every phase has."""
        fix = f"rename the phase; `{END}` and `{ABORT}` are choices of every phase"
        for file in self.folder.own_files("phases", ".md"):
            name = file.removeprefix("phases/").removesuffix(".md")
            phase = self.folder.read(file) if is_reserved_phase_name(name) else None
            if phase is not None:
                self._report(phase, codes.RESERVED_NAME, f"a phase cannot be named `{name}`", "name", fix=fix)
        named = {front.entry, *front.graph, *(name for targets in front.graph.values() for name in targets)} - {END}
        for name in sorted(filter(is_reserved_phase_name, named)):
            path = self._path_of_node(front, name)
            self._report(document, codes.RESERVED_NAME, f"a phase cannot be named `{name}`", *path, fix=fix)

    def _check_skill_node(self, document: Document, front: SkillFrontMatter, node: str) -> None:
        path = self._path_of_node(front, node)
        if not is_valid_skill_node(node):
            fix = "write `@skill`, `@skill[isolated]` or `@skill[shared]`"
            self._report(document, codes.WRONG_NAME, f"invalid sub-skill node `{node}`", *path, fix=fix)
            return
        self._load_sub_skill(document, skill_of(node), *path)
        if len(set(front.graph.get(node, ()))) > 1:
            message = f"sub-skill node `{node}` has several successors, but no model chooses between them"
            self._report(document, codes.TYPE_MISMATCH, message, "graph", node, fix="keep one successor")

    def _check_dead_ends(self, document: Document, graph: dict[str, tuple[str, ...]], phases: dict[str, Phase]) -> None:
        if any(name not in phases for name in graph if not is_skill_node(name)):
            return
        finishing = [
            name
            for name, to in graph.items()
            if not to
            or END in to
            or (name in phases and phases[name].can_finish)
            # The user ends a conversation that follows itself, by saying nothing more.
            or (name in to and name in phases and phases[name].conversation is not None)
        ]
        for name in dead_ends(graph, graph, finishing):
            message = f"phase `{name}` cannot reach `end`"
            self._report(document, codes.DEAD_END, message, "graph", name, fix="add `end` to one of its successors")

    def _check_sub_skill_types(self, document: Document, skill: Skill) -> None:
        """Check that the result of every sub-skill node is an input of its successor; no model converts it."""
        for node, targets in skill.graph.items():
            if not is_skill_node(node) or skill_of(node) not in skill.skills:
                continue
            result = skill.skills[skill_of(node)].result
            for target in targets:
                if target not in skill.phases and not is_skill_node(target) and target != END:
                    continue
                if is_skill_node(target) and skill_of(target) not in skill.skills:
                    continue
                accepted = (skill.final_output,) if target == END else skill.inputs_of(target)
                if not any(
                    (result.name, result.schema) == (artifact_type.name, artifact_type.schema)
                    for artifact_type in accepted
                ):
                    names = " | ".join(artifact_type.name for artifact_type in accepted)
                    message = f"`{node}` returns `{result.name}`, but `{target}` takes `{names}`"
                    self._report(document, codes.TYPE_MISMATCH, message, "graph", node)

    # -- phases ---------------------------------------------------------------------------------------

    def _phase(self, skill: Document, skill_front: SkillFrontMatter, name: str) -> Phase | None:
        file = f"phases/{name}.md"
        if not is_valid_name(name) or not self.folder.exists(file):
            self._report_unknown_phase(skill, skill_front, name)
            return None
        document = self.folder.read(file)
        front = self._front_matter(document, PhaseFrontMatter, FORBIDDEN_IN_PHASE)
        if document is None or front is None:
            return None
        if front.name != name:
            message = f"`name` is `{front.name}`, but the file is `{file}`"
            self._report(document, codes.WRONG_NAME, message, "name", fix=f"write `name: {name}`")
        if not document.body.strip():
            fix = "write them below the front matter"
            self._report(document, codes.MISSING_KEY, "the phase has no instructions", fix=fix)
        for index, kind in enumerate(front.allowed_ops):
            self._check_allowed_op(document, index, kind, is_conversation=bool(front.conversation))
        allowed = [member for kind in front.allowed_ops for member in self._members(kind)]
        inputs = [self.artifacts.get(document, part.strip(), "input") for part in front.input.split("|")]
        known = [artifact for artifact in inputs if artifact is not None]
        for index, read in enumerate(front.reads):
            self.artifacts.get(document, read, "reads", index)
        steps = self._steps(document, ("preprocessor",), front.preprocessor, known)
        if len(known) < len(inputs):
            return None
        fields = msgspec.structs.asdict(front)
        del fields["type"], fields["input"]
        fields |= {"inputs": tuple(known), "instructions": document.body, "preprocessor": steps}
        fields["conversation"] = _conversation(front.conversation)
        fields["model_class"] = front.model_class or skill_front.model_class
        if fields["conversation"] is not None and USER_MESSAGE not in known:
            message = f"a conversation needs `user_message` in `input`, which is `{front.input}`"
            self._report(document, codes.TYPE_MISMATCH, message, "input", fix="add `user_message` to `input`")
        fields |= {"reads": tuple(dict.fromkeys(front.reads)), "allowed_ops": tuple(dict.fromkeys(allowed))}
        return Phase(**fields)

    def _members(self, kind: str) -> list[str]:
        """Return the op kinds that a name stands for: `mcp:files/*` is every tool of the server `files`."""
        if not kind.endswith("/*"):
            return [kind]
        return sorted(known for known in self.vocabulary.op_kinds if known.startswith(kind[:-1]))

    def _check_allowed_op(self, document: Document, index: int, kind: str, *, is_conversation: bool) -> None:
        path = ("allowed_ops", index)
        if kind.endswith("/*") and self._members(kind):
            return
        spec = self.vocabulary.op(kind)
        if spec is None:
            fix = nearest(kind, self.vocabulary.op_kinds)
            if kind.startswith("mcp:") and not fix:
                fix = "add the MCP server to the configuration and accept its tools"
            self._report(document, codes.UNKNOWN_OP, f"unknown op `{kind}`", *path, fix=fix or UNKNOWN_OP_FIX)
        elif not self.vocabulary.is_offered(kind):
            fix = f"write a step: `- {kind}: {{…}}`"
            self._report(document, codes.UNKNOWN_OP, f"no phase can allow `{kind}`", *path, fix=fix)
        elif self.vocabulary.is_reserved(kind):
            message = f"op `{kind}` is reserved for a later version; Reyn does not offer it to the model"
            self._report(document, codes.UNSUPPORTED, message, *path, severity="warning")
        elif spec.is_for_conversations and not is_conversation:
            message = f"op `{kind}` changes the memory of a conversation, but the phase is not one"
            self._report(document, codes.CONVERSATION_OP, message, *path, fix="set `conversation: true`, or remove it")

    def _report_unknown_phase(self, skill: Document, front: SkillFrontMatter, name: str) -> None:
        fix = nearest(name, [known for known in self.folder.names("phases", ".md") if known != name])
        message = f"unknown phase `{name}`: no file `phases/{name}.md`"
        self._report(skill, codes.UNKNOWN_PHASE, message, *self._path_of_node(front, name), fix=fix)

    @staticmethod
    def _path_of_node(front: SkillFrontMatter, node: str) -> KeyPath:
        """Return the path in skill.md that names a node."""
        for source, targets in front.graph.items():
            if node in targets:
                return ("graph", source, node if isinstance(targets, dict) else targets.index(node))
        return ("graph", node) if node in front.graph else ("entry",)

    # -- steps ----------------------------------------------------------------------------------------

    def _steps(
        self, document: Document, path: KeyPath, raw: Sequence[Any], inputs: Sequence[ArtifactType]
    ) -> tuple[AnyStep, ...]:
        if not raw:
            return ()
        part = document.part(*path)
        parsed, findings = parse_steps(part)
        self.own_findings += findings
        for index, step in parsed.items():
            self._check_step(part, index, step)
        if inputs:
            self._check_paths(part, parsed, inputs)
        return tuple(parsed.values())

    def _check_step(self, part: Document, index: int, step: AnyStep) -> None:
        inner = step.apply if isinstance(step, Iterate) else step
        if isinstance(inner, RunSkill):
            self._load_sub_skill(part, inner.skill, index)
        if isinstance(inner, RunOp):
            self._check_op_step(part, index, inner)
        if isinstance(inner, PythonCall):
            self.modules.check(part, index, inner)

    def _check_op_step(self, part: Document, index: int, step: RunOp) -> None:
        kind = step.op.get("kind")
        spec = self.vocabulary.op(kind) if isinstance(kind, str) else None
        if spec is None:
            fix = nearest(str(kind), self.vocabulary.op_kinds) or UNKNOWN_OP_FIX
            self._report(part, codes.UNKNOWN_OP, f"unknown op `{kind}`", index, fix=fix)
            return
        if not spec.is_step:
            is_own = kind in self.vocabulary.step_kinds
            fix = f"write `- {kind}: {{…}}`" if is_own else f"allow `{kind}` in a phase instead"
            self._report(part, codes.BAD_STEP, f"`run_op` cannot execute `{kind}`", index, fix=fix)
        name = step.op.get(spec.skill_field) if spec.skill_field else None
        if isinstance(name, str) and spec.skill_field not in step.args_from:
            self._load_sub_skill(part, name, index)

    def _check_paths(self, part: Document, steps: Mapping[int, AnyStep], inputs: Sequence[ArtifactType]) -> None:
        """Report paths that exist for no member of the input union.

        A step with errors of its own may bind any value at its `into`. If that is unreadable, the steps after it are
        not checked.
        """
        checkable: list[AnyStep] = []
        for index, raw in enumerate(part.value):
            if index in steps:
                checkable.append(steps[index])
            elif (into := invalid_step_target(raw)) is not None:
                checkable.append(PythonCall(module="", function="", into=into))
            else:
                break
        errors = [set(enrich(artifact, checkable, self._result_type)[1]) for artifact in inputs]
        for error in sorted(set.intersection(*errors)):
            kind = next(iter(part.value[error.step]))
            self._report(part, codes.UNKNOWN_PATH, error.message, error.step, kind, *error.key)

    def _result_type(self, name: str) -> ArtifactType | None:
        skill = self.skills.get(name)
        return skill.result if skill else None

    def _postprocessor(
        self, document: Document, front: SkillFrontMatter, final_output: ArtifactType | None
    ) -> Postprocessor | None:
        if front.postprocessor is None:
            return None
        part = document.part("postprocessor")
        section = self._front_matter(part, PostprocessorSection)
        # The steps are checked even if the section has other errors.
        raw = part.value.get("steps")
        inputs = [final_output] if final_output else []
        steps = self._steps(part, ("steps",), raw, inputs) if isinstance(raw, list) else ()
        output = self._postprocessor_output(part, front, section) if section else None
        return Postprocessor(output or ANY_OBJECT, steps)

    def _postprocessor_output(
        self, part: Document, front: SkillFrontMatter, section: PostprocessorSection
    ) -> ArtifactType | None:
        if isinstance(section.output_schema, str):
            return self.artifacts.get(part, section.output_schema, "output_schema")
        try:
            compile_schema(section.output_schema)
        except SchemaInvalid as error:
            message = f"invalid JSON Schema: {error}"
            self._report(part, error.code, message, "output_schema", *error.place)
            return None
        name = section.output_name or f"{front.name}_post"
        return ArtifactType(name, section.output_schema, section.output_description)

    # -- sub-skills -----------------------------------------------------------------------------------

    def _load_sub_skill(self, document: Document, name: str, *path: str | int) -> None:
        if name in self.skills:
            return
        self.skills[name] = None
        try:
            folder = self.library.find(name)
            cycle_start = next((n for n, (known, _) in enumerate(self.ancestors) if known == folder.resolve()), None)
            if cycle_start is not None:
                names = [known for _, known in self.ancestors[cycle_start:]]
                message = f"skills run each other in a cycle: {' → '.join([*names, names[0]])}"
                self._report(document, codes.SKILL_CYCLE, message, *path)
                return
            if len(self.ancestors) >= _MAX_NESTING:
                message = f"sub-skills are nested more than {_MAX_NESTING} deep"
                self._report(document, codes.SKILL_CYCLE, message, *path)
                return
            result = _read(folder, self.library, self.vocabulary, self.ancestors, self.cache)
        except SkillError as error:
            self._report(document, SkillError.code if error.code == "RYN000" else error.code, error.message, *path)
            return
        self.skills[name] = result.skill
        errors = [finding for finding in result.findings if finding.severity == "error"]
        if errors:
            cycle = next((finding for finding in errors if finding.code == codes.SKILL_CYCLE), None)
            code = codes.SKILL_CYCLE if cycle else SkillInvalid.code
            count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
            message = cycle.message if cycle else f"skill `{name}` has {count}"
            self._report(document, code, message, *path, fix=f"fix the skill `{name}` first")

    # -- front matter and findings --------------------------------------------------------------------

    def _front_matter(self, document: Document | None, shape: type[S], forbidden: Mapping[str, str] = {}) -> S | None:
        """Check front matter against its struct; return its valid keys, or `None` if a required one is invalid."""
        if document is None:
            return None
        front, findings = read_front_matter(document, shape, forbidden)
        self.own_findings += findings
        return front

    def _report(
        self,
        document: Document,
        code: str,
        message: str,
        *path: str | int,
        fix: str = "",
        severity: Severity = "error",
    ) -> None:
        self.own_findings.append(document.finding(code, message, *path, fix=fix, severity=severity))


def _conversation(value: bool | ConversationSettings) -> ConversationSettings | None:
    if isinstance(value, ConversationSettings):
        return value
    return ConversationSettings() if value else None
