"""Rules on the ops of a visit: the fields that they fill, and those that instructions ask for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from reyn.contract import candidates_of
from reyn.documents import Document, KeyPath, nearest
from reyn.errors import Finding, codes
from reyn.lint.nodes import phase_branches
from reyn.skills.allowed_ops import OPS, FillSource, parse_source
from reyn.skills.fan_out import branch_skill
from reyn.skills.flow import schema_at

if TYPE_CHECKING:
    from reyn.skills import LoadResult, Skill
    from reyn.skills.values import Phase
    from reyn.vocabulary import Vocabulary

_SENTENCE = re.compile(r"(?:[^.!?;\n]|[.](?=\w)|\n(?![\s*#>|-]|\d+[.)]))+")
"""A sentence of a text in Markdown. A line that begins an item or a paragraph begins a sentence; a point in a name ends
none."""
_IS_OPEN = re.compile(
    r"\b(?:if|unless|when|whether|where|may|might|can|could|should|only|no|not|never|without|need\w*|missing|unclear"
    r"|necessary|possible|or)\b|n't\b",
    re.IGNORECASE,
)
"""A sentence with such a word leaves open whether to act."""
_MAX_SENTENCE = 2_000
"""No request for an op is longer."""
_BEGINS = r"(?:^[\s*>#-]*(?:\d+[.)]\s*)?|\b(?:and|then|must|always|first|now)\s+|,\s*)"
"""What comes before an imperative."""


def fills(skill: Skill, loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report fields that no op can fill."""
    document, branches = loaded.document(None), phase_branches(skill)
    for node, settings in skill.nodes.items():
        if node not in skill.graph and node not in branches:
            if not settings.is_fan_out:  # else `nodes.fan_outs` reports it
                message, fix = f"no phase `{node}` in the graph", nearest(node, skill.phases)
                yield document.finding(codes.BAD_FILL, message, "nodes", node, fix=fix)
        elif settings.fill and skill.node_kind(node) != "phase":
            message = f"no op can fill a field of `{node}`, which calls no model"
            yield document.finding(codes.BAD_FILL, message, "nodes", node)
        elif node in skill.phases:
            owner = branch_skill(skill, branches[node]) if node in branches else skill
            for field, text in settings.fill.items():
                yield from _check_field(owner, node, field, text, document, vocabulary)


def _check_field(
    skill: Skill, node: str, field: str, text: str, document: Document, vocabulary: Vocabulary
) -> Iterator[Finding]:
    path, phase = ("nodes", node, "fill", field), skill.phases[node]
    source = parse_source(text, vocabulary)
    if source is None:
        yield _unknown_source(text, path, document, vocabulary)
        return
    kind = source.name if vocabulary.op(source.name) is not None else source.name.rpartition(".")[0]
    if kind not in phase.allowed_ops or not phase.max_act_turns:
        message = f"`{field}` cannot be filled: the phase `{node}` does not allow `{kind}`"
        yield document.finding(codes.BAD_FILL, message, *path, fix=f"add `{kind}` to `allowed_ops` of the phase")
    words = ".".join(source.path)
    if not any(schema_at(schema, words) is not False for schema in (source.form.result, source.form.arguments)):
        fields = [*source.form.result["properties"], *source.form.arguments["properties"]]
        fix = nearest(source.path[0], fields) or f"the fields are {', '.join(dict.fromkeys(fields))}"
        yield document.finding(codes.BAD_FILL, f"`{source.name}` has no field `{words}`", *path, fix=fix)
    is_required = False
    for candidate in candidates_of(skill, node):
        schema = candidate.artifact_schema
        properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
        if field not in properties:
            message = f"`{candidate.schema_name}`, which can follow `{node}`, has no field `{field}`"
            fix = nearest(field, properties) or f"add `{field}` to its `properties`"
            yield document.finding(codes.BAD_FILL, message, *path, fix=fix)
        is_required = is_required or (isinstance(schema, dict) and field in schema.get("required", ()))
    if is_required and not _is_certain(phase, source, vocabulary):
        message = f"`{field}` is required, but the phase `{node}` can end without `{source.name}`"
        fix = f"add `must: [{source.name}]` to the phase, or make the field optional"
        yield document.finding(codes.BAD_FILL, message, *path, fix=fix, severity="warning")


def _unknown_source(text: str, path: KeyPath, document: Document, vocabulary: Vocabulary) -> Finding:
    known = sorted(form for kind in vocabulary.op_kinds for form in vocabulary.forms_of(kind))
    name, _, field = text.removeprefix(OPS).rpartition(".")
    close = nearest(name or field, known)
    fix = close or "write `ops.KIND.FORM.FIELD`, such as `ops.file.write.path`; without FORM if the op has one form"
    if len(vocabulary.forms_of(name)) > 1:
        fix = f"name a form of `{name}`, such as `{OPS}{next(iter(vocabulary.forms_of(name)))}.{field}`"
    return document.finding(codes.BAD_FILL, f"{text!r} is not a field of an op", *path, fix=fix)


def _is_certain(phase: Phase, source: FillSource, vocabulary: Vocabulary) -> bool:
    """Return whether every visit of a phase does the op of a source."""
    groups = ({form for name in group for form in vocabulary.forms_of(name)} for group in phase.must)
    return any(forms == {source.name} for forms in groups)


# -- instructions -------------------------------------------------------------------------------------


def asked_ops(skill: Skill, loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report a phase without `must` whose instructions tell the model to use an op: the model may skip it."""
    for name, phase in skill.phases.items():
        if phase.must or not phase.max_act_turns:
            continue
        patterns = [one for kind in phase.allowed_ops for one in _patterns(kind, vocabulary)]
        document = loaded.document(name)
        for sentence in _SENTENCE.finditer(document.body) if patterns else ():
            text = sentence[0][:_MAX_SENTENCE]
            if _IS_OPEN.search(text):
                continue
            asked = next((op for op, pattern in patterns if pattern.search(text)), None)
            if asked is not None:
                before = document.body[: sentence.end() - len(sentence[0].lstrip())]
                line, column = document.body_line + before.count("\n"), len(before) - before.rfind("\n")
                message = f"the instructions ask for `{asked}`, but the phase can end without it"
                fix = f"add `must: [{asked}]` if every visit has to do it"
                yield Finding(document.file, line, column, codes.MUST_MISSING, message, fix, "info")
                break


def _patterns(kind: str, vocabulary: Vocabulary) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield what matches a request for an op in words: `write … file`, `ask … user`, or its name."""
    for name, form in vocabulary.forms_of(kind).items():
        target = re.escape(kind)
        if form.op is not None:
            verb, names = form.op, rf"\b{target}s?\b"
            if "path" in form.arguments["properties"]:
                names += r"|[\w-]+/[\w./-]*\w|\b[\w-]+\.(?:md|txt|json|ya?ml|csv|py)\b"
        else:
            verb, *rest = re.split(r"[^A-Za-z0-9]+", re.split(r"[/:]", kind)[-1])
            names = r"[^.!?;]{0,40}".join(rf"\b{re.escape(word)}\w{{0,2}}\b" for word in rest) if rest else r"(?!)"
        words = rf"{_BEGINS}{re.escape(verb)}\b[^!?;]{{0,80}}?(?:{names})"
        yield name, re.compile(rf"{words}|\b(?:use|call|run)\s+(?:the\s+)?[`*\"']*{target}\b", re.IGNORECASE)
