"""A skill's folder becomes a `Skill`, or every error in it at once.

This reads the documented dialect. Front matter is checked key by key against the two shapes below; then names are
resolved (own folder, then `reyn/shared/`, then what is built in); then the graph is checked as a whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeVar

import msgspec

from reyn.documents import (
    Document,
    DocumentError,
    check_keys,
    nearest,
    parse_front_matter,
    parse_yaml,
    read_text,
    usable_keys,
)
from reyn.errors import Finding, SkillInvalid, SkillUnsupported
from reyn.skills.graph import dead_ends, reachable
from reyn.skills.schemas import SchemaInvalid, compile_schema
from reyn.skills.values import DEFAULT_ACT_TURNS, DEFAULT_OPS, END, USER_MESSAGE, ArtifactType, Phase, Skill
from reyn.vocabulary import STANDARD, Vocabulary

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

UNKNOWN_KEY = "RYN112"
MISSING_KEY = "RYN113"
WRONG_VALUE = "RYN114"
WRONG_NAME = "RYN115"
UNKNOWN_PHASE = "RYN116"
UNKNOWN_ARTIFACT = "RYN117"
FORBIDDEN_KEY = "RYN118"
DEAD_END = "RYN119"
BAD_SCHEMA = "RYN121"
UNKNOWN_OP = "RYN122"

F = TypeVar("F", bound=msgspec.Struct)
NotNegative = Annotated[int, msgspec.Meta(ge=0)]


class SkillFront(msgspec.Struct, frozen=True):
    """The front matter of `skill.md`."""

    type: Literal["skill"]
    name: str
    entry: str
    final_output: str
    description: str = ""
    final_output_description: str = ""
    finish_criteria: tuple[str, ...] = ()
    graph: dict[str, tuple[str, ...]] = {}
    permissions: dict[str, Any] = {}
    required_credentials: tuple[str, ...] = ()
    postprocessor: dict[str, Any] | None = None
    search_hints: tuple[str, ...] = ()
    on_phase_failure: Literal["fail", "rollback"] = "fail"
    context: Any = None
    routing: Any = None


class PhaseFront(msgspec.Struct, frozen=True):
    """The front matter of a phase."""

    type: Literal["phase"]
    name: str
    input: str
    role: str | None = None
    can_finish: bool = False
    allowed_ops: tuple[str, ...] = DEFAULT_OPS
    max_act_turns: NotNegative = DEFAULT_ACT_TURNS
    model_class: str | None = None
    preprocessor: tuple[Any, ...] = ()
    context: Any = None


_FORBIDDEN = {
    "output": "The output is the input of the phase that is chosen next; the OS shows it to the model.",
    "next": "The order of phases belongs to `graph` in skill.md.",
    "permissions": "Permissions belong to skill.md.",
}
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")


def load_skill(folder: Path, shared: Path | None = None, vocabulary: Vocabulary = STANDARD) -> Skill:
    """The skill in `folder`; `shared` is the project's `reyn/shared/`."""
    return _Loader(folder, shared, vocabulary).load()


