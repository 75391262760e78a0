"""Rules on the nodes of skill.md that run branches: what goes into them, what comes out, and the files they write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from reyn.documents import nearest
from reyn.errors import Finding, codes
from reyn.jsonschema.fitting import misfit
from reyn.skills.artifacts import ANY_OBJECT
from reyn.skills.fan_out import MAX_ITEMS, branch_skill, joined_schema
from reyn.skills.flow import follow, schema_at
from reyn.skills.graph import is_known
from reyn.skills.state import state_schema
from reyn.skills.step_types import RunOp
from reyn.skills.values import ArtifactType, Branch, NodeSettings, Skill, is_skill_node

if TYPE_CHECKING:
    from reyn.documents import Document, KeyPath
    from reyn.jsonschema import Schema
    from reyn.skills import LoadResult
    from reyn.vocabulary import Vocabulary


def fan_outs(skill: Skill, loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report branches that cannot take what arrives, joins that do not fit their type, and files written twice."""
    document = loaded.document()
    for node, settings in skill.nodes.items():
        if settings.is_fan_out and node in skill.phases and settings.joined in skill.types:
            if all(is_known(skill, branch.do) for branch in settings.branches):
                yield from _inputs(skill, node, settings, document)
                yield from _joined(skill, node, settings, document)
                yield from _shared_files(skill, node, settings, document)
        elif settings.is_fan_out and node not in skill.graph:
            message = f"no node `{node}` in the graph"
            fix = nearest(node, skill.graph) or f"add `{node}: [NEXT]` to `graph`"
            yield document.finding(codes.BAD_BRANCHES, message, "nodes", node, fix=fix)


def _path(node: str, settings: NodeSettings, branch: Branch) -> KeyPath:
    return ("nodes", node, "all", branch.name) if settings.all else ("nodes", node, "each", "do")


def _inputs(skill: Skill, node: str, settings: NodeSettings, document: Document) -> Iterator[Finding]:
    """Report a list that does not exist, and branches that do not accept what they are given."""
    phase, state = skill.phases[node], state_schema(skill.state, skill.types) if skill.state else None
    arriving = [follow(one, phase.preprocessor, skill.result_of, state)[0] for one in phase.inputs]
    for branch in settings.branches:
        accepted = branch_skill(skill, branch).entry_inputs
        if settings.each is None:
            for one in phase.inputs:
                yield from _accepts(branch, one, accepted, _path(node, settings, branch), document)
            continue
        path, found = settings.each.items, [schema_at(one, settings.each.items) for one in arriving]
        lists = [one for one in found if one is True or (isinstance(one, dict) and _may_be(one, "array"))]
        if not lists:
            problem = "does not exist" if all(one is False for one in found) else "is not a list"
            fix = "write the path of a list in the artifact that arrives, such as `data.items`"
            yield document.finding(codes.BAD_BRANCHES, f"`{path}` {problem}", "nodes", node, "each", "in", fix=fix)
        yield from _never_met(node, settings, lists, document)
        for schema in lists:
            items = schema.get("items", True) if isinstance(schema, dict) else True
            yield from _accepts_item(branch, items, accepted, _path(node, settings, branch), document)


def _never_met(node: str, settings: NodeSettings, lists: Sequence[Schema], document: Document) -> Iterator[Finding]:
    """Report a join that needs more branches than a list can have items."""
    caps = [one.get("maxItems", MAX_ITEMS) if isinstance(one, dict) else MAX_ITEMS for one in lists]
    most = max(caps, default=MAX_ITEMS)
    if isinstance(settings.need, int) and settings.need > most:
        message = f"`{node}` needs {settings.need} branches, but there are at most {most}: the join is never met"
        fix = f"write a number up to {most}, `any` or `all`"
        yield document.finding(codes.BAD_BRANCHES, message, "nodes", node, "need", fix=fix)


def _may_be(schema: dict[str, Any], kind: str) -> bool:
    types = schema.get("type", kind)
    return kind in (types if isinstance(types, list) else [types])


