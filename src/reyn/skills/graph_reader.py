"""Read the graph of skill.md: its nodes and edges, the rules of nodes without a model, and what can reach what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from reyn.documents import nearest
from reyn.errors import codes
from reyn.skills.arrivals import arriving
from reyn.skills.artifacts import ANY_OBJECT
from reyn.skills.edges import NO_EDGES, ElseSection, NodeEdges, WhenSection, may_run_branches, read_edges
from reyn.skills.graph import dead_ends, finishing_nodes, reachable
from reyn.skills.names import is_reserved_phase_name, is_valid_name, is_valid_skill_node
from reyn.skills.values import ABORT, END, GraphRule, Phase, Skill, is_skill_node, skill_of

if TYPE_CHECKING:
    from reyn.documents import Document, KeyPath
    from reyn.skills.artifacts import Artifacts
    from reyn.skills.folder import SkillFolder
    from reyn.skills.values import NodeSettings


class GraphReader:
    """Reads the graph of one skill, and collects findings about it."""

    def __init__(
        self,
        document: Document,
        entry: str,
        nodes: Mapping[str, NodeSettings],
        folder: SkillFolder,
        artifacts: Artifacts,
        load_sub_skill: Callable[..., None],
    ) -> None:
        self._document = document
        self._entry = entry
        self._nodes = nodes
        self._folder = folder
        self._artifacts = artifacts
        self._load_sub_skill = load_sub_skill
        self._report = partial(folder.report, document)
        self._edges, findings = read_edges(document)
        folder.findings += findings

    def parts(self, nodes: Mapping[str, tuple[str, ...]]) -> dict[str, object]:
        """Return what skill.md says about the edges of nodes, as the fields of a skill."""
        edges = {node: self.edges_of(node) for node in nodes}
        return {
            "graph": nodes,
            "edge_texts": {node: dict(one.texts) for node, one in edges.items() if one.texts},
            "conditions": {node: dict(one.conditions) for node, one in edges.items() if one.conditions},
            "rules": {node: self.rules(node) for node, one in edges.items() if one.rules},
        }

    def reached(self) -> dict[str, tuple[str, ...]]:
        """Return the part of the graph that the entry reaches; report every node that does not exist."""
        if END in self._edges:
            self._report(codes.WRONG_NAME, "`end` is not a phase", "graph", END, fix="remove this key")
        self._check_reserved_names()
        targets = {node: [*edges.targets] for node, edges in self._edges.items()}
        for node, settings in self._nodes.items():
            targets[node] = [*targets.get(node, ()), *settings.on_error.values()]
        nodes = reachable(targets, self._entry)
        for name in sorted(self._named() - {END, *nodes}):
            if not is_skill_node(name) and not (is_valid_name(name) and self._folder.exists(f"phases/{name}.md")):
                self.report_unknown_phase(name)
        for name in nodes:
            if is_skill_node(name):
                self._check_skill_node(name)
            is_fan_out = name in self._nodes and self._nodes[name].is_fan_out
            if (is_skill_node(name) or is_fan_out) and len(self.edges_of(name).targets) > 1:
                message = f"node `{name}` has several successors, but no model chooses between them"
                self._report(codes.TYPE_MISMATCH, message, "graph", name, fix="keep one successor")
        return {name: tuple(self.edges_of(name).targets) or (END,) for name in nodes}

    def _named(self) -> set[str]:
        """Return every node that skill.md names."""
        handlers = (name for settings in self._nodes.values() for name in settings.on_error.values())
        targets = (name for edges in self._edges.values() for name in edges.targets)
        return {self._entry, *self._edges, *targets, *handlers}

    def edges_of(self, node: str) -> NodeEdges:
        return self._edges.get(node, NO_EDGES)

    def has_rules(self, node: str) -> bool:
        """Return whether rules decide about a node."""
        return bool(self.edges_of(node).rules)

    def calls_no_model(self, node: str) -> bool:
        """Return whether a node calls no model, so that its phase has neither instructions nor ops."""
        return self.has_rules(node) or (node in self._nodes and self._nodes[node].is_fan_out)

    def may_call_no_model(self, node: str) -> bool:
        """Return whether a node calls no model, or is not meant to: its settings may have errors."""
        edges = self.edges_of(node)
        return bool(edges.rules) or not edges.is_readable or may_run_branches(self._document, node)

    def has_file(self, node: str) -> bool:
        """Return whether a node needs the file of a phase, or has one."""
        return not is_skill_node(node) and (
            not self.may_call_no_model(node) or self._folder.exists(f"phases/{node}.md")
        )

    def rules(self, node: str) -> tuple[GraphRule, ...]:
        """Return the rules of a node, with the types of the artifacts that they make."""
        return tuple(self._rule(("graph", node, index), rule) for index, rule in self.edges_of(node).rules.items())

    def _rule(self, path: KeyPath, rule: WhenSection | ElseSection) -> GraphRule:
        when = rule.when if isinstance(rule, WhenSection) else None
        if rule.artifact is None:
            return GraphRule(rule.to, when)
        made = self._artifacts.get(self._document, rule.artifact.type, *path, "artifact", "type")
        return GraphRule(rule.to, when, made or ANY_OBJECT, rule.artifact.data)

    def with_inferred_phases(self, skill: Skill) -> Skill:
        """Add a phase for each node without a model that has no file: its input follows from the nodes before it."""
        phases = dict(skill.phases)
        for node in (node for node in skill.graph if not is_skill_node(node) and not self.has_file(node)):
            inputs = arriving(skill, node)
            if inputs:
                phases[node] = Phase(node, inputs, "", allowed_ops=())
                continue
            message = (
                f"node `{node}` has no file `phases/{node}.md`, and its input does not follow from the nodes before it"
            )
            fix = f"create `phases/{node}.md` with the front matter `type: phase`, `name: {node}` and `input: TYPE`"
            self._report(codes.UNKNOWN_PHASE, message, "graph", node, fix=fix)
        return msgspec.structs.replace(skill, phases=phases)

    def _check_reserved_names(self) -> None:
        """Report phases that are named as one of the choices that every phase has."""
        fix = f"rename the phase; `{END}` and `{ABORT}` are choices of every phase"
        for file in self._folder.own_files("phases", ".md"):
            name = file.removeprefix("phases/").removesuffix(".md")
            phase = self._folder.read(file) if is_reserved_phase_name(name) else None
            if phase is not None:
                self._folder.report(phase, codes.RESERVED_NAME, f"a phase cannot be named `{name}`", "name", fix=fix)
        for name in sorted(filter(is_reserved_phase_name, self._named() - {END})):
            path = self.path_of(name)
            self._report(codes.RESERVED_NAME, f"a phase cannot be named `{name}`", *path, fix=fix)

    def _check_skill_node(self, node: str) -> None:
        path = self.path_of(node)
        if not is_valid_skill_node(node):
            fix = "write `@skill`, `@skill[isolated]` or `@skill[shared]`"
            self._report(codes.WRONG_NAME, f"invalid sub-skill node `{node}`", *path, fix=fix)
            return
        self._load_sub_skill(skill_of(node), *path)

    def check_dead_ends(self, graph: dict[str, tuple[str, ...]], phases: dict[str, Phase]) -> None:
        if any(name not in phases for name in graph if not is_skill_node(name)):
            return
        for name in dead_ends(graph, finishing_nodes(graph, phases)):
            message = f"phase `{name}` cannot reach `end`"
            self._report(codes.DEAD_END, message, "graph", name, fix="add `end` to one of its successors")

    def report_unknown_phase(self, name: str) -> None:
        fix = nearest(name, [known for known in self._folder.names("phases", ".md") if known != name])
        message = f"unknown phase `{name}`: no file `phases/{name}.md`"
        self._report(codes.UNKNOWN_PHASE, message, *self.path_of(name), fix=fix)

    def path_of(self, node: str) -> KeyPath:
        """Return the path in skill.md that names a node."""
        named = (edges.targets[node] for edges in self._edges.values() if node in edges.targets)
        found = chain(named, () if node in self._edges else self._handler_paths(node))
        return next(found, ("graph", node) if node in self._edges else ("entry",))

    def _handler_paths(self, node: str) -> Iterator[KeyPath]:
        for name, settings in self._nodes.items():
            yield from (("nodes", name, "on_error", error) for error, to in settings.on_error.items() if to == node)