class _Loader:
    """Gathers findings while it reads; a skill comes out only if there are none."""

    def __init__(self, folder: Path, shared: Path | None, vocabulary: Vocabulary) -> None:
        self.folders = [folder, *([shared] if shared else [])]
        self.vocabulary = vocabulary
        self.findings: list[Finding] = []
        self.artifacts: dict[str, ArtifactType | None] = {USER_MESSAGE.name: USER_MESSAGE}

    def load(self) -> Skill:
        document = self._read("skill.md", front_matter=True)
        front = self._front(document, SkillFront)
        if document is None or front is None:
            self._fail()
        if not self._is_name(front.name):
            message = f"`{front.name}` is not a usable name"
            self._add(document, WRONG_NAME, message, "name", fix="Use letters, digits, `_` and `-`.")
        graph = self._clean_graph(document, front)
        phases = {name: phase for name in graph if (phase := self._phase(document, front, name))}
        final_output = self._artifact(document, front.final_output, "final_output")
        self._check_ends(document, graph, phases)
        if self.findings or final_output is None:
            self._fail()
        ours = msgspec.structs.asdict(front)
        del ours["type"], ours["routing"]
        return Skill(**ours | {"graph": graph, "phases": phases, "final_output": final_output})

    def _fail(self) -> NoReturn:
        raise SkillInvalid(f"skill `{self.folders[0].name}` has errors:", self.findings)

    # -- phases ---------------------------------------------------------------------------------------

    def _clean_graph(self, document: Document, front: SkillFront) -> dict[str, tuple[str, ...]]:
        """Only what the entry reaches, each with a list; but every phase that the graph names must exist."""
        if END in front.graph:
            self._add(document, WRONG_NAME, "`end` is not a phase", "graph", END, fix="Remove this key.")
        reached = reachable(front.graph, front.entry)
        named = {*front.graph, *(name for targets in front.graph.values() for name in targets)}
        for name in sorted(named - {END, *reached}):
            if not self._is_name(name) or not self._exists(f"phases/{name}.md"):
                self._unknown_phase(document, front, name)
        return {name: front.graph.get(name, ()) for name in reached}

    def _phase(self, skill: Document, front: SkillFront, name: str) -> Phase | None:
        file = f"phases/{name}.md"
        if not self._is_name(name) or not self._exists(file):
            self._unknown_phase(skill, front, name)
            return None
        document = self._read(file, front_matter=True)
        found = self._front(document, PhaseFront, _FORBIDDEN)
        if document is None or found is None:
            return None
        if found.name != name:
            self._add(document, WRONG_NAME, f"`name` is `{found.name}` but the file is `{file}`", "name")
        if not document.body:
            self._add(document, MISSING_KEY, "has no instructions", fix="Write them below the front matter.")
        for index, kind in enumerate(found.allowed_ops):
            if kind not in self.vocabulary.op_kinds:
                guess = nearest(kind, self.vocabulary.op_kinds)
                self._add(document, UNKNOWN_OP, f"unknown op `{kind}`", "allowed_ops", index, fix=guess)
        inputs = [self._artifact(document, part.strip(), "input") for part in found.input.split("|")]
        if None in inputs:
            return None
        ours = msgspec.structs.asdict(found)
        del ours["type"], ours["input"]
        return Phase(**ours | {"inputs": tuple(inputs), "instructions": document.body})

    def _unknown_phase(self, skill: Document, front: SkillFront, name: str) -> None:
        place: tuple[str | int, ...] = ("graph", name) if name in front.graph else ("entry",)
        for source, targets in front.graph.items():
            if name in targets:
                place = ("graph", source, targets.index(name))
        if name.startswith("@"):
            self._add(skill, SkillUnsupported.code, f"`{name}`: this version does not run skills as nodes", *place)
            return
        known = [path.stem for folder in self.folders for path in folder.glob("phases/*.md") if path.stem != name]
        message = f"the phase `{name}` has no file `phases/{name}.md`"
        self._add(skill, UNKNOWN_PHASE, message, *place, fix=nearest(name, known))

    def _check_ends(self, document: Document, graph: dict[str, tuple[str, ...]], phases: dict[str, Phase]) -> None:
        if len(phases) != len(graph):
            return
        finishing = [name for name, to in graph.items() if not to or END in to or phases[name].can_finish]
        for name in dead_ends(graph, graph, finishing):
            message = f"the phase `{name}` can never reach a finish"
            self._add(document, DEAD_END, message, "graph", name, fix="Add `end` to a list that it leads to.")

    # -- artifacts ------------------------------------------------------------------------------------

    def _artifact(self, source: Document, name: str, key: str) -> ArtifactType | None:
        if name not in self.artifacts:
            self.artifacts[name] = self._read_artifact(source, name, key)
        return self.artifacts[name]

    def _read_artifact(self, source: Document, name: str, key: str) -> ArtifactType | None:
        file = f"artifacts/{name}.yaml"
        if not self._is_name(name) or not self._exists(file):
            known = [path.stem for folder in self.folders for path in folder.glob("artifacts/*.yaml")]
            fix = nearest(name, [*known, USER_MESSAGE.name])
            self._add(source, UNKNOWN_ARTIFACT, f"the artifact `{name}` has no file `{file}`", key, fix=fix)
            return None
        document = self._read(file)
        if document is None:
            return None
        if not isinstance(document.value, dict):
            self._add(document, BAD_SCHEMA, "must be a JSON Schema, a mapping")
            return None
        is_wrapped = "name" in document.value and "schema" in document.value
        schema = document.value["schema"] if is_wrapped else document.value
        if is_wrapped and (document.value["name"] != name or document.value.get("wrapped", True) is not True):
            self._add(document, WRONG_NAME, f"`name` must be `{name}`, and `wrapped` is not performed", "name")
            return None
        try:
            compile_schema(schema)
        except SchemaInvalid as error:
            around = ("schema",) if is_wrapped else ()
            self._add(document, BAD_SCHEMA, f"is not a usable JSON Schema: {error}", *around, *error.place)
            return None
        return ArtifactType(name, schema, str(document.value.get("description", "")))

    # -- files and findings ---------------------------------------------------------------------------

    def _exists(self, relative: str) -> bool:
        return any((folder / relative).is_file() for folder in self.folders)

    def _read(self, relative: str, *, front_matter: bool = False) -> Document | None:
        """The first file of that name: the skill's own, else the shared one."""
        folder = next((place for place in self.folders if (place / relative).is_file()), self.folders[0])
        shown = relative if folder is self.folders[0] else f"{folder.name}/{relative}"
        try:
            text = read_text(folder / relative, shown)
            return parse_front_matter(text, shown) if front_matter else parse_yaml(text, shown)
        except DocumentError as error:
            self.findings.append(error.finding)
            return None

    def _front(self, document: Document | None, shape: type[F], forbidden: Mapping[str, str] = {}) -> F | None:
        """The front matter, without its wrong parts where it can do without them, so that the rest is checked too."""
        if document is None:
            return None
        keys = document.value if isinstance(document.value, dict) else {}
        wrong = self._graph_shape(document, keys.get("graph"))
        passed_over = {*forbidden, *(key for key in keys if key.startswith("imported_")), *(["graph"] if wrong else [])}
        wrong += check_keys(
            document, shape, unknown=UNKNOWN_KEY, missing=MISSING_KEY, wrong=WRONG_VALUE, passed_over=passed_over
        )
        for key in forbidden.keys() & keys.keys():
            wrong.append(document.finding(FORBIDDEN_KEY, f"`{key}` does not belong here", key, fix=forbidden[key]))
        self.findings += wrong
        usable = usable_keys(document, shape)
        return None if usable is None else msgspec.convert(usable, shape)

    @staticmethod
    def _graph_shape(document: Document, graph: Any) -> list[Finding]:
        """The most common slip has its own words: a phase's successors are a list of names."""
        wrong = []
        for name, targets in graph.items() if isinstance(graph, dict) else ():
            if not isinstance(targets, list):
                fix = f"Write `{name}: [{targets}]`." if isinstance(targets, str) else "Write a list of phases."
                message = f"what follows `{name}` is not a list"
                wrong.append(document.finding(WRONG_VALUE, message, "graph", name, fix=fix))
                continue
            for index, target in enumerate(targets):
                if not isinstance(target, str):
                    message = f"{target!r} is not the name of a phase"
                    wrong.append(document.finding(WRONG_VALUE, message, "graph", name, index))
        return wrong

    @staticmethod
    def _is_name(name: str) -> bool:
        return _NAME.fullmatch(name) is not None and name != END

    def _add(self, document: Document, code: str, message: str, *place: str | int, fix: str = "") -> None:
        self.findings.append(document.finding(code, message, *place, fix=fix))
