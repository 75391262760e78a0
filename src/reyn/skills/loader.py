"""A skill's folder becomes a `Skill`, or every error in it at once.

Front matter is checked key by key against the shapes in `fronts`; names are resolved; steps become values and their
paths are followed; skills that it runs are loaded and must fit; then the graph is checked as a whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from reyn.documents import check_keys, nearest, usable_keys
from reyn.errors import Finding, SkillError, SkillInvalid
from reyn.jsonschema import SchemaInvalid, compile_schema
from reyn.skills import codes
from reyn.skills.artifacts import ANY_OBJECT, Artifacts
from reyn.skills.flow import enrich
from reyn.skills.folder import SkillFolder
from reyn.skills.fronts import FORBIDDEN_IN_PHASE, PhaseFront, PostprocessorFront, SkillFront
from reyn.skills.graph import dead_ends, reachable
from reyn.skills.modules import Modules
from reyn.skills.names import is_usable_name
from reyn.skills.resolve import Library
from reyn.skills.steps import parse_steps
from reyn.skills.values import (
    END,
    USER_MESSAGE,
    ArtifactType,
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
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from reyn.documents import Document, Place
    from reyn.skills.values import AnyStep
    from reyn.vocabulary import Vocabulary

F = TypeVar("F", bound=msgspec.Struct)
_NODE = re.compile(r"@[a-zA-Z][a-zA-Z0-9_-]{0,63}(\[(isolated|shared)\])?")
_MOST_NESTED = 16


class Reading(NamedTuple):
    """What came of reading a folder: the skill, if it is sound; what of it could be read in any case; and everything
    that is to be said about it."""

    skill: Skill | None
    draft: Skill | None
    findings: list[Finding]
    folder: SkillFolder


def load_skill(folder: Path, vocabulary: Vocabulary, library: Library | None = None) -> Skill:
    """The skill in `folder`; errors are raised all at once, warnings are passed over."""
    reading = read_skill(folder, vocabulary, library)
    errors = [finding for finding in reading.findings if finding.severity == "error"]
    if reading.skill is None or errors:
        raise SkillInvalid(f"skill `{folder.name}` has errors:", errors)
    return reading.skill


def read_skill(folder: Path, vocabulary: Vocabulary, library: Library | None = None) -> Reading:
    """Like `load_skill`, but tells instead of raising."""
    return _read(folder, library or Library.around(folder), vocabulary, (), {})


def _read(
    folder: Path,
    library: Library,
    vocabulary: Vocabulary,
    above: tuple[tuple[Path, str], ...],
    done: dict[Path, Reading],
) -> Reading:
    """Each folder is read once, however many skills run it. `above` are the ones that are being read around it."""
    place = folder.resolve()
    if place not in done:
        loader = _Loader(folder, library, vocabulary, above, done)
        draft = loader.load()
        errors = any(finding.severity == "error" for finding in loader.findings)
        done[place] = Reading(None if errors else draft, draft, sorted(loader.findings), loader.folder)
    return done[place]


class _Loader:
    """Gathers findings while it reads."""

    def __init__(
        self,
        folder: Path,
        library: Library,
        vocabulary: Vocabulary,
        above: tuple[tuple[Path, str], ...],
        done: dict[Path, Reading],
    ) -> None:
        self.done = done
        self.unsafe: set[tuple[Any, Any]] = set()
        self.folder = SkillFolder(folder, library.shared)
        self.library = library
        self.vocabulary = vocabulary
        self.above = above
        self.own_findings: list[Finding] = []
        self.artifacts = Artifacts(self.folder, self._add)
        self.skills: dict[str, Skill | None] = {}
        self.modules = Modules(self.folder, self._add)

    @property
    def findings(self) -> list[Finding]:
        return [*self.folder.findings, *self.own_findings]

    def load(self) -> Skill | None:
        document = self.folder.front("skill.md")
        front = self._front(document, SkillFront)
        if document is None or front is None:
            return None
        self.above = (*self.above, (self.folder.path.resolve(), front.name))
        self.unsafe = set(_unsafe_calls(front.permissions))
        self._check_file_names(document, front)
        graph = self._clean_graph(document, front)
        phases = {
            name: phase for name in graph if not is_skill_node(name) and (phase := self._phase(document, front, name))
        }
        final_output = self.artifacts.get(document, front.final_output, "final_output")
        after = self._postprocessor(document, front, final_output)
        self._check_ends(document, graph, phases)
        ours = msgspec.structs.asdict(front)
        del ours["type"], ours["routing"]
        skill = Skill(
            **ours
            | {
                "graph": graph,
                "phases": phases,
                "final_output": final_output or ANY_OBJECT,
                "postprocessor": after,
                "skills": self._flat_skills(),
                "modules": self.modules.all(),
            }
        )
        self._check_fit(document, skill)
        return skill

    def _flat_skills(self) -> dict[str, Skill]:
        """Every skill that is run from here, directly or not, once."""
        flat: dict[str, Skill] = {}
        for name, skill in self.skills.items():
            if skill is not None:
                flat |= {**skill.skills, name: msgspec.structs.replace(skill, skills={})}
        return dict(sorted(flat.items()))

    # -- the graph ------------------------------------------------------------------------------------

    def _check_file_names(self, document: Document, front: SkillFront) -> None:
        if not is_usable_name(front.name):
            message = f"`{front.name}` is not a usable name"
            self._add(document, codes.WRONG_NAME, message, "name", fix="Use letters, digits, `_` and `-`.")
        self.folder.check_names()
        own = self.folder.artifact(f"artifacts/{USER_MESSAGE.name}.yaml") if self._has_own_user_message() else None
        if own is not None:
            message = f"`{USER_MESSAGE.name}` is built in; this file would never be read"
            self._add(own, codes.WRONG_NAME, message, fix="Rename the file and the places that use it.")

    def _has_own_user_message(self) -> bool:
        return (self.folder.path / "artifacts" / f"{USER_MESSAGE.name}.yaml").is_file()

    def _clean_graph(self, document: Document, front: SkillFront) -> dict[str, tuple[str, ...]]:
        """Only what the entry reaches, each with a list; but every phase that the graph names must exist."""
        if END in front.graph:
            self._add(document, codes.WRONG_NAME, "`end` is not a phase", "graph", END, fix="Remove this key.")
        reached = reachable(front.graph, front.entry)
        named = {*front.graph, *(name for targets in front.graph.values() for name in targets)}
        for name in sorted(named - {END, *reached}):
            if not is_skill_node(name) and not (is_usable_name(name) and self.folder.exists(f"phases/{name}.md")):
                self._unknown_phase(document, front, name)
        for name in reached:
            if is_skill_node(name):
                self._skill_node(document, front, name)
        return {name: tuple(dict.fromkeys(front.graph.get(name, ()))) or (END,) for name in reached}

    def _skill_node(self, document: Document, front: SkillFront, node: str) -> None:
        place = self._place_of(front, node)
        if not _NODE.fullmatch(node):
            self._add(document, codes.WRONG_NAME, f"`{node}` is not of the form `@skill`", *place)
            return
        self._skill(document, skill_of(node), *place)
        if len(set(front.graph.get(node, ()))) > 1:
            message = f"`{node}` has several successors, but no model decides between them"
            self._add(document, codes.NO_FIT, message, "graph", node, fix="Keep one.")

    def _check_ends(self, document: Document, graph: dict[str, tuple[str, ...]], phases: dict[str, Phase]) -> None:
        if any(name not in phases for name in graph if not is_skill_node(name)):
            return
        finishing = [
            name for name, to in graph.items() if not to or END in to or (name in phases and phases[name].can_finish)
        ]
        for name in dead_ends(graph, graph, finishing):
            message = f"the phase `{name}` can never reach a finish"
            self._add(document, codes.DEAD_END, message, "graph", name, fix="Add `end` to a list that it leads to.")

    def _check_fit(self, document: Document, skill: Skill) -> None:
        """What comes out of a skill that is a node must be what the next node takes; no model stands between them."""
        for node, targets in skill.graph.items():
            if not is_skill_node(node):
                continue
            if skill_of(node) not in skill.skills:
                continue
            given = skill.skills[skill_of(node)].result
            for target in targets:
                if target not in skill.phases and not is_skill_node(target) and target != END:
                    continue
                if is_skill_node(target) and skill_of(target) not in skill.skills:
                    continue
                taken = (skill.final_output,) if target == END else skill.inputs_of(target)
                if not any((given.name, given.schema) == (one.name, one.schema) for one in taken):
                    names = " | ".join(one.name for one in taken)
                    message = f"`{node}` gives `{given.name}`, which is not the `{names}` that `{target}` takes"
                    self._add(document, codes.NO_FIT, message, "graph", node)

    # -- phases ---------------------------------------------------------------------------------------

    def _phase(self, skill: Document, front: SkillFront, name: str) -> Phase | None:
        file = f"phases/{name}.md"
        if not is_usable_name(name) or not self.folder.exists(file):
            self._unknown_phase(skill, front, name)
            return None
        document = self.folder.front(file)
        found = self._front(document, PhaseFront, FORBIDDEN_IN_PHASE)
        if document is None or found is None:
            return None
        if found.name != name:
            self._add(
                document,
                codes.WRONG_NAME,
                f"`name` is `{found.name}` but the file is `{file}`",
                "name",
                fix="Use the file's name.",
            )
        if not document.body:
            self._add(document, codes.MISSING_KEY, "has no instructions", fix="Write them below the front matter.")
        for index, kind in enumerate(found.allowed_ops):
            if kind not in self.vocabulary.op_kinds:
                guess = nearest(kind, self.vocabulary.op_kinds)
                self._add(document, codes.UNKNOWN_OP, f"unknown op `{kind}`", "allowed_ops", index, fix=guess)
        inputs = [self.artifacts.get(document, part.strip(), "input") for part in found.input.split("|")]
        known = [artifact for artifact in inputs if artifact is not None]
        steps = self._steps(document, ("preprocessor",), found.preprocessor, known)
        if len(known) < len(inputs):
            return None
        ours = msgspec.structs.asdict(found)
        del ours["type"], ours["input"]
        return Phase(**ours | {"inputs": tuple(known), "instructions": document.body, "preprocessor": steps})

    def _unknown_phase(self, skill: Document, front: SkillFront, name: str) -> None:
        known = [stem for stem in self.folder.known("phases", ".md") if stem != name]
        message = f"the phase `{name}` has no file `phases/{name}.md`"
        self._add(skill, codes.UNKNOWN_PHASE, message, *self._place_of(front, name), fix=nearest(name, known))

    @staticmethod
    def _place_of(front: SkillFront, node: str) -> Place:
        """Where skill.md names a node."""
        for source, targets in front.graph.items():
            if node in targets:
                return ("graph", source, targets.index(node))
        return ("graph", node) if node in front.graph else ("entry",)

    # -- steps ----------------------------------------------------------------------------------------

    def _steps(
        self, document: Document, place: Place, written: Sequence[Any], inputs: Sequence[ArtifactType]
    ) -> tuple[AnyStep, ...]:
        if not written:
            return ()
        part = document.part(*place)
        parsed, wrong = parse_steps(part)
        if self.folder.is_older:
            wrong = [_as_warning(finding) if finding.code == codes.UNKNOWN_KEY else finding for finding in wrong]
        self.own_findings += wrong
        steps = {index: self._step(part, index, step) for index, step in parsed.items()}
        if len(steps) == len(part.value) and inputs:
            self._follow(part, tuple(steps.values()), inputs)
        return tuple(steps.values())

    def _step(self, part: Document, index: int, step: AnyStep) -> AnyStep:
        inner = step.apply if isinstance(step, Iterate) else step
        if isinstance(inner, RunSkill):
            self._skill(part, inner.skill, index)
        if isinstance(inner, RunOp):
            self._op(part, index, inner)
        if isinstance(inner, PythonCall):
            self.modules.check(part, index, inner)
            if (inner.module, inner.function) in self.unsafe and self.folder.is_older:
                # There, the mode stands on the permission, not on the step.
                unsafe = msgspec.structs.replace(inner, mode="unsafe")
                return msgspec.structs.replace(step, apply=unsafe) if isinstance(step, Iterate) else unsafe
        return step

    def _op(self, part: Document, index: int, step: RunOp) -> None:
        kind = step.op.get("kind")
        if not isinstance(kind, str) or kind not in self.vocabulary.op_kinds:
            fix = nearest(str(kind), self.vocabulary.op_kinds)
            self._add(part, codes.UNKNOWN_OP, f"unknown op `{kind}`", index, fix=fix)
            return
        spec = self.vocabulary.op(kind)
        assert spec is not None
        if not spec.is_step:
            self._add(part, codes.BAD_STEP, f"a step cannot use `{kind}`", index, fix="Use it in a phase.")
        named = step.op.get(spec.skill_field) if spec.skill_field else None
        if isinstance(named, str) and spec.skill_field not in step.args_from:
            self._skill(part, named, index)

    def _follow(self, part: Document, steps: Sequence[AnyStep], inputs: Sequence[ArtifactType]) -> None:
        """A path must exist for one member of the union at least."""
        slips = [set(enrich(artifact, steps, self._final_output_of)[1]) for artifact in inputs]
        for slip in sorted(set.intersection(*slips)):
            kind = next(iter(part.value[slip.step]))
            self._add(part, codes.NO_SUCH_PATH, slip.message, slip.step, kind, *slip.key)

    def _final_output_of(self, name: str) -> ArtifactType | None:
        skill = self.skills.get(name)
        return skill.result if skill else None

    def _postprocessor(
        self, document: Document, front: SkillFront, final_output: ArtifactType | None
    ) -> Postprocessor | None:
        if front.postprocessor is None:
            return None
        part = document.part("postprocessor")
        found = self._front(part, PostprocessorFront)
        if found is None:
            return None
        output = self._post_output(part, front, found)
        steps = self._steps(part, ("steps",), found.steps, [final_output] if final_output else [])
        return Postprocessor(output, steps) if output else None

    def _post_output(self, part: Document, front: SkillFront, found: PostprocessorFront) -> ArtifactType | None:
        if isinstance(found.output_schema, str):
            return self.artifacts.get(part, found.output_schema, "output_schema")
        try:
            compile_schema(found.output_schema)
        except SchemaInvalid as error:
            message = f"is not a usable JSON Schema: {error}"
            self._add(part, codes.BAD_SCHEMA, message, "output_schema", *error.place)
            return None
        name = found.output_name or f"{front.name}_post"
        return ArtifactType(name, found.output_schema, found.output_description)

    # -- artifacts and skills -------------------------------------------------------------------------

    def _skill(self, document: Document, name: str, *place: str | int) -> None:
        """Load another skill that this one runs."""
        if name in self.skills:
            return
        self.skills[name] = None
        try:
            folder = self.library.find(name)
            around = [number for number, (place_of, _) in enumerate(self.above) if place_of == folder.resolve()]
            if around:
                cycle = " → ".join([*(known for _, known in self.above[around[0] :]), self.above[around[0]][1]])
                self._add(document, codes.SKILL_CYCLE, f"skills run each other in a circle: {cycle}", *place)
                return
            if len(self.above) >= _MOST_NESTED:
                message = f"skills run each other more than {_MOST_NESTED} deep"
                self._add(document, codes.SKILL_CYCLE, message, *place)
                return
            reading = _read(folder, self.library, self.vocabulary, self.above, self.done)
        except SkillError as error:
            self._add(document, SkillError.code if error.code == "RYN000" else error.code, error.message, *place)
            return
        self.skills[name] = reading.skill
        wrong = [finding for finding in reading.findings if finding.severity == "error"]
        if wrong:
            cycle_of = next((finding for finding in wrong if finding.code == codes.SKILL_CYCLE), None)
            code = codes.SKILL_CYCLE if cycle_of else "RYN102"
            message = cycle_of.message if cycle_of else f"skill `{name}` has {len(wrong)} errors of its own"
            self._add(document, code, message, *place, fix=f"`reyn lint {name}` tells them.")

    # -- front matter and findings --------------------------------------------------------------------

    def _front(self, document: Document | None, shape: type[F], forbidden: Mapping[str, str] = {}) -> F | None:
        """The front matter, without its wrong parts where it can do without them, so that the rest is checked too."""
        if document is None:
            return None
        if self.folder.is_older:
            document = self._forgiven(document, shape)
        keys = document.value if isinstance(document.value, dict) else {}
        wrong = _graph_shape(document, keys.get("graph"))
        passed_over = {*forbidden, *(key for key in keys if key.startswith("imported_")), *(["graph"] if wrong else [])}
        wrong += check_keys(
            document,
            shape,
            unknown=codes.UNKNOWN_KEY,
            missing=codes.MISSING_KEY,
            wrong=codes.WRONG_VALUE,
            passed_over=passed_over,
        )
        for key in forbidden.keys() & keys.keys():
            message = f"`{key}` does not belong here"
            wrong.append(document.finding(codes.FORBIDDEN_KEY, message, key, fix=forbidden[key]))
        if self.folder.is_older:
            wrong = [_as_warning(finding) if finding.code == codes.UNKNOWN_KEY else finding for finding in wrong]
        self.own_findings += wrong
        usable = usable_keys(document, shape)
        return None if usable is None else msgspec.convert(usable, shape)

    @staticmethod
    def _forgiven(document: Document, shape: type[msgspec.Struct]) -> Document:
        """An older file may leave out its type, its name and its input."""
        if not isinstance(document.value, dict):
            return document
        filled = dict(document.value)
        if shape is SkillFront:
            filled.setdefault("type", "skill")
        elif shape is PhaseFront:
            filled.setdefault("type", "phase")
            filled.setdefault("name", document.file.rpartition("/")[2].removesuffix(".md"))
            filled.setdefault("input", "")
        return msgspec.structs.replace(document, value=filled)

    def _add(self, document: Document, code: str, message: str, *place: str | int, fix: str = "") -> None:
        self.own_findings.append(document.finding(code, message, *place, fix=fix))


def _unsafe_calls(permissions: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The functions that the skill's permissions call unsafe."""
    entries = permissions.get("python")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("mode") == "unsafe":
            yield str(entry.get("module")), str(entry.get("function"))


def _graph_shape(document: Document, graph: Any) -> list[Finding]:
    """The most common slip has its own words: a phase's successors are a list of names."""
    wrong = []
    for name, targets in graph.items() if isinstance(graph, dict) else ():
        if not isinstance(targets, list):
            fix = f"Write `{name}: [{targets}]`." if isinstance(targets, str) else "Write a list of phases."
            wrong.append(
                document.finding(codes.WRONG_VALUE, f"what follows `{name}` is not a list", "graph", name, fix=fix)
            )
            continue
        for index, target in enumerate(targets):
            if not isinstance(target, str):
                message = f"{target!r} is not the name of a phase"
                wrong.append(document.finding(codes.WRONG_VALUE, message, "graph", name, index))
    return wrong


def _as_warning(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, severity="warning")
