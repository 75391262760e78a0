"""`graph` of skill.md as authors write it: the successors of each node, and what decides between them.

A node has a list of successors, a mapping that says when the model may choose which, or a list of rules, in which case
no model decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from reyn.documents import Severity, TrustClasses, check_keys, fields_of, trust_classes, usable_keys
from reyn.errors import Finding, codes
from reyn.skills.front_matter import FRONT_MATTER, PhaseFrontMatter
from reyn.skills.values import NodeSettings

if TYPE_CHECKING:
    from reyn.documents import Document, KeyPath


class EdgeSection(msgspec.Struct, frozen=True):
    """An edge of a phase whose candidate depends on a condition: `pay: {text: …, when: …}`."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="text when")

    text: str = ""
    when: str | None = None


class ArtifactSection(msgspec.Struct, frozen=True):
    """The artifact that a rule makes."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="type data")

    type: str
    data: Any = None


class WhenSection(msgspec.Struct, frozen=True):
    """A rule with a condition."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="when to", section="artifact")

    when: str
    to: str
    artifact: ArtifactSection | None = None


class ElseSection(msgspec.Struct, frozen=True, rename={"to": "else"}):
    """The last rule, which needs no condition."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="else", section="artifact")

    to: str
    artifact: ArtifactSection | None = None


class NodeEdges(NamedTuple):
    """The edges of a node.

    Attributes:
        targets: The path in skill.md that names each successor, in the author's order.
        texts: When the model chooses a successor, in words.
        conditions: When it may, as an expression.
        rules: The rules of a node without a model, by their index.
        is_readable: Whether every part of them could be read.
    """

    targets: Mapping[str, KeyPath] = {}
    texts: Mapping[str, str] = {}
    conditions: Mapping[str, str] = {}
    rules: Mapping[int, WhenSection | ElseSection] = {}
    is_readable: bool = True


NO_EDGES = NodeEdges()


def read_edges(document: Document) -> tuple[dict[str, NodeEdges], list[Finding]]:
    """Return the edges of every node that skill.md names as a key of `graph`, and every finding."""
    graph = document.value.get("graph") if isinstance(document.value, dict) else None
    findings: list[Finding] = []
    found = {}
    for node, edges in graph.items() if isinstance(graph, dict) else ():
        part = document.part("graph", node)
        if isinstance(edges, dict):
            found[node] = _choices(part, findings)
        elif isinstance(edges, list):
            is_rules = any(isinstance(one, dict) for one in edges)
            found[node] = _rules(part, findings) if is_rules else _successors(part, findings)
        else:
            fix = f"write `{node}: [{edges}]`" if isinstance(edges, str) else "write a list of phases"
            message = f"the successors of `{node}` must be a list, a mapping to when to choose each, or a list of rules"
            findings.append(part.finding(codes.WRONG_VALUE, message, fix=fix))
            found[node] = NodeEdges(is_readable=False)
    return found, findings


def _successors(part: Document, findings: list[Finding]) -> NodeEdges:
    """Read `draft: [review, end]`."""
    targets: dict[str, KeyPath] = {}
    for index, target in enumerate(part.value):
        if isinstance(target, str):
            targets.setdefault(target, (*part.prefix, index))
        else:
            findings.append(part.finding(codes.WRONG_VALUE, f"{target!r} is not a phase name", index))
    return NodeEdges(targets)


def _choices(part: Document, findings: list[Finding]) -> NodeEdges:
    """Read `review: {draft: it needs work, end: {text: it is ready, when: "data.score > 3"}}`."""
    targets: dict[str, KeyPath] = {}
    texts, conditions, before = {}, {}, len(findings)
    for target, choice in part.value.items():
        if not isinstance(target, str):
            findings.append(part.finding(codes.WRONG_VALUE, f"{target!r} is not a phase name"))
            continue
        targets[target] = (*part.prefix, target)
        text = choice
        if isinstance(choice, dict):
            section = part.part(target)
            findings += check_keys(section, EdgeSection, FRONT_MATTER)
            edge = EdgeSection(**usable_keys(section, EdgeSection) or {})
            text = edge.text
            if edge.when is not None:
                conditions[target] = edge.when
        elif choice is not None and not isinstance(choice, str):
            message, fix = f"{choice!r} does not say when to choose `{target}`", "write a text"
            findings.append(part.finding(codes.WRONG_VALUE, message, target, fix=fix))
        if isinstance(text, str) and text.strip():
            texts[target] = text.strip()
    return NodeEdges(targets, texts, conditions, is_readable=len(findings) == before)


_RULE = "write `{when: EXPRESSION, to: NODE}` or, at the end, `{else: NODE}`"


def _rules(part: Document, findings: list[Finding]) -> NodeEdges:
    """Read `score: [{when: "data.score >= 0.8", to: publish}, {else: escalate}]`."""
    targets: dict[str, KeyPath] = {}
    rules: dict[int, WhenSection | ElseSection] = {}
    last = len(part.value) - 1
    for index, rule in enumerate(part.value):
        if not isinstance(rule, dict):
            findings.append(part.finding(codes.BAD_RULE, f"{rule!r} is not a rule", index, fix=_RULE))
            continue
        section = part.part(index)
        shape: type[WhenSection | ElseSection] = ElseSection if _is_else(rule, is_last=index == last) else WhenSection
        found = check_keys(section, shape, FRONT_MATTER)
        findings += [*found, *_misplaced(section, is_last=index == last)]
        usable = usable_keys(section, shape)
        if usable is None:
            continue
        one = shape(**usable)
        targets.setdefault(one.to, (*section.prefix, "else" if shape is ElseSection else "to"))
        if not found:  # a rule with errors only leads to its target
            rules[index] = one
    if last >= 0 and isinstance(part.value[last], dict) and not _is_else(part.value[last], is_last=True):
        node = part.prefix[-1]
        fix = "end the list with `{else: NODE}`"
        findings.append(part.finding(codes.BAD_RULE, f"the rules of `{node}` have no `else`", fix=fix))
    return NodeEdges(targets, rules=rules, is_readable=len(rules) == len(part.value))


def _is_else(rule: dict[str, Any], *, is_last: bool) -> bool:
    """Return whether a rule is `else`, or is meant to be."""
    return "else" in rule or (is_last and not rule.keys() & {"when", "to"})


def _misplaced(section: Document, *, is_last: bool) -> Iterator[Finding]:
    """Report an `else` that is not the last rule."""
    if "else" in section.value and not is_last:
        message = "no rule after `else` is ever tried"
        yield section.finding(codes.BAD_RULE, message, "else", fix="move `else` to the end of the list")


_ARRIVAL_KEYS = ("type", "name", "input", "preprocessor")


def without_model(document: Document, node: str, *, has_rules: bool) -> Iterator[Finding]:
    """Report what a phase has that only a model needs, although its node has rules, or runs branches."""
    message = f"node `{node}` {'has rules' if has_rules else 'runs branches'} and calls no model"
    severity: Severity
    code, severity = (codes.BAD_RULE, "error") if has_rules else (codes.BAD_BRANCHES, "warning")
    if document.body.strip():
        fix = "remove the text below the front matter"
        line = document.body_line
        yield Finding(document.file, line, 1, code, f"{message}, so nothing reads its instructions", fix, severity)
    for key in document.value if isinstance(document.value, dict) else ():
        if key not in _ARRIVAL_KEYS and key in PhaseFrontMatter.__struct_fields__:
            says = f"{message}, so `{key}` has no effect"
            yield document.finding(code, says, key, fix=f"remove `{key}`", severity=severity)


_BRANCH_KEYS = {"each", "all", "as", "need", "on_item_error"}
_NODE_KEYS = {one.encode_name for one in fields_of(NodeSettings)}


def may_run_branches(document: Document, node: str) -> bool:
    """Return whether the author may have meant a node to run branches: settings in skill.md may have errors."""
    keys = document.value if isinstance(document.value, dict) else {}
    nodes, graph = keys.get("nodes", {}), keys.get("graph")
    if not isinstance(nodes, dict):
        return True
    if node in nodes:
        return _may_be_branches(nodes[node])
    named = graph if isinstance(graph, dict) else {}
    return any(_may_be_branches(one) for name, one in nodes.items() if name not in named)  # a misspelt name


def _may_be_branches(settings: Any) -> bool:
    return not isinstance(settings, dict) or not settings.keys() <= _NODE_KEYS - _BRANCH_KEYS
