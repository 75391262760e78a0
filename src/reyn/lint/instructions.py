"""Rules on the instructions of phases; all findings are warnings.

Instructions should describe the task only: the frame already has the contract, the schemas and the next phases, and
small models copy literals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from html import unescape
from typing import TYPE_CHECKING

import msgspec

from reyn.documents.unicode_forms import to_normal_form
from reyn.errors import Finding, codes
from reyn.skills.values import END

if TYPE_CHECKING:
    from reyn.documents import Document
    from reyn.skills import LoadResult, Skill
    from reyn.vocabulary import OpForm, Vocabulary

MAX_CHECKED = 200_000
"""The characters of all instructions of a skill that the rules read: each takes up to ten microseconds."""
_MARKS = r"[\"'`*_\\\u2018-\u201f]{0,8}"
"""What may enclose a name: quotes, also typographic and escaped ones, and the marks of code and bold text."""
_CONTRACT_SYNTAX = re.compile(
    rf"{_MARKS}\b(?:control[\s_-]?ir|next[_-]?phase|candidate[_-]?outputs|available[_-]?control[_-]?ops"
    rf"|artifact[_-]?schema)\b{_MARKS}(?:\s*:)?"
    rf"|[\"'{{]\s*[\"']?kind[\"']?\s*:|\bops{_MARKS}\s*[:=]\s*\[",
    re.IGNORECASE,
)
_ARROWS = r"[-=~]*[>\u00bb\u2190-\u21ff\u2794-\u27bf\u27f0-\u27ff]"
_ASSIGNS = (
    rf"(?:\s*(?:{_ARROWS}|<[-=]|:?\s?={{1,2}}|::?|[|~\u2208\u2254\u2261])\s*"
    r"|\s+(?:(?:is|as|equals?|equal\s+to|set\s+to|must|should|shall|will|would|(?:has|have|needs?)\s+to|be|being"
    r"|named|called|has\s+the\s+value)\s+){0,3})"
)
"""What stands between a key and its value: a sign, or words that say so."""
_HIDDEN = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
"""Characters that show nothing, and could part a name."""
_QUOTES = r"[\"'`*\u2018-\u201f]{1,3}"
_TOOLS = r"(?:op|operation|tool|function|command|call)s?"
_NAMES = re.compile(r"[^\W\d_][\w-]*")
_LITERALS = (
    (re.compile(r"(?<!\w)<(?!(?:br|b|i|p|em|ul|li|ol|code|strong|pre)>)[a-z][a-z0-9_-]{1,40}>"), "placeholder"),
    (re.compile(r"(?<![\w$])\{[a-z][a-z_]{1,30}\}|(?<!\w)\[[A-Z][A-Z_ ]{1,30}\](?!\()"), "placeholder"),
    (re.compile(r"https?://[^\s)<>`\"']+"), "URL"),
    (re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}\.[\w.]{1,64}\w"), "e-mail address"),
    (
        re.compile(
            r"(?<![\w/.])(?:\.{0,2}/[\w.-]{0,80}\w){2,20}"
            r"|(?<!\w)(?<![\w-]/)[\w-]{1,40}+(?:/[\w-]{1,40}+)++\.\w{1,5}\b|\b[A-Za-z]:\\[\w\\.-]+"
        ),
        "path",
    ),
    (re.compile(r"\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{12,64}\b"), "hash"),
    (re.compile(r"\b\d{4}-\d{2}-\d{2}\b"), "date"),
    (re.compile(r"\{\s*\"[^\"\n]+\"\s*:"), "JSON object"),
)
_ZEROS = re.compile(r"(?:(?<=&#)|(?<=&#[xX]))0++(?=[0-9a-fA-F])")
_LONG_ENTITY = re.compile(r"&#(?:\d{8,}|[xX][0-9a-fA-F]{8,});?")
_BULLET = re.compile(
    r"^\s*(?:[-*+]|\d+[.)]|\|)\s+[*_`\"']{0,3}([A-Za-z_]\w*)[*_`\"']{0,3}\s*(?::|\(|\||\s[-\u2013\u2014]\s)"
)


def contract_syntax(loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report descriptions of the answer format and of ops, which the frame has."""
    forms = ((spec.kind, ((form.op or "", _arguments(form)) for form in spec.forms)) for spec in vocabulary.ops)
    ops = _op_syntax(tuple((kind, tuple(each)) for kind, each in forms))
    for document, number, line in _lines(loaded):
        found = list(_CONTRACT_SYNTAX.finditer(line))
        for match in found:
            message = f"the instructions describe the answer format: {match[0]!r}"
            fix = "remove it: Reyn adds the answer format to the prompt"
            yield _warning(document, number, match.start(), codes.CONTRACT_IN_PROSE, message, fix)
        named = None if found else ops.search(_HIDDEN.sub("", to_normal_form("NFKC", _unescaped(line))))
        if named is not None:
            message = f"the instructions describe an op: {named[0]!r}"
            fix = "say what to do in plain words: Reyn adds the ops and their syntax to the prompt"
            yield _warning(document, number, named.start(), codes.CONTRACT_IN_PROSE, message, fix)


