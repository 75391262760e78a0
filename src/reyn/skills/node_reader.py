"""Read `nodes` of skill.md: load what branches run, and derive the types of the artifacts that join their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from reyn.documents import Document, KeyPath, check_keys, nearest
from reyn.errors import codes
from reyn.skills.artifacts import ANY_OBJECT
from reyn.skills.decisions import local_values_of
from reyn.skills.edges import may_run_branches
from reyn.skills.fan_out import ERRORS, joined_schema, produced_types, result_type
from reyn.skills.front_matter import FRONT_MATTER, NodeSection
from reyn.skills.names import is_valid_name, is_valid_skill_node
from reyn.skills.values import (
    BUILT_IN_TYPES,
    END,
    MAX_PARALLEL,
    ArtifactType,
    Branch,
    NodeSettings,
    Skill,
    is_skill_node,
    skill_of,
)

if TYPE_CHECKING:
    from reyn.jsonschema import Schema
    from reyn.skills.artifacts import Artifacts
    from reyn.skills.folder import SkillFolder
    from reyn.skills.step_types import AnyStep

    Load = Callable[..., None]
    """Loads a sub-skill that is named at a path of a document."""
    ParseSteps = Callable[
        [Document, KeyPath, Sequence[Any], Sequence[ArtifactType], Schema | None], tuple[AnyStep, ...]
    ]
    """Parses a list of steps on artifacts of some types, with the schema of what earlier steps bind to `local`."""
    ResultOf = Callable[[str], ArtifactType | None]
    """Returns the type of the result of a sub-skill that was loaded."""


CHECKS = ("python", "validate", "run_op", "expression", "lint_plan")
"""The kinds of steps that can be a check."""


class NodeReader:
    """Reads the settings of nodes.

    Attributes:
        types: The types that nodes name: outputs of phases that are branches, and joined artifacts.
        phases: The phases that branches run.
    """

    def __init__(
        self, document: Document, nodes: Mapping[str, NodeSettings], folder: SkillFolder, artifacts: Artifacts
    ) -> None:
        self._document, self._nodes, self._folder, self._artifacts = document, nodes, folder, artifacts
        self._unreadable = unreadable_nodes(document)
        self.types: dict[str, ArtifactType] = {}
        self.phases: list[str] = []

    def read(self, load: Load, result_of: ResultOf, targets_of: Callable[[str], Iterable[str]]) -> Self:
        """Read the fan-outs, and define the types that they join results to."""
        self._load, self._result_of = load, result_of
        for node in dict.fromkeys((*self._nodes, *self._unreadable)):
            settings = self._nodes.get(node, NodeSettings())
            if not settings.is_fan_out and not may_run_branches(self._document, node):
                continue
            if node in self._unreadable:
                self.phases += [one.do for one in settings.branches if self._is_phase(one.do)]
            elif self._read_fan_out(node, settings, is_consistent=self._is_consistent(node, settings)):
                continue
            self._define_any(settings.joined, node, targets_of(node))
        return self

    def _is_phase(self, name: str) -> bool:
        return name != END and is_valid_name(name) and self._folder.exists(f"phases/{name}.md")

    def _define_any(self, joined: str, node: str, targets: Iterable[str]) -> None:
        """Define the type that a node with errors joins results to, so that they are not reported again elsewhere.

        If it is not known, it is one that a successor takes.
        """
        named = () if is_valid_name(joined) else filter(self._is_phase, targets)
        phases = [self._folder.read(f"phases/{name}.md") for name in named]
        inputs = (one.value.get("input") for one in phases if one is not None and isinstance(one.value, dict))
        names = [joined, *(name.strip() for text in inputs if isinstance(text, str) for name in text.split("|"))]
        for name in filter(is_valid_name, names):
            if name not in BUILT_IN_TYPES:
                self._artifacts.define(name, {}, self._document, node)

    def with_checks(self, skill: Skill, parse: ParseSteps, sources: Callable[[], dict[str, str]]) -> Skill:
        """Return the skill with the steps of `check`, and the modules that they use."""
        if not any(settings.check for settings in self._nodes.values()):
            return skill
        nodes = {}
        for node, settings in self._nodes.items():
            path: KeyPath = ("nodes", node, "check")
            types, local = produced_types(skill, node), local_values_of(skill, node) if settings.check else None
            steps = parse(self._document, path, settings.check, types, local) if settings.check else ()
            for index, step in enumerate(steps):
                if (kind := str(step.__struct_config__.tag)) not in CHECKS:
                    message = f"`{kind}` cannot be a check"
                    fix = f"use one of {', '.join(f'`{name}`' for name in CHECKS)}"
                    self._folder.report(self._document, codes.BAD_STEP, message, *path, index, fix=fix)
            nodes[node] = replace(settings, check=steps)
        return replace(skill, nodes=nodes, modules=sources())

    def _report(self, message: str, *path: str | int, fix: str) -> None:
        self._folder.report(self._document, codes.BAD_BRANCHES, message, *path, fix=fix)

    def _is_consistent(self, node: str, settings: NodeSettings) -> bool:
        """Report keys of a fan-out that exclude each other or are missing."""
        path: KeyPath = ("nodes", node)
        before = len(self._folder.findings)
        if not settings.is_fan_out:
            self._report(f"`{node}` has no branches", *path, fix="add `each:` or `all:` with what they run")
            return False
        if settings.each is not None and settings.all:
            self._report(f"`{node}` has both `each` and `all`", *path, fix="keep one of them")
        if not settings.joined:
            fix = "add `as:` with the name of the joined artifact"
            self._report(f"`{node}` does not name the artifact that joins its branches", *path, fix=fix)
        elif not is_valid_name(settings.joined):
            self._report(f"`{settings.joined}` is not a valid artifact name", *path, "as", fix="use letters and digits")
        if len(settings.all) > MAX_PARALLEL:
            message = f"`{node}` has {len(settings.all)} branches; at most {MAX_PARALLEL} run together"
            self._report(message, *path, "all", fix="use `each`, which runs some at a time")
        if settings.all and isinstance(settings.need, int) and settings.need > len(settings.all):
            message = f"`{node}` needs {settings.need} branches, but has {len(settings.all)}: the join is never met"
            self._report(message, *path, "need", fix=f"write a number up to {len(settings.all)}, `any` or `all`")
        if ERRORS in settings.all and settings.on_item_error == "collect":
            message = f"a branch cannot be called `{ERRORS}`: with `collect`, this property lists the failures"
            self._report(message, *path, "all", ERRORS, fix="rename the branch")
        for name in settings.all:
            if not name.isascii() or not is_valid_name(name):
                message = f"`{name}` is not a valid name of a branch"
                self._report(
                    message, *path, "all", name, fix="start with a letter, then use letters, digits, `_` and `-`"
                )
        return len(self._folder.findings) == before

    def _read_fan_out(self, node: str, settings: NodeSettings, *, is_consistent: bool) -> bool:
        """Define the type of a joined artifact; return whether all of its parts are known, and its settings fit."""
        results: dict[str, ArtifactType] = {}
        for branch, path in _placed(node, settings):
            result = self._result(branch, path)
            if result is not None:
                results[branch.name] = result
        if len(results) < len(settings.branches) or not is_consistent:
            return False
        derived = joined_schema(settings, results)
        self.types[settings.joined] = self._artifacts.define(settings.joined, derived, self._document, node)
        return True

    def _result(self, branch: Branch, path: KeyPath) -> ArtifactType | None:
        """Return the type of what a branch returns."""
        if is_skill_node(branch.do):
            if not is_valid_skill_node(branch.do) or "[" in branch.do:
                self._report(f"invalid skill `{branch.do}`", *path, fix="write `@skill`")
                return None
            self._load(self._document, skill_of(branch.do), *path)
            result = self._result_of(skill_of(branch.do))
            if branch.output and result is not None:
                message = f"`{branch.do}` is a skill, whose result has the type of its own `final_output`"
                self._report(message, *path, fix="remove `output`")
            return result
        if not self._is_phase(branch.do):
            fix = nearest(branch.do, self._folder.names("phases", ".md")) or "name a phase, or a skill as `@skill`"
            message = f"unknown phase `{branch.do}`: no file `phases/{branch.do}.md`"
            self._folder.report(self._document, codes.UNKNOWN_PHASE, message, *path, fix=fix)
            return None
        self.phases.append(branch.do)
        if not branch.output:
            fix = f"write `{{do: {branch.do}, output: TYPE}}`; a phase does not know its output"
            self._report(f"the branch `{branch.do}` is a phase and needs an `output`", *path, fix=fix)
            return None
        found = self._artifacts.get(self._document, branch.output, *path)
        if found is not None:
            self.types[branch.output] = found
        return found


def unreadable_nodes(document: Document) -> list[str]:
    """Return the nodes whose settings have errors of their own: all of the graph if `nodes` is no mapping."""
    keys = document.value if isinstance(document.value, dict) else {}
    nodes, graph = keys.get("nodes", {}), keys.get("graph")
    if not isinstance(nodes, dict):
        return [*graph] if isinstance(graph, dict) else []
    return [node for node in nodes if check_keys(document.part("nodes", node), NodeSection, FRONT_MATTER)]


def _placed(node: str, settings: NodeSettings) -> Iterator[tuple[Branch, KeyPath]]:
    """Yield the branches of a node with the paths of their keys in skill.md."""
    for branch in settings.branches:
        yield branch, ("nodes", node, "all", branch.name) if settings.all else ("nodes", node, "each", "do")


def mismatched_results(skill: Skill) -> Iterator[tuple[str, str]]:
    """Yield the nodes without a model whose result is no input of their successor, each with a message."""
    known = {END, *skill.phases, *(node for node in skill.graph if skill_of(node) in skill.skills)}
    for node in known.intersection(skill.graph):
        result = result_type(skill, node)
        if result is None:
            continue
        for target in known.intersection(skill.graph[node]):
            accepted = (skill.final_output,) if target == END else skill.inputs_of(target)
            if ANY_OBJECT not in accepted and (result.name, result.schema) not in [
                (one.name, one.schema) for one in accepted
            ]:
                names = " | ".join(one.name for one in accepted)
                other = " with another schema" if result.name in names.split(" | ") else ""
                yield node, f"`{node}` returns `{result.name}`, but `{target}` takes `{names}`{other}"
