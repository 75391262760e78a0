"""The result of loading a skill, and queries on its graph: successors, reachability, dead ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from reyn.skills.values import END, Phase, Skill, is_skill_node, skill_of

if TYPE_CHECKING:
    from reyn.documents import Document
    from reyn.errors import Finding
    from reyn.skills.folder import SkillFolder


def successors(skill: Skill, phase: str) -> tuple[str, ...]:
    """Return the phases that may follow, in the author's order and without duplicates."""
    return tuple(dict.fromkeys(name for name in skill.graph.get(phase, ()) if name != END))


def may_finish(skill: Skill, phase: str) -> bool:
    """Return whether a phase may finish: `end` in its list, an empty or missing list, or `can_finish: true`."""
    targets = skill.graph.get(phase, ())
    return not targets or END in targets or skill.phases[phase].can_finish


def is_known(skill: Skill, node: str) -> bool:
    """Return whether the phase or the sub-skill of a node could be read."""
    return skill_of(node) in skill.skills if is_skill_node(node) else node in skill.phases


def reachable(graph: Mapping[str, Iterable[str]], entry: str) -> list[str]:
    """Return every node that can be reached from the entry, in the order of discovery."""
    seen, queue = {entry: None}, [entry]
    while queue:
        for target in graph.get(queue.pop(), ()):
            if target != END and target not in seen:
                seen[target] = None
                queue.append(target)
    return list(seen)


def predecessors(skill: Skill, phase: str) -> list[str]:
    """Return every node from which a phase can be reached."""
    sources = _sources(with_handlers(skill))
    return reachable(sources | {"": sources.get(phase, [])}, "")[1:]


def with_handlers(skill: Skill) -> dict[str, tuple[str, ...]]:
    """Return every node that can follow each node: its successors, and the handlers of its errors."""
    if not any(settings.on_error for settings in skill.nodes.values()):
        return skill.graph
    return {node: (*targets, *handlers_of(skill, node)) for node, targets in skill.graph.items()}


def handlers_of(skill: Skill, node: str) -> tuple[str, ...]:
    """Return the nodes at which errors of a node arrive, each once."""
    return tuple(dict.fromkeys(skill.nodes[node].on_error.values())) if node in skill.nodes else ()


def dead_ends(graph: Mapping[str, Iterable[str]], finishing: Iterable[str]) -> list[str]:
    """Return the nodes from which no finishing node can be reached."""
    alive = reachable(_sources(graph) | {"": [*finishing]}, "")
    return [node for node in graph if node not in alive]


def finishing_nodes(graph: Mapping[str, Iterable[str]], phases: Mapping[str, Phase]) -> set[str]:
    """Return the nodes at which a run can end. The user ends a conversation that follows itself, by saying nothing."""
    finishing = {name for name, targets in graph.items() if END in targets}
    for name, phase in phases.items():
        if phase.can_finish or (phase.conversation is not None and name in graph.get(name, ())):
            finishing.add(name)
    return finishing


def _sources(graph: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return the nodes that lead to each node."""
    sources: dict[str, list[str]] = {}
    for node, targets in graph.items():
        for target in targets:
            sources.setdefault(target, []).append(node)
    return sources


class LoadResult(NamedTuple):
    """The result of reading a skill's folder.

    Attributes:
        partial: The parts of the skill that could be read, for rules that run despite errors.
        findings: Every error and warning, sorted by position.
        folder: The skill's parsed files.
        sub_skills: The results of the skills that it runs, by name.
    """

    partial: Skill | None
    findings: list[Finding]
    folder: SkillFolder
    sub_skills: dict[str, LoadResult]

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]

    @property
    def skill(self) -> Skill | None:
        """The skill; `None` if there are errors."""
        return None if self.errors else self.partial

    def document(self, phase: str | None = None) -> Document:
        """Return the front matter of `skill.md`, or of a phase that `partial` has; a node with rules may have none."""
        has_file = phase is not None and self.folder.exists(f"phases/{phase}.md")
        document = self.folder.read(f"phases/{phase}.md" if has_file else "skill.md")
        assert document is not None
        return document

    @property
    def phase_documents(self) -> list[Document]:
        """The phases that could be read: the skill's own, and the shared ones that its graph reaches."""
        reached = (f"phases/{name}.md" for name in (self.partial.phases if self.partial is not None else ()))
        files = dict.fromkeys([*self.folder.own_files("phases", ".md"), *filter(self.folder.exists, reached)])
        return [document for file in files if (document := self.folder.read(file)) is not None]
