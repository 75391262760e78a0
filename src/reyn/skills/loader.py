"""Load a skill's folder into a `Skill` value, or report every error in it.

The loader checks front matter, resolves names, parses steps and follows their paths, loads sub-skills and checks the
graph. Rules that do not prevent a run are in `reyn.lint`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from reyn.documents import Document, KeyPath, Severity
from reyn.errors import Finding, SkillError, SkillInvalid, codes
from reyn.jsonschema import SchemaInvalid, compile_schema
from reyn.skills.allowed_ops import check_allowed_op, check_must, members, must_groups, unknown_op_fix
from reyn.skills.arrivals import with_error_types
from reyn.skills.artifacts import ANY_OBJECT, Artifacts
from reyn.skills.edges import without_model
from reyn.skills.flow import impossible_paths
from reyn.skills.folder import SkillFolder, is_inside_project
from reyn.skills.front_matter import (
    FORBIDDEN_IN_PHASE,
    PhaseFrontMatter,
    PostprocessorSection,
    SkillFrontMatter,
    invalid_step,
    parse_steps,
    read_front_matter,
)
from reyn.skills.graph import LoadResult
from reyn.skills.graph_reader import GraphReader
from reyn.skills.modules import Modules
from reyn.skills.names import is_valid_name, nfc
from reyn.skills.node_reader import NodeReader, mismatched_results
from reyn.skills.resolve import Library, ReadFiles, is_on_shelf
from reyn.skills.state import StateReader
from reyn.skills.state_fields import state_name
from reyn.skills.step_types import STEP_TYPES, AnyStep, Iterate, PythonCall, RunOp, RunSkill
from reyn.skills.values import USER_MESSAGE, ArtifactType, ConversationSettings, Phase, Postprocessor, Skill

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.jsonschema import Schema
    from reyn.skills.values import NodeSettings
    from reyn.vocabulary import Vocabulary

    Ancestors = tuple[tuple[Path, str], ...]
    """Folders and names of the skills that are being read around a skill."""

S = TypeVar("S", bound=msgspec.Struct)
_MAX_NESTING = 16


def load_skill(
    folder: Path,
    vocabulary: Vocabulary,
    library: Library | None = None,
    check: Callable[[LoadResult], list[Finding]] = attrgetter("findings"),
) -> Skill:
    """Load the skill in a folder; the same object again until its files change.

    Args:
        folder: The skill's folder.
        vocabulary: The known ops.
        library: Where sub-skills and shared files are found; by default, the project around the folder.
        check: Returns all findings about the skill; by default, those of the loader.

    Raises:
        SkillInvalid: the skill has errors; the exception holds all of them.
    """
    library = library or Library.around(folder)
    if (skill := library.unchanged(folder, vocabulary)) is None:
        result = read_skill(folder, vocabulary, library)
        errors = [finding for finding in check(result) if finding.severity == "error"]
        if errors or (skill := result.skill) is None:
            raise SkillInvalid(f"skill `{folder.name}` has errors:", errors)
        library.keep(folder, skill, vocabulary, result.folder.read_files)
    return skill


def read_skill(folder: Path, vocabulary: Vocabulary, library: Library | None = None) -> LoadResult:
    """Read the skill in a folder; unlike `load_skill`, return its findings instead of raising."""
    reader = _SkillReader(library or Library.around(folder), vocabulary)
    with reader.files:
        return reader.read(folder, ())


def read_shared(vocabulary: Vocabulary, library: Library) -> LoadResult:
    """Read the shared phases and artifacts of a project, whether or not a skill uses them."""
    reader = _SkillReader(library, vocabulary)
    with reader.files:
        loader = _Loader(reader, library.shared[0], ())
        listed = (name for _, _, folder in library for name in reader.files.names(folder, "artifacts"))
        in_skills = {nfc(name.removesuffix(".yaml")) for name in listed}
        loader.artifacts = Artifacts(loader.folder, in_skills)
        if is_inside_project(library.shared[0]):  # a skill that uses a link to elsewhere has a finding
            loader.check_files()
    return LoadResult(None, sorted(loader.folder.findings), loader.folder, loader.sub_skills)


class _SkillReader:
    """Reads skills of one library, each once, however many skills run it."""

    def __init__(self, library: Library, vocabulary: Vocabulary) -> None:
        self.library = library
        self.vocabulary = vocabulary
        self.files = ReadFiles(library.may_read)
        self._results: dict[Path, LoadResult] = {}

    def read(self, folder: Path, ancestors: Ancestors) -> LoadResult:
        path = folder.resolve()
        if path not in self._results:
            loader = _Loader(self, folder, ancestors)
            skill = loader.load()
            self._results[path] = LoadResult(skill, sorted(loader.folder.findings), loader.folder, loader.sub_skills)
        return self._results[path]


class _Loader:
    """Loads one folder and collects findings."""

    def __init__(self, reader: _SkillReader, folder: Path, ancestors: Ancestors) -> None:
        self.reader = reader
        self.vocabulary = reader.vocabulary
        self.folder = SkillFolder(folder, reader.library.shared, reader.vocabulary, reader.files)
        self.ancestors = (*ancestors, (folder.resolve(), folder.name))
        self.artifacts = Artifacts(self.folder)
        self.modules = Modules(self.folder)
        self.skills: dict[str, Skill | None] = {}
        self.sub_skills: dict[str, LoadResult] = {}
        self.front = SkillFrontMatter("skill", folder.name, "", "")
        self.graph = self._graph_reader(Document("skill.md", {}, {}), "", {})
        self.state: StateReader | None = None
        self._read_phases: set[str] = set()

    def _graph_reader(self, document: Document, entry: str, nodes: Mapping[str, NodeSettings]) -> GraphReader:
        load = partial(self._load_sub_skill, document)
        return GraphReader(document, entry, nodes, self.folder, self.artifacts, load)

    def load(self) -> Skill | None:
        skill = self._skill()
        if any(finding.severity == "error" for finding in self.folder.findings):
            self.check_files()  # an error may hide that a file is used
        return skill

    def check_files(self) -> None:
        """Check the phases and artifacts of the folder that were not read yet."""
        for file in self.folder.own_files("phases", ".md"):
            name = file.removeprefix("phases/").removesuffix(".md")
            if is_valid_name(name) and name not in self._read_phases:
                self._phase(name)
        for file in self.folder.own_files("artifacts", ".yaml"):
            name, document = file.removeprefix("artifacts/").removesuffix(".yaml"), self.folder.read(file)
            if is_valid_name(name) and document is not None:
                self.artifacts.get(document, name)

    def _skill(self) -> Skill | None:
        document = self.folder.read("skill.md")
        front = self._front_matter(document, SkillFrontMatter)
        if document is None or front is None:
            return None
        self.document, self.front, self._report = document, front, partial(self.folder.report, document)
        self.graph = self._graph_reader(document, front.entry, front.nodes)
        self.ancestors = (*self.ancestors[:-1], (self.folder.path.resolve(), front.name))
        self._check_names()
        graph = self.graph.reached()
        nodes = NodeReader(document, front.nodes, self.folder, self.artifacts).read(
            self._load_sub_skill, self._result_type, lambda node: self.graph.edges_of(node).targets
        )
        state = self.state = StateReader(document, front.state, self.folder, self.artifacts)
        names = filter(self.graph.has_file, dict.fromkeys((*graph, *nodes.phases)))
        phases = {name: phase for name in names if (phase := self._phase(name))}
        final_output = self.artifacts.get(document, front.final_output, "final_output")
        postprocessor = self._postprocessor(final_output)
        fields = msgspec.structs.asdict(front)
        del fields["type"], fields["routing"], fields["model_class"]  # the phases have it
        skill = Skill(
            **fields
            | self.graph.parts(graph)
            | {
                "phases": phases,
                "state": state.fields,
                "types": state.types | nodes.types,
                "final_output": final_output or ANY_OBJECT,
                "postprocessor": postprocessor,
                "skills": self._all_skills(),
                "modules": self.modules.sources(),
            }
        )
        skill = with_error_types(self.graph.with_inferred_phases(skill))
        self.graph.check_dead_ends(graph, skill.phases)
        skill = nodes.with_checks(skill, self._steps, self.modules.sources)
        for node, message in mismatched_results(skill):
            self._report(codes.TYPE_MISMATCH, message, "graph", node)
        return skill

    def _all_skills(self) -> dict[str, Skill]:
        """Return every sub-skill, direct or indirect, in one flat table."""
        table: dict[str, Skill] = {}
        for name, skill in self.skills.items():
            if skill is not None:
                table |= {**skill.skills, name: msgspec.structs.replace(skill, skills={})}
        return dict(sorted(table.items()))

    # -- graph ----------------------------------------------------------------------------------------

    def _check_names(self) -> None:
        if not is_valid_name(self.front.name):
            fix = "start with a letter, then use letters, digits, `_` and `-`"
            self._report(codes.WRONG_NAME, f"invalid skill name `{self.front.name}`", "name", fix=fix)
        else:
            self._check_folder_name()
        self.folder.check_names()
        self.artifacts.check_built_in()

    def _check_folder_name(self) -> None:
        """Report a name that differs from the folder, by which the skill is found: rules of the operator name it."""
        folder, is_found = self.folder.path, is_on_shelf(self.folder.path)
        name = nfc((folder if is_found else folder.resolve()).name)
        if self.front.name != name:
            severity: Severity = "error" if is_found else "warning"
            message = f"`name` is `{self.front.name}`, but the folder is `{name}`"
            fix = "rename one of them; a skill is found by the name of its folder"
            self._report(codes.WRONG_NAME, message, "name", fix=fix, severity=severity)

    # -- phases ---------------------------------------------------------------------------------------

    def _phase(self, name: str) -> Phase | None:
        file = f"phases/{name}.md"
        self._read_phases.add(name)
        if not is_valid_name(name) or not self.folder.exists(file):
            self.graph.report_unknown_phase(name)
            return None
        document = self.folder.read(file)
        front = self._front_matter(document, PhaseFrontMatter, FORBIDDEN_IN_PHASE)
        if document is None or front is None:
            return None
        if front.name != name:
            message = f"`name` is `{front.name}`, but the file is `{file}`"
            self.folder.report(document, codes.WRONG_NAME, message, "name", fix=f"write `name: {name}`")
        if self.graph.calls_no_model(name):
            self.folder.findings += without_model(document, name, has_rules=self.graph.has_rules(name))
        elif not document.body.strip() and not self.graph.may_call_no_model(name):
            fix = "write them below the front matter"
            self.folder.report(document, codes.MISSING_KEY, "the phase has no instructions", fix=fix)
        for index, kind in enumerate(front.allowed_ops):
            found = check_allowed_op(document, index, kind, self.vocabulary, is_conversation=bool(front.conversation))
            self.folder.findings += [found] if found is not None else []
        self.folder.findings += check_must(document, front, self.vocabulary)
        allowed = [member for kind in front.allowed_ops for member in members(kind, self.vocabulary)]
        inputs = [self.artifacts.get(document, part.strip(), "input") for part in front.input.split("|")]
        known = [artifact for artifact in inputs if artifact is not None]
        known += [ANY_OBJECT] if len(known) < len(inputs) else []
        for index, read in enumerate(front.reads):
            if state_name(read):
                self._check_state_read(document, read, "reads", index)
            else:
                self.artifacts.get(document, read, "reads", index)
        steps = self._steps(document, ("preprocessor",), front.preprocessor, known)
        fields = msgspec.structs.asdict(front)
        del fields["type"], fields["input"]
        fields |= {"inputs": tuple(known), "instructions": document.body, "preprocessor": steps}
        fields["conversation"] = ConversationSettings() if front.conversation is True else front.conversation or None
        fields["model_class"] = front.model_class or self.front.model_class
        if fields["conversation"] is not None and USER_MESSAGE not in known:
            message = f"a conversation needs `user_message` in `input`, which is `{front.input}`"
            self.folder.report(document, codes.TYPE_MISMATCH, message, "input", fix="add `user_message` to `input`")
        ops = () if self.graph.calls_no_model(name) else tuple(dict.fromkeys(allowed))
        fields |= {"reads": tuple(dict.fromkeys(front.reads)), "allowed_ops": ops}
        return Phase(**fields | {"must": must_groups(front.must, self.vocabulary)})

    # -- steps ----------------------------------------------------------------------------------------

    def _steps(
        self,
        document: Document,
        path: KeyPath,
        raw: Sequence[Any],
        inputs: Sequence[ArtifactType],
        local: Schema | None = None,
    ) -> tuple[AnyStep, ...]:
        if not raw:
            return ()
        part = document.part(*path)
        parsed, findings = parse_steps(part)
        self.folder.findings += findings
        for index, step in parsed.items():
            self._check_step(part, index, step)
        # A step with errors of its own may bind any value at its `into`.
        steps = [parsed.get(index) or invalid_step(one) for index, one in enumerate(part.value)]
        state = self.state.schema if self.state is not None else True
        for error in impossible_paths(inputs, steps, self._result_type, state, local):
            kind = next(iter(part.value[error.step]))
            self.folder.report(part, codes.UNKNOWN_PATH, error.message, error.step, kind, *error.key)
        return tuple(parsed.values())

    def _result_type(self, name: str) -> ArtifactType | None:
        skill = self.skills.get(name)
        return skill.result if skill else None

    def _check_step(self, part: Document, index: int, step: AnyStep) -> None:
        match step.apply if isinstance(step, Iterate) else step:
            case RunSkill(skill=name):
                self._load_sub_skill(part, name, index)
            case RunOp() as applied:
                self._check_op_step(part, index, applied)
            case PythonCall() as applied:
                self.modules.check(part, index, applied)
                for number, name in enumerate(applied.reads):
                    self._check_state_read(part, name, index, next(iter(part.value[index])), "reads", number)

    def _check_state_read(self, document: Document, name: str, *path: str | int) -> None:
        if self.state is not None:  # files of a project are also checked without a skill
            self.state.check_read(document, name, *path)

    def _check_op_step(self, part: Document, index: int, step: RunOp) -> None:
        kind = step.op.get("kind")
        spec = self.vocabulary.op(kind) if isinstance(kind, str) else None
        if spec is None:
            fix = unknown_op_fix(str(kind), self.vocabulary.op_kinds)
            self.folder.report(part, codes.UNKNOWN_OP, f"unknown op `{kind}`", index, fix=fix)
            return
        if not spec.is_step:
            is_own = kind in STEP_TYPES
            fix = f"write `- {kind}: {{…}}`" if is_own else f"allow `{kind}` in a phase instead"
            self.folder.report(part, codes.BAD_STEP, f"`run_op` cannot execute `{kind}`", index, fix=fix)
        name = step.op.get(spec.skill_field) if spec.skill_field else None
        if isinstance(name, str) and spec.skill_field not in step.args_from:
            self._load_sub_skill(part, name, index)

    def _postprocessor(self, final_output: ArtifactType | None) -> Postprocessor | None:
        if self.front.postprocessor is None:
            return None
        part = self.document.part("postprocessor")
        section = self._front_matter(part, PostprocessorSection)
        # The steps are checked even if the section has other errors.
        raw = part.value.get("steps")
        inputs = [final_output] if final_output else []
        steps = self._steps(part, ("steps",), raw, inputs) if isinstance(raw, list) else ()
        output = self._postprocessor_output(part, section) if section else None
        return Postprocessor(output or ANY_OBJECT, steps)

    def _postprocessor_output(self, part: Document, section: PostprocessorSection) -> ArtifactType | None:
        if isinstance(section.output_schema, str):
            return self.artifacts.get(part, section.output_schema, "output_schema")
        try:
            compile_schema(section.output_schema)
        except SchemaInvalid as error:
            message = f"invalid JSON Schema: {error}"
            self.folder.report(part, error.code, message, "output_schema", *error.place)
            return None
        name = section.output_name or f"{self.front.name}_result"
        return ArtifactType(name, section.output_schema, section.output_description)

    # -- sub-skills -----------------------------------------------------------------------------------

    def _load_sub_skill(self, document: Document, name: str, *path: str | int) -> None:
        if name in self.skills:
            return
        self.skills[name] = None
        try:
            folder = self.reader.files.skills[name] = self.reader.library.find_named(name)
            cycle_start = next((n for n, (known, _) in enumerate(self.ancestors) if known == folder.resolve()), None)
            if cycle_start is not None or len(self.ancestors) >= _MAX_NESTING:
                names = [known for _, known in self.ancestors[cycle_start or 0 :]]
                cycle_text = f"skills run each other in a cycle: {' → '.join([*names, names[0]])}"
                deep_text = f"sub-skills are nested more than {_MAX_NESTING} deep"
                message = deep_text if cycle_start is None else cycle_text
                self.folder.report(document, codes.SKILL_CYCLE, message, *path)
                return
            result = self.reader.read(folder, self.ancestors)
        except SkillError as error:
            code = SkillError.code if error.code == "RYN000" else error.code
            self.folder.report(document, code, error.message, *path)
            return
        self.skills[name], self.sub_skills[name] = result.skill, result
        if errors := result.errors:
            cycle = next((finding for finding in errors if finding.code == codes.SKILL_CYCLE), None)
            code = codes.SKILL_CYCLE if cycle else SkillInvalid.code
            count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
            message = cycle.message if cycle else f"skill `{name}` has {count}"
            self.folder.report(document, code, message, *path, fix=f"fix the skill `{name}` first")

    # -- front matter and findings --------------------------------------------------------------------

    def _front_matter(self, document: Document | None, shape: type[S], forbidden: Mapping[str, str] = {}) -> S | None:
        """Check front matter against its struct; return its valid keys, or `None` if a required one is invalid."""
        if document is None:
            return None
        front, findings = read_front_matter(document, shape, forbidden)
        self.folder.findings += findings
        return front
