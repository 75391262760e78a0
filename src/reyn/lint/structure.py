"""Rules about the shape of a skill: phases nobody reaches, unions nobody can choose in, an older way of writing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.documents import nearest
from reyn.errors import SkillUnsupported
from reyn.journal import canonical
from reyn.skills import codes
from reyn.skills.dialect import is_wrapped, step_lists
from reyn.skills.performed import unperformed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.documents import Document
    from reyn.errors import Finding
    from reyn.skills import Reading
    from reyn.skills.values import ArtifactType
    from reyn.vocabulary import Vocabulary


def older_form(reading: Reading, _: Vocabulary) -> Iterator[Finding]:
    if not reading.folder.is_older:
        return
    for file in reading.folder.own("artifacts", ".yaml"):
        document = reading.folder.artifact(file)
        if document and is_wrapped(document.value):
            message = "holds its schema under `schema:`, the older form"
            yield document.finding(codes.OLDER, message, "schema", fix="Write the schema itself.", severity="warning")
    for file in ["skill.md", *reading.folder.own("phases", ".md")]:
        document = reading.folder.front(file)
        for place, steps in step_lists(document.value) if document else ():
            for index, step in enumerate(steps):
                if document and (*place, index, "type") in document.marks and isinstance(step, dict):
                    kind = next(iter(step))
                    message = f"the step is written with `type: {kind}`, the older form"
                    fix = f"Write `- {kind}: {{…}}`."
                    yield document.finding(codes.OLDER, message, *place, index, fix=fix, severity="warning")


def not_performed(reading: Reading, vocabulary: Vocabulary) -> Iterator[Finding]:
    document = reading.folder.front("skill.md")
    for what in unperformed(reading.draft, vocabulary) if reading.draft else ():
        if document is not None:
            message = f"this version does not perform {what}; a run is refused"
            yield document.finding(SkillUnsupported.code, message, severity="warning")


def folder_name(reading: Reading, _: Vocabulary) -> Iterator[Finding]:
    """A skill is found by its folder's name and shown by its own; they had better be the same."""
    document, folder = reading.folder.front("skill.md"), reading.folder.path.resolve().name
    if reading.draft and document and reading.draft.name != folder:
        message = f"`name` is `{reading.draft.name}`, but the folder, by which it is found, is `{folder}`"
        yield document.finding(codes.WRONG_NAME, message, "name", fix="Rename one of them.", severity="warning")


_SPOILS_THE_GRAPH = {codes.WRONG_VALUE, codes.MISSING_KEY, codes.WRONG_NAME, codes.UNKNOWN_PHASE}


def unreachable_phases(reading: Reading, _: Vocabulary) -> Iterator[Finding]:
    skill = reading.draft
    if skill is None or any(f.file == "skill.md" and f.code in _SPOILS_THE_GRAPH for f in reading.findings):
        return  # with a graph that could not be read, nothing can be said about what it reaches
    for file in reading.folder.own("phases", ".md"):
        name = file.removeprefix("phases/").removesuffix(".md")
        document = reading.folder.front(file)
        if name not in skill.graph and document is not None:
            message = f"the phase `{name}` is never reached from `{skill.entry}`"
            fix = "Lead to it in `graph`, or delete the file."
            yield document.finding(codes.UNREACHABLE, message, fix=fix, severity="warning")


def unions_alike(reading: Reading, _: Vocabulary) -> Iterator[Finding]:
    """Two members with the same schema and the same description: the model has nothing to choose by."""
    for name, phase in reading.draft.phases.items() if reading.draft else ():
        seen: dict[bytes, ArtifactType] = {}
        document = reading.folder.front(f"phases/{name}.md")
        for member in phase.inputs:
            look = _looks(member)
            other = seen.get(look)
            seen.setdefault(look, member)
            if other is not None and document is not None:
                message = f"a model cannot tell `{member.name}` from `{other.name}`"
                fix = "Give them different schemas or descriptions."
                yield document.finding(codes.SAME_UNION, message, "input", fix=fix)


def schema_typos(reading: Reading, _: Vocabulary) -> Iterator[Finding]:
    """A keyword that no draft has, but that looks like one: a validator passes over it without a word."""
    for file in reading.folder.own("artifacts", ".yaml"):
        document = reading.folder.artifact(file)
        if document is None or not isinstance(document.value, dict):
            continue
        wrapped = is_wrapped(document.value)
        if "schema" in document.value and not wrapped:
            yield document.finding(
                codes.MISSING_KEY, "has a `schema` but no `name`", "schema", fix="Write the schema itself."
            )
        for key in document.value.keys() - {"name", "schema", "description", "wrapped"} if wrapped else ():
            message = f"unknown key `{key}` beside `schema`"
            yield document.finding(codes.UNKNOWN_KEY, message, key, severity="warning")
        yield from _keyword_typos(document.part("schema") if wrapped else document, 0)


_MOST_KEYS = 200


def _keyword_typos(document: Document, depth: int) -> Iterator[Finding]:
    if not isinstance(document.value, dict) or depth > 8:
        return
    for number, (key, value) in enumerate(document.value.items()):
        is_odd = key not in KEYWORDS and len(key) >= 4 and number < _MOST_KEYS
        guess = nearest(key, KEYWORDS) if is_odd else ""
        if guess:
            message = f"`{key}` is no keyword of JSON Schema"
            yield document.finding(codes.UNKNOWN_KEY, message, key, fix=guess, severity="warning")
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


def _looks(artifact: ArtifactType) -> bytes:
    return canonical([_bare(artifact.schema), artifact.description])


def _bare(schema: Any) -> Any:
    """A schema without its titles."""
    return {key: value for key, value in schema.items() if key != "title"} if isinstance(schema, dict) else schema
