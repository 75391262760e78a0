"""Rules on the instructions of phases; all findings are warnings.

Instructions should describe the task only: the frame already has the contract, the schemas and the next phases, and
small models copy literals.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from reyn.errors import Finding, codes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.documents import Document
    from reyn.skills import LoadResult, Skill
    from reyn.vocabulary import Vocabulary

_MARKS = r"[\"'`*\\\u2018-\u201f]*"
"""What may enclose a name: quotes, also typographic and escaped ones, and the marks of code and bold text."""
_CONTRACT_SYNTAX = re.compile(
    rf"{_MARKS}\b(?:control[\s_-]?ir|next[_-]?phase|candidate[_-]?outputs|available[_-]?control[_-]?ops"
    rf"|artifact[_-]?schema)\b{_MARKS}(?:\s*:)?"
    rf"|[\"'{{]\s*[\"']?kind[\"']?\s*:|\bops{_MARKS}\s*[:=]\s*\[",
    re.IGNORECASE,
)
_NAMES = re.compile(r"[^\W\d_][\w-]*")
_LITERALS = (
    (re.compile(r"(?<!\w)<(?!(?:br|b|i|p|em|ul|li|ol|code|strong|pre)>)[a-z][a-z0-9_-]{1,40}>"), "placeholder"),
    (re.compile(r"(?<![\w$])\{[a-z][a-z_]{1,30}\}|(?<!\w)\[[A-Z][A-Z_ ]{1,30}\](?!\()"), "placeholder"),
    (re.compile(r"https?://[^\s)<>`\"']+"), "URL"),
    (re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}\.[\w.]{1,64}\w"), "e-mail address"),
    (
        re.compile(
            r"(?<![\w/.])(?:\.{0,2}/[\w.-]{0,80}\w){2,20}|\b[\w-]{1,40}(?:/[\w-]{1,40})+\.\w{1,5}\b|\b[A-Za-z]:\\[\w\\.-]+"
        ),
        "path",
    ),
    (re.compile(r"\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{12,64}\b"), "hash"),
    (re.compile(r"\b\d{4}-\d{2}-\d{2}\b"), "date"),
    (re.compile(r"\{\s*\"[^\"\n]+\"\s*:"), "JSON object"),
)
_BULLET = re.compile(
    r"^\s*(?:[-*+]|\d+[.)]|\|)\s+[*_`\"']{0,3}([A-Za-z_]\w*)[*_`\"']{0,3}\s*(?::|\(|\||\s[-\u2013\u2014]\s)"
)


def contract_syntax(loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report descriptions of the answer format and of ops, which the frame has."""
    ops = _op_syntax(tuple((spec.kind, tuple(form.op or "" for form in spec.forms)) for spec in vocabulary.ops))
    for document in loaded.phase_documents:
        for number, line in _lines(document):
            found = list(_CONTRACT_SYNTAX.finditer(line))
            for match in found:
                message = f"the instructions describe the answer format: {match[0]!r}"
                fix = "remove it: Reyn adds the answer format to the prompt"
                yield _warning(document, number, match.start(), codes.CONTRACT_IN_PROSE, message, fix)
            named = None if found else ops.search(line)
            if named is not None:
                message = f"the instructions describe an op: {named[0]!r}"
                fix = "say what to do in plain words: Reyn adds the ops and their syntax to the prompt"
                yield _warning(document, number, named.start(), codes.CONTRACT_IN_PROSE, message, fix)


