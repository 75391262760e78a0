"""The forms of the op `file`: arguments, result, effect class and example of each."""

from __future__ import annotations

from typing import Any

from reyn.vocabulary import Effect, OpForm
from reyn.vocabulary.schemas import Fields, arguments, boolean, integer, path, result, text
from reyn.workspace.paths import FULL_CONTENT

_MAX_FILE_CHARS = 1_000_000
_MAX_LINES = 10_000_000
_MAX_CHARS = 10_000_000
_MAX_RESULTS = 1_000

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_NUMBER = {"type": "integer"}
_BOOLEAN = {"type": "boolean"}


def _form(
    op: str,
    summary: str,
    effect: Effect,
    required: Fields,
    optional: Fields,
    result_fields: Fields,
    *,
    one_of: tuple[str, ...] = (),
    **example: Any,
) -> OpForm:
    return OpForm(
        op=op,
        summary=summary,
        arguments=arguments("file", op, required, optional, one_of),
        effect=effect,
        result=result("file", op, result_fields),
        example={"kind": "file", "op": op, **example},
    )


_MATCH = {
    "type": "object",
    "properties": {
        "path": _TEXT,
        "line_number": _NUMBER,
        "content": _TEXT,
        "context": {"type": "object", "properties": {"before": _TEXTS, "after": _TEXTS}},
    },
    "required": ["path", "line_number", "content"],
    "additionalProperties": False,
}

FILE_FORMS = (
    _form(
        "read",
        "Read a text file: whole, some lines (`offset`, `limit`), or some characters of those (`start`, `length`).",
        "pure",
        {"path": path()},
        {
            "offset": integer(0, _MAX_LINES, default=0),
            "limit": integer(1, _MAX_LINES),
            "start": integer(0, _MAX_CHARS, default=0),
            "length": integer(1, _MAX_CHARS),
        },
        {"path": _TEXT, "content": _TEXT, "total_lines": _NUMBER, "total_chars": _NUMBER, "suggestions": _TEXTS},
        path="output/notes.md",
    ),
    _form(
        "write",
        "Write a whole file; folders on the way are made.",
        "reconcilable",
        {"path": path(), "content": text(_MAX_FILE_CHARS)},
        {},
        {"path": _TEXT},
        path="workspace:notes.md",
        content="# Notes\n",
    ),
    _form(
        "edit",
        "Replace a text that occurs exactly once in a file, or with `replace_all` wherever it occurs.",
        "reconcilable",
        {"path": path(), "old_string": text(_MAX_FILE_CHARS, min_length=1), "new_string": text(_MAX_FILE_CHARS)},
        {"replace_all": boolean(default=False)},
        {"path": _TEXT, "replacements": _NUMBER, "suggestions": _TEXTS},
        path="output/notes.md",
        old_string="draft",
        new_string="final",
    ),
    _form(
        "delete",
        "Delete a file; one that is not there counts as deleted.",
        "reconcilable",
        {"path": path()},
        {},
        {"path": _TEXT, "deleted": _BOOLEAN},
        path="workspace:notes.md",
    ),
    _form(
        "glob",
        "List the files that a pattern fits. `*` and `**` pass over names that begin with a dot.",
        "pure",
        {},
        {"pattern": path(), "path": path(), "max_results": integer(1, _MAX_RESULTS, default=50)},
        {"pattern": _TEXT, "matches": _TEXTS, "count": _NUMBER, "truncated": _BOOLEAN},
        one_of=("pattern", "path"),
        pattern="output/**/*.md",
    ),
    _form(
        "grep",
        "Search the lines of files below `path` for a regular expression.",
        "pure",
        {"pattern": text(1_000, min_length=1)},
        {
            "path": path(default="."),
            "glob": path(default="**/*"),
            "file_type": text(20, min_length=1),
            "output_mode": {"enum": ["content", "files_with_matches", "count"], "default": "content"},
            "case_insensitive": boolean(default=False),
            "context_before": integer(0, 20, default=0),
            "context_after": integer(0, 20, default=0),
            "head_limit": integer(1, _MAX_RESULTS, default=50),
        },
        {
            "pattern": _TEXT,
            "matches": {"type": "array", "items": _MATCH},
            "files": _TEXTS,
            "count": _NUMBER,
            "truncated": _BOOLEAN,
            "skipped": _NUMBER,
            "suggestions": _TEXTS,
        },
        pattern="TODO",
        path="output",
    ),
    _form(
        "regenerate_index",
        "Write a list of the Markdown files of a folder, a line for each, from the keys of their front matter.",
        "reconcilable",
        {"path": path(), "output_path": path(), "entry_template": text(2_000, min_length=1)},
        {"header": text(20_000, default="")},
        {"path": _TEXT, "output_path": _TEXT, "entries": _NUMBER, "skipped": _NUMBER},
        path="output/notes",
        output_path="output/notes/index.md",
        entry_template="- {title}: {slug}.md",
    ),
)

READ_FULL_CONTENT = _form(
    "read",
    "Read more of truncated content, by the path that its marker names.",
    "pure",
    {"path": path(pattern=f"^{FULL_CONTENT.replace('.', '[.]')}[A-Za-z0-9._-]{{1,80}}$")},
    {
        "offset": integer(0, _MAX_LINES, default=0),
        "limit": integer(1, _MAX_LINES),
        "start": integer(0, _MAX_CHARS, default=0),
        "length": integer(1, _MAX_CHARS),
    },
    {"path": _TEXT, "content": _TEXT, "total_lines": _NUMBER, "total_chars": _NUMBER, "suggestions": _TEXTS},
    path=f"{FULL_CONTENT}NAME",
)
"""Reads content that was truncated in a frame; offered even in phases that do not allow `file`."""