def _unescaped(line: str) -> str:
    """Return a line without HTML entities. Numbers with many digits are no characters."""
    return unescape(_LONG_ENTITY.sub("\ufffd", _ZEROS.sub("", line)))


def _arguments(form: OpForm) -> tuple[str, ...]:
    return tuple(name for name in form.arguments["properties"] if name not in ("kind", "op"))


@lru_cache(8)
def _op_syntax(specs: tuple[tuple[str, tuple[tuple[str, tuple[str, ...]], ...]], ...]) -> re.Pattern[str]:
    """Return what matches an op in a text: a key and its value, a call, a path, a command, a tool name, the word `op`.

    A kind with an underscore is no word of a language, so that the name alone is enough. Other kinds and forms are
    words of the language: only signs of syntax beside them make them ops. `specs` has the kinds, each with its forms
    and their arguments.
    """
    kinds = _any_of(kind for kind, _ in specs)
    forms = _any_of(name for _, named in specs for name, _ in named)
    arguments = _any_of(name for _, named in specs for _, names in named for name in names)
    marked = _any_of(kind for kind, _ in specs if "_" in kind or ":" in kind).replace("_", "[-_]?")
    pairs = [(re.escape(kind), _any_of(name for name, _ in named)) for kind, named in specs if any(dict(named))]
    joined = "|".join(rf"{kind}(?:[-._:/]|::|__|->)?{names}|{names}[-._:/]?{kind}" for kind, names in pairs)
    bound = "|".join(rf"{kind}{_MARKS}[\[(=#@~+\\{{]{_MARKS}{names}" for kind, names in pairs)
    listed = "|".join(rf"{kind}[\"'`]?[-,\s/|>]+[\"'`]?{names}" for kind, names in pairs)
    commands = "|".join(rf"{kind}\s+{names}" for kind, names in pairs)
    words = rf"(?:[\s,;]+(?:with|using|and|op|{forms}){_MARKS}){{0,4}}[\s,;]+{_MARKS}"
    spellings = (
        rf"\b_{{0,2}}kind{_MARKS}{_ASSIGNS}{_MARKS}{kinds}(?![^\W_])",
        rf"\b_{{0,2}}op{_MARKS}{_ASSIGNS}{_MARKS}(?:{forms}|{kinds})(?![^\W_])",
        rf"\bset\s+{_MARKS}(?:kind{_MARKS}\s+to\s+{_MARKS}{kinds}|op{_MARKS}\s+to\s+{_MARKS}{forms})(?![^\W_])",
        rf"\b(?:operation|tool|function|op[\s_-]?kind|op[\s_-]?name|ops){_MARKS}\s*[:=]\s*{_MARKS}(?:{kinds}|{forms})(?![^\W_])",
        rf"\b(?:kind|op){_MARKS}[(\[{{]{_MARKS}(?:{kinds}|{forms}){_MARKS}[)\]}}]",
        rf"\b{kinds}{_MARKS}\s+(?:as|for)\s+(?:the\s+)?{_MARKS}(?:kind|op)\b(?!\s+of\b)",
        rf"\b{forms}{_MARKS}\s+as\s+(?:the\s+)?{_MARKS}op\b",
        rf"\b{kinds}\((?!s\))",
        rf"\b{forms}{_MARKS}\({_MARKS}{arguments}\b",
        rf"\b(?:{bound})(?![^\W_])",
        rf"\b(?:{kinds}|{forms}){_MARKS}\s*\{{+\s*{_MARKS}{arguments}{_MARKS}\s*[:=]",
        rf"\b{kinds}[-_]?ops?\b|\bops?[-_:]{kinds}\b",
        rf"{_QUOTES}(?:{kinds}|{forms}){_QUOTES}\s+{_TOOLS}\b|\b(?:call|invoke|use)\s+(?:the\s+)?{_QUOTES}{kinds}{_QUOTES}",
        rf"\b{forms}\s+ops?\b",
        rf"\b(?:{joined}|{marked}|mcp:[\w.-]+/[\w.-]+)\b",
        rf"{_MARKS}\b{kinds}\b{_MARKS}\s+ops?\b",
        rf"\b(?:{kinds}|{forms}){_MARKS}{words}(?:--?{arguments}\b|{arguments}{_MARKS}\s*(?:{_ARROWS}|:?=)\s*\S)",
        rf"\b(?:{commands})\s+(?:{arguments}\s*:|[\w-]+[./]\w)",
        rf"[\"'`](?:{listed})[\"'`]",
    )
    return re.compile("|".join(spellings), re.IGNORECASE)