@lru_cache(8)
def _op_syntax(specs: tuple[tuple[str, tuple[str, ...]], ...]) -> re.Pattern[str]:
    """Return what matches an op in a text: as a key with its value, a call, a path, a tool's name, or as the word `op`.

    A kind with an underscore is no word of a language, so that the name alone is enough.
    """
    kinds = "|".join(sorted((re.escape(kind) for kind, _ in specs), key=len, reverse=True))
    forms = "|".join(sorted({re.escape(form) for _, names in specs for form in names if form}, reverse=True))
    marked = "|".join(re.escape(kind) for kind, _ in specs if "_" in kind or ":" in kind)
    several = [(re.escape(kind), "|".join(map(re.escape, names))) for kind, names in specs if any(names)]
    combined = "|".join(rf"{kind}(?:[._:]|::|__|->)?(?:{names})" for kind, names in several)
    return re.compile(
        rf"\bkind{_MARKS}\s*[:=]\s*{_MARKS}(?:{kinds})\b|\bop{_MARKS}\s*[:=]\s*{_MARKS}(?:{forms}|{kinds})\b"
        rf"|\b(?:{kinds})\((?!s\))|\b(?:{combined})\b|\b(?:{marked})\b"
        rf"|{_MARKS}\b(?:{kinds})\b{_MARKS}\s+ops?\b|\bop\s+{_MARKS}(?:{kinds})\b",
        re.IGNORECASE,
    )


def phase_names(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report names of other phases; the graph decides what comes next, and a phase can be reused elsewhere."""
    names = set(loaded.partial.graph) if loaded.partial else set()
    for document in loaded.phase_documents:
        own = document.file.rpartition("/")[2].removesuffix(".md")
        for number, line in _lines(document):
            for match in _NAMES.finditer(line):
                is_marked = "_" in match[0] or line[max(0, match.start() - 1)] == "`"
                if is_marked and match[0] in names - {own}:
                    message = f"the instructions name the phase `{match[0]}`"
                    fix = "remove it: Reyn adds the possible next phases to the prompt"
                    yield _warning(document, number, match.start(), codes.CONTRACT_IN_PROSE, message, fix)


def field_lists(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report lists of two or more output fields, which the schema describes."""
    skill = loaded.partial
    for name in skill.phases if skill else ():
        assert skill is not None
        document, fields = loaded.document(name), _output_fields(skill, name)
        bullets = [
            (number, match)
            for number, line in _lines(document)
            if (match := _BULLET.match(line)) and match[1] in fields
        ]
        if len(bullets) >= 2:
            number, match = bullets[0]
            names = ", ".join(f"`{bullet[1]}`" for _, bullet in bullets[:4])
            message = f"the instructions list output fields: {names}"
            fix = "describe each field with `description` in the artifact's schema"
            yield _warning(document, number, match.start(1), codes.CONTRACT_IN_PROSE, message, fix)


def literals(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report literals that a small model may copy into its answer."""
    for document in loaded.phase_documents:
        for number, line in _lines(document):
            spans: list[tuple[int, int]] = []
            for pattern, kind in _LITERALS:
                for match in pattern.finditer(line):
                    if any(start < match.end() and match.start() < end for start, end in spans):
                        continue
                    spans.append(match.span())
                    message = f"small models may copy this {kind}: {match[0][:60]!r}"
                    fix = "describe it in words, or pass it as input"
                    yield _warning(document, number, match.start(), codes.COPYABLE_LITERAL, message, fix)


def _lines(document: Document) -> Iterator[tuple[int, str]]:
    """Return the lines of the instructions with their line numbers in the file."""
    return enumerate(document.body.split("\n"), start=document.body_line)


def _output_fields(skill: Skill, phase: str) -> set[str]:
    """Return the field names of the final output and of every successor's input."""
    schemas = [skill.final_output_schema]
    for target in skill.graph.get(phase, ()):
        if target in skill.phases:
            schemas += [artifact.schema for artifact in skill.phases[target].inputs]
    properties = [schema.get("properties") for schema in schemas if isinstance(schema, dict)]
    return {name for fields in properties if isinstance(fields, dict) for name in fields}


def _warning(document: Document, line: int, column: int, code: str, message: str, fix: str) -> Finding:
    return Finding(document.file, line, column + 1, code, message, fix, "warning")
