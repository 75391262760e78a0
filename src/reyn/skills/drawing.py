"""List the graph of a skill, and write it as the source of a Mermaid flowchart. `graph_svg` draws it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from reyn.skills.error_settings import NODE_ERROR
from reyn.skills.fan_out import phases_of_branches
from reyn.skills.graph import handlers_of, may_finish, successors
from reyn.skills.step_types import AnyStep, CheckExpression, PythonCall, RunOp
from reyn.skills.values import END, Branch, Skill

_START = ""  # the source of the edge into the entry; no phase has this name
_MERMAID_SHAPES = {
    "phase": '["{}"]',
    "skill": '[["{}"]]',
    "rules": '{{"{}"}}',
    "fan_out": '[/"{}"\\]',
    "end": '((("{}")))',
}
_MERMAID_ENTITIES = str.maketrans({"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;"})
"""What labels would read as the end of a text, as HTML, or as Markdown."""


class Edge(msgspec.Struct, frozen=True):
    """An edge of the graph with its artifact type; empty for an edge to a sub-skill.

    `text` says when to choose it, if the author wrote it, and `when` is the condition on it. A loop leads back to an
    ancestor.
    """

    source: str
    target: str
    artifact: str
    is_loop: bool = False
    text: str = ""
    when: str = ""

    @property
    def label(self) -> str:
        """The artifact, and when the edge is taken."""
        return ": ".join(part for part in (self.artifact, self.choice) if part)

    @property
    def choice(self) -> str:
        """When the edge is taken, in words and as a condition."""
        return " ".join(part for part in (self.text, f"[{self.when}]" if self.when else "") if part)


def nodes(skill: Skill) -> tuple[str, ...]:
    """Return all nodes, `end` included, in depth-first order from the entry."""
    return _walk(skill)[0]


def edges(skill: Skill) -> tuple[Edge, ...]:
    """Return every edge once, ordered by source."""
    discovered, loops = _walk(skill)
    return tuple(
        edge
        for node in discovered
        for edge in (
            *(
                Edge(
                    node,
                    target,
                    _artifact_into(skill, target),
                    (node, target) in loops,
                    " ".join(skill.edge_texts.get(node, {}).get(target, "").split()),
                    _condition(skill, node, target),
                )
                for target in _targets_of(skill, node)
            ),
            *_error_edges(skill, node, loops),
        )
    )


def _error_edges(skill: Skill, node: str, loops: set[tuple[str, str]]) -> Iterator[Edge]:
    """Yield the edges that errors of a node take."""
    for target in handlers_of(skill, node):
        names = [name for name, to in skill.nodes[node].on_error.items() if to == target]
        yield Edge(node, target, NODE_ERROR, (node, target) in loops, f"on error {', '.join(names)}")


def node_kind(skill: Skill, node: str) -> str:
    """Return `end`, or what a visit of a node does: `phase`, `skill` (a sub-skill) or `fan_out`."""
    return "end" if node == END else skill.node_kind(node)


def state_lines(skill: Skill) -> list[str]:
    """Return a line for each field of the state."""
    lines = []
    for name, field in skill.state.items():
        forms = {"latest": field.latest, "append": field.append, "sum": field.sum, "max": field.max}
        lines.append(f"state {name}: {', '.join(f'{key} {value}' for key, value in forms.items() if value)}")
    return lines


def node_lines(skill: Skill, node: str) -> list[str]:
    """Return what belongs to a node: its transcript, what it runs and how often, fields that ops fill, and checks."""
    fills = skill.nodes[node].fill.items() if node in skill.nodes else ()
    filled = [f"fill {name} from {source}" for name, source in fills]
    phase, lines = skill.phases.get(node), [*_branch_lines(skill, node), *filled, *_check_lines(skill, node)]
    if phase is not None and phase.conversation is not None and phase.conversation.transcript:
        return [f"transcript {phase.conversation.transcript}", *lines]
    return lines


def _check_lines(skill: Skill, node: str) -> list[str]:
    """Return a line for each check of a node."""
    return [f"check {_step_text(step)}" for step in (skill.nodes[node].check if node in skill.nodes else ())]


def _step_text(step: AnyStep) -> str:
    match step:
        case CheckExpression(condition=condition):
            return f"[{' '.join(condition.split())}]"
        case PythonCall(function=function):
            return f"python {function}"
        case RunOp(op=op):
            return " ".join(str(op[key]) for key in ("kind", "op") if key in op)
    return str(step.__struct_config__.tag)


def _branch_lines(skill: Skill, node: str) -> list[str]:
    """Return what a node runs, a line for each kind of branch, and how often it is repeated."""
    settings = skill.fan_out(node)
    if settings is None:
        return _retry_lines(skill, node)
    need = "" if settings.need == "all" else f", need {settings.need}"
    need += "" if settings.on_item_error == "fail" else f", {settings.on_item_error} failures"
    if settings.each is not None:
        each, [branch] = settings.each, settings.branches
        line = f"each {each.items} ⇉ {_branch_text(branch)}, {each.max_parallel} at a time{need}"
        return [line, *_retry_lines(skill, node)]
    *first, last = [f"{branch.name} ⇉ {_branch_text(branch)}" for branch in settings.branches]
    return [*first, f"{last}{need}", *_retry_lines(skill, node)]


def _retry_lines(skill: Skill, node: str) -> list[str]:
    retry = skill.nodes[node].retry if node in skill.nodes else None
    if retry is None:
        return []
    wait = f", after {retry.backoff} or more" if retry.wait_ms(1) else ""
    times = "once" if retry.max == 1 else f"up to {retry.max} times"
    return [f"retry {times} on {', '.join(retry.on)}{wait}"]


def _branch_text(branch: Branch) -> str:
    return f"{branch.do} ({branch.output})" if branch.output else branch.do


def to_text(skill: Skill) -> str:
    """Return a list of the nodes with their outgoing edges."""
    outgoing: dict[str, list[Edge]] = {node: [] for node in nodes(skill) if node != END}
    for edge in edges(skill):
        outgoing[edge.source].append(edge)
    lines = [f"● entry ─▶ {_listed(_entry_edge(skill))}", *(f"  │ {line}" for line in state_lines(skill))]
    for node, leaving in outgoing.items():
        lines.append(node)
        lines += [f"  │ {line}" for line in node_lines(skill, node)]
        for edge in leaving:
            branch = "└─" if edge is leaving[-1] else "├─"
            lines.append(f"  {branch}{'↺' if edge.is_loop else '▶'} {_listed(edge)}")
    return "\n".join(lines) + "\n"


def _listed(edge: Edge) -> str:
    title = "◉ end" if edge.target == END else edge.target
    artifact = f" ({edge.artifact})" if edge.artifact else ""
    return f"{title}{artifact}{f': {edge.choice}' if edge.choice else ''}"


def to_mermaid(skill: Skill) -> str:
    """Return the source of a flowchart. Ids are numbered, because words such as `end` are Mermaid keywords."""

    def escape(text: str) -> str:
        return " ".join(text.split()).translate(_MERMAID_ENTITIES)  # a line break could begin a statement

    ids = {node: f"n{number}" for number, node in enumerate(nodes(skill))}
    begin = "<br/>".join(map(escape, ["entry", *state_lines(skill)]))
    lines = ["flowchart TD", f'    start(["{begin}"])']
    for node, name in ids.items():
        title = "<br/>".join(map(escape, [node, *node_lines(skill, node)]))
        lines.append(f"    {name}{_MERMAID_SHAPES[node_kind(skill, node)].format(title)}")
    for edge in (_entry_edge(skill), *edges(skill)):
        label = f'|"{escape(edge.label)}"|' if edge.label else ""
        arrow = "-.->" if edge.is_loop else "-->"
        lines.append(f"    {ids.get(edge.source, 'start')} {arrow}{label} {ids[edge.target]}")
    return "\n".join(lines) + "\n"


def _entry_edge(skill: Skill) -> Edge:
    return Edge(_START, skill.entry, _artifact_into(skill, skill.entry))


def _artifact_into(skill: Skill, target: str) -> str:
    if target == END:
        return skill.final_output.name
    return skill.phases[target].input_name if target in skill.phases else ""


def _condition(skill: Skill, node: str, target: str) -> str:
    """Return the condition on an edge; the rules that lead to one successor, one after the other."""
    if node in skill.rules:
        rules = enumerate(skill.rules[node], start=1)
        texts = (f"{number}. {rule.when or 'else'}" for number, rule in rules if rule.to == target)
    else:
        texts = (text for text in (skill.conditions.get(node, {}).get(target, ""),) if text)
    return " ".join("; ".join(texts).split())


def _targets_of(skill: Skill, node: str) -> tuple[str, ...]:
    if node == END:
        return ()
    targets = skill.graph.get(node, ())
    finishes = may_finish(skill, node) if node in skill.phases else not targets or END in targets
    return successors(skill, node) + ((END,) if finishes else ())


def _all_targets(skill: Skill, node: str) -> tuple[str, ...]:
    return (*_targets_of(skill, node), *handlers_of(skill, node))


def _walk(skill: Skill) -> tuple[tuple[str, ...], set[tuple[str, str]]]:
    """Traverse the graph depth first; return the nodes in order of discovery, and the edges that lead back."""
    discovered: dict[str, None] = {}
    finished: set[str] = set()
    loops: set[tuple[str, str]] = set()
    # Sorted by name, because equal skills may have their phases in different orders.
    unvisited = phases_of_branches(skill) - skill.graph.keys()
    others = {*skill.phases, *skill.graph, *(name for names in skill.graph.values() for name in names)}
    others -= {END, *unvisited}
    for root in (skill.entry, *sorted(others)):
        if root in discovered:
            continue
        discovered[root] = None
        path = [(root, iter(_all_targets(skill, root)))]
        while path:
            node, targets = path[-1]
            target = next(targets, None)
            if target is None:
                finished.add(node)
                path.pop()
            elif target not in discovered:
                discovered[target] = None
                path.append((target, iter(_all_targets(skill, target))))
            elif target not in finished:
                loops.add((node, target))
    return tuple(discovered), loops