def _any_of(names: Iterable[str]) -> str:
    """Return what matches one of some names, the longest first; nothing matches without names."""
    found = sorted(filter(None, names), key=lambda name: (-len(name), name))
    return f"(?:{'|'.join(map(re.escape, dict.fromkeys(found)))})" if found else "(?!)"


def phase_names(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report names of other phases; the graph decides what comes next, and a phase can be reused elsewhere."""
    names = set(loaded.partial.graph) if loaded.partial else set()
    for document, number, line in _lines(loaded):
        own = document.file.rpartition("/")[2].removesuffix(".md")
        for match in _NAMES.finditer(line):
            is_marked = "_" in match[0] or line[max(0, match.start() - 1)] == "`"
            if is_marked and match[0] != own and match[0] in names:
                message = f"the instructions name the phase `{match[0]}`"
                fix = "remove it: Reyn adds the possible next phases to the prompt"
                yield _warning(document, number, match.start(), codes.CONTRACT_IN_PROSE, message, fix)


_EDGE = re.compile(
    r"(?<![\w@/-])(?P<from>@?[^\W\d_][\w-]*)[\"'`*_)\]}]{0,4}\s{0,4}(?:(?:--+|==+|-|=)>|[\u2192\u21d2\u2794\u279c\u27a1\u27f6\u27f9]\ufe0f?)"
    r"(?:\|[^|\n]{0,80}\|)?\s{0,4}(?=[\"'`*_(\[{]{0,4}(?P<to>@?[^\W\d_][\w-]*))"
)
"""An edge that is drawn with an arrow. The target can be the source of the next edge."""
_ENDS = {"end", "finish", "done", "stop"}


def drawn_edges(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report edges that a text draws: in skill.md those that the graph does not have, in instructions all."""
    files = loaded.folder.own_files("phases", ".md")
    graph = loaded.partial.graph if loaded.partial else {}
    phases = {file.removeprefix("phases/").removesuffix(".md") for file in files} | {*graph}
    for document, number, line in _lines_of(loaded.folder.read("skill.md")):
        for edge, (source, target) in _edges_in(line, phases):
            if target not in graph.get(source, ()):
                message = f"the text draws an edge that `graph` does not have: `{source} -> {target}`"
                fix = f"add it under `graph`: `{source}: [{target}]`; Reyn does not read the text"
                yield _warning(document, number, edge.start(), codes.DRAWN_EDGE, message, fix)
    for document, number, line in _lines(loaded):
        for edge, (source, target) in _edges_in(line, phases):
            message = f"the instructions draw the graph: `{source} -> {target}`"
            fix = "remove it: Reyn adds the possible next phases to the prompt"
            yield _warning(document, number, edge.start(), codes.CONTRACT_IN_PROSE, message, fix)


def _edges_in(line: str, phases: set[str]) -> Iterator[tuple[re.Match[str], tuple[str, str]]]:
    """Yield the drawn edges between phases, or from a phase to the end."""
    for match in _EDGE.finditer(line):
        target = match["to"] if match["to"] in phases else END if match["to"].lower() in _ENDS else ""
        if match["from"] in phases and target:
            yield match, (match["from"], target)


def _lines_of(document: Document | None) -> Iterator[tuple[Document, int, str]]:
    if document is not None:
        for number, line in enumerate(document.body[:MAX_CHECKED].split("\n"), start=document.body_line):
            yield document, number, line


def field_lists(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report lists of two or more output fields, which the schema describes."""
    skill, bulleted = loaded.partial, dict[str, list[tuple[int, re.Match[str]]]]()
    for document, number, line in _lines(loaded):
        if match := _BULLET.match(line):
            bulleted.setdefault(document.file, []).append((number, match))
    for name in skill.phases if skill and bulleted else ():
        assert skill is not None
        document = loaded.document(name)
        if document.file not in bulleted:
            continue
        fields = _output_fields(skill, name)
        bullets = [(number, match) for number, match in bulleted[document.file] if match[1] in fields]
        if len(bullets) >= 2:
            number, match = bullets[0]
            names = ", ".join(f"`{bullet[1]}`" for _, bullet in bullets[:4])
            message = f"the instructions list output fields: {names}"
            fix = "describe each field with `description` in the artifact's schema"
            yield _warning(document, number, match.start(1), codes.CONTRACT_IN_PROSE, message, fix)


def literals(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report literals that a small model may copy into its answer."""
    for document, number, line in _lines(loaded):
        taken = bytearray(len(line))
        for pattern, kind in _LITERALS:
            for match in pattern.finditer(line):
                start, end = match.span()
                if 1 in taken[start:end]:
                    continue
                taken[start:end] = b"\1" * (end - start)
                message = f"small models may copy this {kind}: {match[0][:60]!r}"
                fix = "describe it in words, or pass it as input"
                yield _warning(document, number, match.start(), codes.COPYABLE_LITERAL, message, fix)


def summed(loaded: LoadResult, findings: set[Finding]) -> set[Finding]:
    """Return findings with one for all literals of an imported skill: nobody rewrites the instructions of others."""
    if not _is_imported(loaded):
        return findings
    literal = sorted(one for one in findings if one.code == codes.COPYABLE_LITERAL)
    if len(literal) < 2:
        return findings
    message = f"small models may copy {len(literal)} literals of the imported instructions, such as addresses and paths"
    return findings.difference(literal) | {msgspec.structs.replace(literal[0], message=message, fix="")}


def _is_imported(loaded: LoadResult) -> bool:
    document = loaded.folder.read("skill.md")
    return document is not None and isinstance(document.value, dict) and bool(document.value.get("imported_from"))


def unchecked(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Report the first phase whose instructions these rules do not read to the end."""
    for document, length in _checked(loaded):
        if length < len(document.body):
            message = f"the instructions of all phases have more than {MAX_CHECKED:,} characters: not checked from here"
            line = document.body_line + document.body.count("\n", 0, length)
            yield _warning(document, line, 0, codes.OVERSIZED_INSTRUCTIONS, message, "shorten them: models read less")
            break


def _checked(loaded: LoadResult) -> Iterator[tuple[Document, int]]:
    """Yield the phases with the number of characters of their instructions that are read."""
    left = MAX_CHECKED
    for document in loaded.phase_documents:
        length = min(left, len(document.body))
        left -= length
        yield document, length


def _lines(loaded: LoadResult) -> Iterator[tuple[Document, int, str]]:
    """Yield the lines of the instructions with their line numbers in the file."""
    for document, length in _checked(loaded):
        for number, line in enumerate(document.body[:length].split("\n"), start=document.body_line):
            yield document, number, line


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
