"""Which phase may follow which, and which may finish: questions to a graph as the author wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.skills.values import END

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from reyn.skills.values import Skill


def successors(skill: Skill, phase: str) -> tuple[str, ...]:
    """The phases that may follow, in the author's order, each once."""
    return tuple(dict.fromkeys(name for name in skill.graph.get(phase, ()) if name != END))


def may_finish(skill: Skill, phase: str) -> bool:
    """`end` in its list, an empty list, no list at all, or `can_finish`."""
    targets = skill.graph.get(phase, ())
    return not targets or END in targets or skill.phases[phase].can_finish


def reachable(graph: Mapping[str, Sequence[str]], entry: str) -> list[str]:
    """Every node that can be reached from the entry, in the order of the first visit."""
    seen, waiting = {entry: None}, [entry]
    while waiting:
        for target in graph.get(waiting.pop(), ()):
            if target != END and target not in seen:
                seen[target] = None
                waiting.append(target)
    return list(seen)


def dead_ends(graph: Mapping[str, Sequence[str]], nodes: Iterable[str], finishing: Iterable[str]) -> list[str]:
    """Nodes from which no finishing node can be reached."""
    nodes = list(nodes)
    sources: dict[str, list[str]] = {}
    for node in nodes:
        for target in graph.get(node, ()):
            sources.setdefault(target, []).append(node)
    alive, waiting = set(finishing), list(finishing)
    while waiting:
        for source in sources.get(waiting.pop(), ()):
            if source not in alive:
                alive.add(source)
                waiting.append(source)
    return [node for node in nodes if node not in alive]
