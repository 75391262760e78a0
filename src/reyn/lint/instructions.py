"""Rules about prose: what the OS shows the model anyway, and what a weak model would copy. All of them warnings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from reyn.errors import Finding
from reyn.skills import codes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.documents import Document
    from reyn.skills import Reading, Skill
    from reyn.vocabulary import Vocabulary

_CONTRACT_WORDS = re.compile(
    r'"?\b(control_ir|next_phase|candidate_outputs|available_control_ops|artifact_schema)"?\s*:'
    r'|["{]\s*"?kind"?\s*:|\bops"?\s*:\s*\[|`(?:control_ir|next_phase|candidate_outputs|artifact_schema)`'
)
_NAMES = re.compile(r"[A-Za-z][\w-]*")
_LITERALS = (
    (re.compile(r"(?<!\w)<(?!(?:br|b|i|p|em|ul|li|ol|code|strong|pre)>)[a-z][a-z0-9_-]{1,40}>"), "placeholder"),
    (re.compile(r"(?<![\w$])\{[a-z][a-z_]{1,30}\}|(?<!\w)\[[A-Z][A-Z_ ]{1,30}\](?!\()"), "placeholder"),
    (re.compile(r"https?://[^\s)<>`\"']+"), "address"),
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


def op_syntax(reading: Reading, vocabulary: Vocabulary) -> Iterator[Finding]:
    """The OS shows the model which ops there are and how an answer looks."""
    for document in _phases(reading):
        for number, line in _lines(document):
            for match in _CONTRACT_WORDS.finditer(line):
                message = f"the instructions describe the answer's form: {match[0]!r}"
                fix = "Leave it out; the OS shows it to the model."
                yield _warning(document, number, match.start(), codes.OP_SYNTAX, message, fix)


def other_phases(reading: Reading, _: Vocabulary) -> Iterator[Finding]:
    """Where to go next is the graph's business; a phase that names another cannot be used elsewhere."""
    names = set(reading.draft.graph) if reading.draft else set()
    for document in _phases(reading):
        own = document.file.rpartition("/")[2].removesuffix(".md")
        for number, line in _lines(document):
            for match in _NAMES.finditer(line):
                is_marked = "_" in match[0] or line[max(0, match.start() - 1)] == "`"
                if is_marked and match[0] in names - {own}:
                    message = f"the instructions name the phase `{match[0]}`"
                    fix = "Leave it out; the OS shows the model where it may go."
                    yield _warning(document, number, match.start(), codes.OP_SYNTAX, message, fix)


def field_lists(reading: Reading, _: Vocabulary) -> Iterator[Finding]:
    """Two or more bullets that name fields of an output: the schema says it, and says it once."""
    skill = reading.draft
    for name in skill.phases if skill else ():
        document = reading.folder.front(f"phases/{name}.md")
        if skill is None or document is None:
            continue
        fields = _output_fields(skill, name)
        named = [
            (number, match)
            for number, line in _lines(document)
            if (match := _BULLET.match(line)) and match[1] in fields
        ]
        if len(named) >= 2:
            number, match = named[0]
            told = ", ".join(f"`{found[1]}`" for _, found in named[:4])
            message = f"the instructions list fields of the output: {told}"
            fix = "Put what each means into `description` in the artifact's schema."
            yield _warning(document, number, match.start(1), codes.OP_SYNTAX, message, fix)


def literals(reading: Reading, _: Vocabulary) -> Iterator[Finding]:
    for document in _phases(reading):
        for number, line in _lines(document):
            taken: list[tuple[int, int]] = []
            for pattern, what in _LITERALS:
                for match in pattern.finditer(line):
                    if any(start < match.end() and match.start() < end for start, end in taken):
                        continue
                    taken.append(match.span())
                    message = f"a weak model would copy this {what}: {match[0][:60]!r}"
                    fix = "Say what is wanted in words, or put it into the input."
                    yield _warning(document, number, match.start(), codes.LITERAL, message, fix)


def _phases(reading: Reading) -> Iterator[Document]:
    for file in reading.folder.own("phases", ".md"):
        document = reading.folder.front(file)
        if document is not None:
            yield document


def _lines(document: Document) -> Iterator[tuple[int, str]]:
    """The lines of the instructions with their numbers in the file."""
    return enumerate(document.body.split("\n"), start=document.body_line)


def _output_fields(skill: Skill, phase: str) -> set[str]:
    schemas = [skill.final_output_schema]
    for target in skill.graph.get(phase, ()):
        if target in skill.phases:
            schemas += [artifact.schema for artifact in skill.phases[target].inputs]
    properties = [schema.get("properties") for schema in schemas if isinstance(schema, dict)]
    return {name for known in properties if isinstance(known, dict) for name in known}


def _warning(document: Document, line: int, column: int, code: str, message: str, fix: str) -> Finding:
    return Finding(document.file, line, column + 1, code, message, fix, "warning")
