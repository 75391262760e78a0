"""Rules on the structure of a skill: features, names, reachability, unions, schemas, model classes, the older form."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from reyn.contract import Candidate, candidates_of
from reyn.documents import Document, KeyPath, Severity, nearest
from reyn.documents.unicode_forms import to_normal_form
from reyn.errors import Finding, SkillInvalid, SkillNotFound, codes
from reyn.journal import canonical
from reyn.skills import LoadResult, Skill, inputs, may_finish, successors
from reyn.skills.artifacts import unread_fix
from reyn.skills.edges import NO_EDGES, read_edges
from reyn.skills.graph import is_known, predecessors
from reyn.skills.node_reader import unreadable_nodes
from reyn.skills.state_fields import state_name
from reyn.skills.step_types import RunOp, RunSkill
from reyn.skills.values import END, ArtifactType, is_skill_node, skill_of

if TYPE_CHECKING:
    from reyn.skills.inputs import Feature
    from reyn.vocabulary import Vocabulary


def older_form(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report everything that is written in the older form."""
    folder = loaded.folder
    for file in ("skill.md", *folder.own_files("phases", ".md"), *folder.own_files("artifacts", ".yaml")):
        folder.read(file)  # the loader reads what the graph reaches
    yield from folder.notes


def features_without_support(skill: Skill, loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report features that no run can execute, at the key that asks for them."""
    for feature in inputs.unavailable_features(skill, vocabulary):
        if feature.skill is None:
            phase, path = feature.phase, _existing_path(skill, loaded, feature)
            message, fix = f"{feature.name} cannot run: {feature.reason}", "remove it"
        else:
            phase, path = _reference_to(skill, feature.skill)
            message = f"skill `{feature.skill}` cannot run: {feature.reason}"
            fix = f"fix the skill `{feature.skill}`, or do not use it"
        severity: Severity = "warning" if feature.is_optional else "error"
        yield loaded.document(phase).finding(codes.UNSUPPORTED, message, *path, fix=fix, severity=severity)


def sub_skill_errors(loaded: LoadResult, name: str, findings: list[Finding]) -> Iterator[Finding]:
    """Report a skill that the skill runs and that has errors, at the key that names it."""
    # `features_without_support` looks into sub-skills itself.
    errors = sum(finding.severity == "error" and finding.code != codes.UNSUPPORTED for finding in findings)
    if errors and loaded.partial is not None:
        phase, path = _reference_to(loaded.partial, name)
        message = f"skill `{name}` has {'1 error' if errors == 1 else f'{errors} errors'}"
        yield loaded.document(phase).finding(SkillInvalid.code, message, *path, fix=f"fix the skill `{name}` first")


def _existing_path(skill: Skill, loaded: LoadResult, feature: Feature) -> KeyPath:
    """Return the path of a feature; that of the list if steps with errors are missing from it."""
    place = (feature.phase, feature.path[:-1])
    valid = sum((placed.phase, placed.path[:-1]) == place for placed in skill.steps)
    written = loaded.document(feature.phase).part(*feature.path[:-1]).value
    return feature.path if valid == len(written) else feature.path[:-1]


def _reference_to(skill: Skill, name: str) -> tuple[str | None, KeyPath]:
    """Return the phase, if any, and the path at which a skill names a sub-skill; `entry` if it is an indirect one."""
    for node in skill.graph:
        if is_skill_node(node) and skill_of(node) == name:
            return None, ("graph", node)
    for placed in skill.steps:
        match placed.applied:
            case RunSkill(skill=used) if used == name:
                return placed.phase, placed.path
            case RunOp(op={"skill": used}) if used == name:
                return placed.phase, placed.path
    return None, ("entry",)


_GRAPH_ERRORS = {
    *(codes.WRONG_VALUE, codes.MISSING_KEY, codes.WRONG_NAME, codes.UNKNOWN_PHASE),
    *(codes.BAD_BRANCHES, codes.BAD_RULE, SkillNotFound.code),
}


def unreachable_phases(skill: Skill, loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report phases that the graph never reaches, unless errors in the graph explain it."""
    front = loaded.document()
    errors = (one for one in loaded.findings if one.file == "skill.md" and one.severity == "error")
    if any(one.code in _GRAPH_ERRORS for one in errors) or unreadable_nodes(front):
        return
    if not all(edges.is_readable for edges in read_edges(front)[0].values()):
        return
    for file in loaded.folder.own_files("phases", ".md"):
        name = file.removeprefix("phases/").removesuffix(".md")
        document = loaded.folder.read(file)
        if name not in skill.graph and name not in skill.phases and document is not None:
            message = f"phase `{name}` cannot be reached from `{skill.entry}`"
            fix = "add it to `graph`, or delete the file"
            yield document.finding(codes.UNREACHABLE, message, fix=fix, severity="warning")


def ambiguous_unions(skill: Skill, loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report union members with the same schema and description: the model cannot choose between them."""
    for name, phase in skill.phases.items():
        seen: dict[bytes, ArtifactType] = {}
        for member in phase.inputs:
            other = seen.setdefault(canonical([_without_title(member.schema), member.description]), member)
            if other is not member:
                message = f"`{member.name}` and `{other.name}` have the same schema and description"
                fix = "make the schemas or the descriptions different"
                yield loaded.document(name).finding(codes.AMBIGUOUS_UNION, message, "input", fix=fix)


def edge_texts(skill: Skill, loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report phases with several candidates whose graph does not say when to choose which."""
    document = loaded.document()
    edges = read_edges(document)[0]
    for node in skill.graph:
        if (
            skill.node_kind(node) != "phase"
            or node not in skill.phases
            or not edges.get(node, NO_EDGES).is_readable
            or not all(is_known(skill, name) for name in successors(skill, node))
        ):
            continue
        targets = [*successors(skill, node), *([END] if may_finish(skill, node) else [])]
        texts = skill.edge_texts.get(node, {})
        missing = [name for name in targets if name not in texts]
        if len(targets) > 1 and missing:
            names = ", ".join(f"`{name}`" for name in missing)
            message = f"phase `{node}` has {len(targets)} candidates; the graph does not say when to choose {names}"
            example = ", ".join(f"{name}: {texts.get(name, 'when …')}" for name in targets)
            path = _edge_path(document, node, missing[0])
            yield document.finding(
                codes.MISSING_EDGE_TEXT, message, *path, fix=f"write `{node}: {{{example}}}`", severity="warning"
            )
        yield from _equal_texts(document, skill, node, texts)


def _equal_texts(document: Document, skill: Skill, node: str, texts: dict[str, str]) -> Iterator[Finding]:
    """Report candidates of a phase whose texts are equal but for case, width, spaces and punctuation.

    The members of a union that is the only successor need no text in the graph, but descriptions of their own.
    """
    candidates = candidates_of(skill, node)
    is_one_union = len({candidate.next_phase for candidate in candidates}) == 1
    seen: dict[str, Candidate] = {}
    for candidate in candidates:
        if candidate.next_phase not in texts and not is_one_union:
            continue
        text = to_normal_form("NFKC", candidate.description).casefold()
        words = "".join(char if char.isalnum() else " " for char in text).split()
        other = seen.setdefault(" ".join(words), candidate)
        is_union = other.next_phase == candidate.next_phase
        if is_one_union and _without_title(other.artifact_schema) == _without_title(candidate.artifact_schema):
            continue  # `ambiguous_unions` reports it
        if other is not candidate:
            message = f"`{other.label}` and `{candidate.label}` have the same text: {candidate.description!r}"
            fix = "describe the artifact types" if is_union else "say what distinguishes them"
            path = _edge_path(document, node, candidate.next_phase)
            yield document.finding(codes.EQUAL_EDGE_TEXTS, message, *path, fix=fix, severity="warning")


def _edge_path(document: Document, node: str, target: str) -> KeyPath:
    """Return the path in skill.md of an edge; of its phase or the graph if the edge is implied."""
    graph = document.value.get("graph") if isinstance(document.value, dict) else None
    targets = graph.get(node) if isinstance(graph, dict) else None
    if isinstance(targets, list) and target in targets:
        return ("graph", node, targets.index(target))
    if isinstance(targets, dict) and target in targets:
        return ("graph", node, target)
    return ("graph", node) if targets is not None else ("graph",)


def unproduced_reads(skill: Skill, loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report artifacts that a phase reads and that no path to the phase produces."""
    if not all(is_known(skill, node) for node in skill.graph):
        return
    for name, phase in skill.phases.items():
        before = predecessors(skill, name) if phase.reads else []
        produced = {artifact.name for node in before for artifact in skill.inputs_of(node)}
        for read in phase.reads:
            if read not in produced and not state_name(read):
                document = loaded.document(name)
                message = f"no path to phase `{name}` produces `{read}`"
                known = ", ".join(f"`{one}`" for one in sorted(produced))
                fix = f"read one of {known}" if produced else f"remove `{read}`"
                path = ("reads", document.value["reads"].index(read))
                yield document.finding(codes.UNPRODUCED_READ, message, *path, fix=fix)


def schema_typos(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report keys that look like misspelt JSON Schema keywords, which a validator ignores."""
    for file in loaded.folder.own_files("artifacts", ".yaml"):
        document = loaded.folder.read(file)
        if document is None or not isinstance(document.value, dict):
            continue
        if "schema" in document.value:
            message, fix = "`schema` without `name`", "write the schema itself"
            yield document.finding(codes.MISSING_KEY, message, "schema", fix=fix)
        yield from _keyword_typos(document, 0)


def unread_files(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report files whose ending is not that of a phase or an artifact."""
    for folder, ending in (("phases", ".md"), ("artifacts", ".yaml")):
        for file in loaded.folder.own_files(folder, ""):
            if not file.endswith((ending, "~")) and "/." not in file:
                message = f"`{file}` is not read: its name does not end with `{ending}`"
                yield Finding(file, 1, 1, codes.UNREAD_FILE, message, unread_fix(file), "warning")


def split_values(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report texts in `{…}` that a comma split."""
    folder = loaded.folder
    for file in ("skill.md", *folder.own_files("phases", ".md"), *folder.own_files("artifacts", ".yaml")):
        if (document := folder.read(file)) is None:
            continue
        for split in document.splits:
            text = f"{split.left}, {split.rest}"
            message = f"the comma ends `{split.key}`: its value is {split.left!r}, and {split.rest!r} is a key"
            fix = f"quote the text: `{split.key}: {_quoted(text)}`"
            yield Finding(document.file, *split.at, codes.SPLIT_VALUE, message, fix, "warning")


def _quoted(text: str) -> str:
    return f"'{text}'" if "'" not in text else canonical(text).decode()


_FOREIGN_KEYWORDS = {
    "fields": "write `properties`",
    "parameters": "write `properties`",
    "input_schema": "write the schema itself",
    "output_schema": "write the schema itself",
}
"""Keys under which other programs have what `properties` has in a JSON Schema."""
_MAX_KEYS = 200


def _keyword_typos(document: Document, depth: int) -> Iterator[Finding]:
    if not isinstance(document.value, dict) or depth > 8:
        return
    for number, (key, value) in enumerate(document.value.items()):
        is_suspect = key not in KEYWORDS and len(key) >= 4 and number < _MAX_KEYS
        fix = _FOREIGN_KEYWORDS.get(key, "") if "properties" not in document.value else ""
        fix = fix or (nearest(key, KEYWORDS) if is_suspect else "")
        if fix:
            message = f"`{key}` is not a JSON Schema keyword"
            yield document.finding(codes.UNKNOWN_KEY, message, key, fix=fix, severity="warning")
        if key in ("properties", "$defs", "definitions") and isinstance(value, dict):
            for name in value:
                yield from _keyword_typos(document.part(key, name), depth + 1)
        elif key in ("items", "additionalProperties", "not") and isinstance(value, dict):
            yield from _keyword_typos(document.part(key), depth + 1)


KEYWORDS = {
    "$schema", "$id", "$ref", "$defs", "$anchor", "$comment", "$dynamicRef", "$dynamicAnchor", "$vocabulary",
    "definitions", "type", "enum", "const", "title", "description", "default", "examples", "deprecated", "readOnly",
    "writeOnly", "format", "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
    "minProperties", "maxProperties", "dependencies", "dependentRequired", "dependentSchemas", "items", "prefixItems",
    "additionalItems", "contains", "minContains", "maxContains", "minItems", "maxItems", "uniqueItems", "minLength",
    "maxLength", "pattern", "contentEncoding", "contentMediaType", "contentSchema", "minimum", "maximum",
    "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "allOf", "anyOf", "oneOf", "not", "if", "then", "else",
    "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip


def _without_title(schema: Any) -> Any:
    return {key: value for key, value in schema.items() if key != "title"} if isinstance(schema, dict) else schema


def unknown_classes(loaded: LoadResult, classes: Collection[str]) -> Iterator[Finding]:
    """Report model classes of a skill and its phases that the configuration does not define."""
    document = loaded.folder.read("skill.md")
    phases = loaded.partial.phases if loaded.partial else ()
    for one in (document, *map(loaded.document, phases)):
        if one is not None:
            yield from unknown_class(one, classes)


def unknown_class(document: Document, classes: Collection[str]) -> Iterator[Finding]:
    """Report the model class of a document if the configuration does not define it: the default model answers."""
    value = document.value.get("model_class") if isinstance(document.value, dict) else None
    if isinstance(value, str) and value not in classes:
        fix = nearest(value, classes) or f"add `{value}` to `models` in reyn.yaml, such as `{value}: openai:NAME`"
        message = f"model class `{value}` is not configured; the default model answers instead"
        yield document.finding(codes.UNKNOWN_MODEL_CLASS, message, "model_class", fix=fix, severity="warning")