def _accepts(
    branch: Branch, arriving: ArtifactType, accepted: tuple[ArtifactType, ...], path: KeyPath, document: Document
) -> Iterator[Finding]:
    """Report a branch of `all` that does not accept the artifact of the node."""
    own = next((one for one in accepted if one.name == arriving.name), None)
    names = " | ".join(one.name for one in accepted)
    if own is None and ANY_OBJECT not in (arriving, *accepted):
        message = f"the branch `{branch.do}` takes `{names}`, but `{arriving.name}` arrives at the node"
        fix = f"add `{arriving.name}` to the `input` of its entry"
        yield document.finding(codes.BAD_BRANCHES, message, *path, fix=fix)


def _accepts_item(
    branch: Branch, items: Schema, accepted: tuple[ArtifactType, ...], path: KeyPath, document: Document
) -> Iterator[Finding]:
    """Report a branch of `each` that accepts no item: text, the data of its input, or a whole artifact."""
    if not isinstance(items, dict) or not _may_be(items, "object"):
        if isinstance(items, dict) and not _may_be(items, "string"):
            message = f"an item is of type {items['type']}; a branch takes text or an object"
            fix = "make the items objects with the fields of the branch's input"
            yield document.finding(codes.BAD_BRANCHES, message, *path, fix=fix)
        elif isinstance(items, dict) and all(one.name != "user_message" for one in accepted):
            names = " | ".join(one.name for one in accepted)
            message = f"an item is text, which is a `user_message`; the branch `{branch.do}` takes `{names}`"
            fix = "make the items objects with the fields of the branch's input"
            yield document.finding(codes.BAD_BRANCHES, message, *path, fix=fix)
        return
    properties = items.get("properties", {})
    if len(accepted) != 1 or {"type", "data"} <= properties.keys() or not properties:
        return
    found = misfit(items, accepted[0].schema, "an item")
    if found is not None:
        message = f"{found.path} {found.message}; the branch `{branch.do}` takes `{accepted[0].name}`"
        fix = f"make the items objects with the fields of `{accepted[0].name}`"
        yield document.finding(codes.BAD_BRANCHES, message, *path, fix=fix)


def _joined(skill: Skill, node: str, settings: NodeSettings, document: Document) -> Iterator[Finding]:
    """Report a declared type that does not accept the joined artifact."""
    results = {branch.name: branch_skill(skill, branch).result for branch in settings.branches}
    found = misfit(joined_schema(settings, results), skill.types[settings.joined].schema)
    if found is not None:
        message = f"`{settings.joined}` does not fit what the branches return: {found.path} {found.message}"
        fix = f"correct `artifacts/{settings.joined}.yaml`, or delete it: its schema is derived then"
        yield document.finding(codes.BAD_BRANCHES, message, "nodes", node, "as", fix=fix)


def _shared_files(skill: Skill, node: str, settings: NodeSettings, document: Document) -> Iterator[Finding]:
    """Report files that steps of several branches write: a literal path, of `each` or of two branches of `all`."""
    writers: dict[str, Branch] = {}
    for branch in settings.branches:
        for path in dict.fromkeys(_written_files(branch_skill(skill, branch))):
            other = writers.setdefault(path, branch)
            if settings.each is not None or other is not branch:
                names = "every branch writes" if settings.each else f"`{other.name}` and `{branch.name}` both write"
                fix = "give each branch a path of its own, or write `workspace:` files"
                yield document.finding(codes.BAD_BRANCHES, f"{names} `{path}`", *_path(node, settings, branch), fix=fix)


def _written_files(skill: Skill) -> Iterator[str]:
    """Yield the literal paths that steps of a skill write in files that all its runs share."""
    for placed in skill.steps:
        step = placed.applied
        if (
            isinstance(step, RunOp)
            and step.op.get("kind") == "file"
            and step.op.get("op") in ("write", "edit", "delete")
        ):
            path = step.op.get("path")
            if isinstance(path, str) and not path.startswith("workspace:") and "${" not in path:
                yield path


def phase_branches(skill: Skill) -> dict[str, Branch]:
    """Return the phases that only branches run, each with a branch that does."""
    found = (branch for settings in skill.nodes.values() for branch in settings.branches)
    return {one.do: one for one in found if not is_skill_node(one.do) and one.do not in skill.graph}
