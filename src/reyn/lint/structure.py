"""Rules on the structure of a skill: features, names, reachability, unions, schemas, the older form."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

from reyn.contract import candidates_of
from reyn.documents import nearest
from reyn.journal import canonical
from reyn.skills import codes, features, may_finish, successors
from reyn.skills.graph import reachable
from reyn.skills.names import nfc
from reyn.skills.values import END, Iterate, RunOp, RunSkill, is_skill_node, skill_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.contract import Candidate
    from reyn.documents import Document, KeyPath, Severity
    from reyn.errors import Finding
    from reyn.skills import LoadResult, Skill
    from reyn.skills.features import Feature
    from reyn.skills.values import AnyStep, ArtifactType
    from reyn.vocabulary import Vocabulary


def older_form(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report everything that is written in the older form."""
    folder = loaded.folder
    for file in ("skill.md", *folder.own_files("phases", ".md"), *folder.own_files("artifacts", ".yaml")):
        folder.read(file)  # the loader reads what the graph reaches
    yield from folder.notes


def unavailable_features(loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report features that no run can execute, at the key that asks for them."""
    skill = loaded.partial
    for feature in features.unavailable_features(skill, vocabulary) if skill else ():
        assert skill is not None
        if feature.skill is None:
            file, path = _file_of(feature.phase), _existing_path(loaded, feature)
            message, fix = f"{feature.name} cannot run: {feature.reason}", "remove it"
        else:
            file, path = _reference_to(skill, feature.skill)
            message = f"skill `{feature.skill}` cannot run: {feature.reason}"
            fix = f"fix the skill `{feature.skill}`, or do not use it"
        document = loaded.folder.read(file)
        if document is not None:
            severity: Severity = "warning" if feature.is_optional else "error"
            yield document.finding(codes.UNSUPPORTED, message, *path, fix=fix, severity=severity)


def _file_of(phase: str | None) -> str:
    return "skill.md" if phase is None else f"phases/{phase}.md"


def _existing_path(loaded: LoadResult, feature: Feature) -> KeyPath:
    """Return the path of a feature; that of the list if steps with errors are missing from it."""
    document = loaded.folder.read(_file_of(feature.phase))
    if document is None or not isinstance(feature.path[-1], int) or loaded.partial is None:
        return feature.path
    phase, postprocessor = loaded.partial.phases.get(feature.phase or ""), loaded.partial.postprocessor
    steps = phase.preprocessor if phase else postprocessor.steps if postprocessor else ()
    return feature.path if len(steps) == len(document.part(*feature.path[:-1]).value) else feature.path[:-1]


def _reference_to(skill: Skill, name: str) -> tuple[str, KeyPath]:
    """Return the file and path at which a skill names a sub-skill; `entry` if it is an indirect one."""
    for node in skill.graph:
        if is_skill_node(node) and skill_of(node) == name:
            return "skill.md", ("graph", node)
    for phase_name, phase in skill.phases.items():
        for index, step in enumerate(phase.preprocessor):
            if _runs(step, name):
                return _file_of(phase_name), ("preprocessor", index)
    for index, step in enumerate(skill.postprocessor.steps if skill.postprocessor else ()):
        if _runs(step, name):
            return "skill.md", ("postprocessor", "steps", index)
    return "skill.md", ("entry",)


def _runs(step: AnyStep, name: str) -> bool:
    inner = step.apply if isinstance(step, Iterate) else step
    return (isinstance(inner, RunSkill) and inner.skill == name) or (
        isinstance(inner, RunOp) and inner.op.get("skill") == name
    )


def folder_name(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report a skill whose name differs from its folder, by which it is found."""
    document, folder = loaded.folder.read("skill.md"), nfc(loaded.folder.path.resolve().name)
    if loaded.partial and document and loaded.partial.name != folder:
        message = f"`name` is `{loaded.partial.name}`, but the folder is `{folder}`"
        fix = "rename one of them; a skill is found by the name of its folder"
        yield document.finding(codes.WRONG_NAME, message, "name", fix=fix, severity="warning")


_GRAPH_ERRORS = {codes.WRONG_VALUE, codes.MISSING_KEY, codes.WRONG_NAME, codes.UNKNOWN_PHASE}


def unreachable_phases(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report phases that the graph never reaches, unless errors in the graph explain it."""
    skill = loaded.partial
    if skill is None or any(
        finding.file == "skill.md" and finding.code in _GRAPH_ERRORS and finding.severity == "error"
        for finding in loaded.findings
    ):
        return
    for file in loaded.folder.own_files("phases", ".md"):
        name = file.removeprefix("phases/").removesuffix(".md")
        document = loaded.folder.read(file)
        if name not in skill.graph and document is not None:
            message = f"phase `{name}` cannot be reached from `{skill.entry}`"
            fix = "add it to `graph`, or delete the file"
            yield document.finding(codes.UNREACHABLE, message, fix=fix, severity="warning")


def ambiguous_unions(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report union members with the same schema and description: the model cannot choose between them."""
    for name, phase in loaded.partial.phases.items() if loaded.partial else ():
        seen: dict[bytes, ArtifactType] = {}
        document = loaded.folder.read(f"phases/{name}.md")
        for member in phase.inputs:
            key = canonical([_without_title(member.schema), member.description])
            other = seen.setdefault(key, member)
            if other is not member and document is not None:
                message = f"`{member.name}` and `{other.name}` have the same schema and description"
                fix = "make the schemas or the descriptions different"
                yield document.finding(codes.AMBIGUOUS_UNION, message, "input", fix=fix)


def edge_texts(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report phases with several candidates whose graph does not say when to choose which."""
    skill, document = loaded.partial, loaded.folder.read("skill.md")
    if skill is None or document is None:
        return
    for node in skill.graph:
        if node not in skill.phases or not all(_is_known(skill, name) for name in successors(skill, node)):
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
        text = unicodedata.normalize("NFKC", candidate.description).casefold()
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


def _is_known(skill: Skill, node: str) -> bool:
    return skill_of(node) in skill.skills if is_skill_node(node) else node in skill.phases


def _edge_path(document: Document, node: str, target: str) -> KeyPath:
    """Return the path in skill.md of an edge; of its phase or the graph if the edge is implied."""
    graph = document.value.get("graph") if isinstance(document.value, dict) else None
    targets = graph.get(node) if isinstance(graph, dict) else None
    if isinstance(targets, list) and target in targets:
        return ("graph", node, targets.index(target))
    if isinstance(targets, dict) and target in targets:
        return ("graph", node, target)
    return ("graph", node) if targets is not None else ("graph",)


def unproduced_reads(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report artifacts that a phase reads and that no path to the phase produces."""
    skill = loaded.partial
    if skill is None or not all(_is_known(skill, node) for node in skill.graph):
        return
    sources: dict[str, list[str]] = {}
    for node in skill.graph:
        for target in successors(skill, node):
            sources.setdefault(target, []).append(node)
    for name, phase in skill.phases.items():
        document = loaded.folder.read(f"phases/{name}.md") if phase.reads else None
        if document is None:
            continue
        before = reachable(sources | {"": sources.get(name, [])}, "")[1:]
        produced = {artifact.name for node in before for artifact in skill.inputs_of(node)}
        raw = document.value["reads"]
        for read in phase.reads:
            if read not in produced:
                message = f"no path to phase `{name}` produces `{read}`"
                known = ", ".join(f"`{one}`" for one in sorted(produced))
                fix = f"read one of {known}" if produced else f"remove `{read}`"
                yield document.finding(codes.UNPRODUCED_READ, message, "reads", raw.index(read), fix=fix)


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


_MAX_KEYS = 200


def _keyword_typos(document: Document, depth: int) -> Iterator[Finding]:
    if not isinstance(document.value, dict) or depth > 8:
        return
    for number, (key, value) in enumerate(document.value.items()):
        is_suspect = key not in KEYWORDS and len(key) >= 4 and number < _MAX_KEYS
        fix = nearest(key, KEYWORDS) if is_suspect else ""
        if fix:
            message = f"`{key}` is not a JSON Schema keyword"
            yield document.finding(codes.UNKNOWN_KEY, message, key, fix=fix, severity="warning")
        if key in ("properties", "$defs", "definitions") and isinstance(value, dict):
            for name in value:
                yield from _keyword_typos(document.part(key, name), depth + 1)
        elif key in ("items", "additionalProperties", "not") and isinstance(value, dict):
            yield from _keyword_typos(document.part(key), depth + 1)


KEYWORDS = frozenset(
    [
        "$schema",
        "$id",
        "$ref",
        "$defs",
        "$anchor",
        "$comment",
        "$dynamicRef",
        "$dynamicAnchor",
        "$vocabulary",
        "definitions",
        "type",
        "enum",
        "const",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "format",
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "items",
        "prefixItems",
        "additionalItems",
        "contains",
        "minContains",
        "maxContains",
        "minItems",
        "maxItems",
        "uniqueItems",
        "minLength",
        "maxLength",
        "pattern",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)


def _without_title(schema: Any) -> Any:
    return {key: value for key, value in schema.items() if key != "title"} if isinstance(schema, dict) else schema
