"""The op `file`: its forms, their dispatch and permission checks.

Forms that change files compute the complete change in `plan`; forms that only read do their work in `perform`. The gate
decides when the op is planned. `perform` opens the file that it decided about, without following links; after a crash
the path is resolved and the gate decides again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from reyn.journal import digest
from reyn.ops.file.reading import is_folder, read_file
from reyn.ops.file.searching import glob_files, glob_root, grep_files, spelled_names
from reyn.ops.file.writing import Arguments, Written, changes_error, delete_file, edit_file, write_file, write_index
from reyn.ops.op import Call, Env, HoldsSecret, Plan, RecordedChanges, Result, approval_of
from reyn.permissions import Denied, NeedsApproval, Verdict, refusal
from reyn.vocabulary import EffectClass, OpForm, OpSpec
from reyn.vocabulary.schemas import BOOLEAN, INTEGER, STRING, Fields, arguments, boolean, integer, path, result, text
from reyn.workspace import Location, locate, read
from reyn.workspace.paths import RECORDED

_MAX_FILE_CHARS = 1_000_000
_MAX_LINES = 10_000_000
_MAX_CHARS = 10_000_000
_MAX_RESULTS = 1_000

_STRINGS = {"type": "array", "items": STRING}


def _form(
    op: str,
    summary: str,
    effect: EffectClass,
    required: Fields,
    optional: Fields,
    result_fields: Fields,
    *,
    any_of: tuple[str, ...] = (),
    reveals: bool = True,
    **example: Any,
) -> OpForm:
    return OpForm(
        op=op,
        summary=summary,
        arguments=arguments("file", op, required, optional, any_of),
        effect=effect,
        result=result("file", op, result_fields),
        example={"kind": "file", "op": op, **example},
        reveals=reveals,
    )


def _read_form(summary: str, path_: dict[str, Any], example: str) -> OpForm:
    return _form(
        "read",
        summary,
        "pure",
        {"path": path_},
        {
            "offset": integer(0, _MAX_LINES, default=0),
            "limit": integer(1, _MAX_LINES),
            "start": integer(0, _MAX_CHARS, default=0),
            "length": integer(1, _MAX_CHARS),
        },
        {"path": STRING, "content": STRING, "total_lines": INTEGER, "total_chars": INTEGER, "suggestions": _STRINGS},
        path=example,
    )


_MATCH = {
    "type": "object",
    "properties": {
        "path": STRING,
        "line_number": INTEGER,
        "content": STRING,
        "context": {"type": "object", "properties": {"before": _STRINGS, "after": _STRINGS}},
    },
    "required": ["path", "line_number", "content"],
    "additionalProperties": False,
}

FILE_FORMS = (
    _read_form(
        "Read a text file: whole, some lines (`offset`, `limit`), or some characters of those (`start`, `length`).",
        path(),
        "output/notes.md",
    ),
    _form(
        "write",
        "Write a whole file; folders on the way are made.",
        "reconcilable",
        {"path": path(), "content": text(_MAX_FILE_CHARS)},
        {},
        {"path": STRING},
        reveals=False,
        path="workspace:notes.md",
        content="# Notes\n",
    ),
    _form(
        "edit",
        "Replace a text that occurs exactly once in a file, or with `replace_all` wherever it occurs.",
        "reconcilable",
        {"path": path(), "old_string": text(_MAX_FILE_CHARS, min_length=1), "new_string": text(_MAX_FILE_CHARS)},
        {"replace_all": boolean(default=False)},
        {"path": STRING, "replacements": INTEGER, "suggestions": _STRINGS},
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
        {"path": STRING, "deleted": BOOLEAN},
        path="workspace:notes.md",
    ),
    _form(
        "glob",
        "List the files that a pattern fits. `*` and `**` pass over names that begin with a dot.",
        "pure",
        {},
        {"pattern": path(), "path": path(), "max_results": integer(1, _MAX_RESULTS, default=50)},
        {"pattern": STRING, "matches": _STRINGS, "count": INTEGER, "truncated": BOOLEAN},
        any_of=("pattern", "path"),
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
            "pattern": STRING,
            "matches": {"type": "array", "items": _MATCH},
            "files": _STRINGS,
            "count": INTEGER,
            "truncated": BOOLEAN,
            "skipped": INTEGER,
            "suggestions": _STRINGS,
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
        {"path": STRING, "output_path": STRING, "entries": INTEGER, "skipped": INTEGER},
        reveals=False,  # the file that it writes; `write_index` asks the gate about the folder that it lists
        path="output/notes",
        output_path="output/notes/index.md",
        entry_template="- {title}: {slug}.md",
    ),
)

READ_FULL_CONTENT = _read_form(
    "Read more of truncated content, by the path that its marker names.",
    path(pattern=f"^{RECORDED.replace('.', '[.]')}[A-Za-z0-9._-]{{1,80}}$"),
    f"{RECORDED}NAME",
)
"""Reads content that was truncated in a frame; offered even in phases that do not allow `file`."""

_FORMS = {form.op: form for form in FILE_FORMS}
_PATHS: dict[str, Callable[[Arguments], str]] = dict.fromkeys(
    ("read", "write", "edit", "delete", "grep"), itemgetter("path")
)
_PATHS |= {"glob": glob_root, "regenerate_index": itemgetter("output_path")}
"""The file or folder that the gate decides about, by form."""
_READERS: dict[str, Callable[[Call, Arguments, Location, Env], dict[str, Any]]] = {
    "read": read_file,
    "glob": glob_files,
    "grep": grep_files,
}
_SLOW = ("glob", "grep")
"""Forms that run in a thread."""
_WRITERS: dict[str, Callable[[Arguments, Location, Env], Written | Denied]] = {
    "write": write_file,
    "edit": edit_file,
    "delete": delete_file,
    "regenerate_index": write_index,
}


class FileOp:
    """Reads, writes, edits, deletes, lists and searches files."""

    spec = OpSpec(
        "file",
        "Read, write, edit, delete, find and search files.",
        "reconcilable",
        forms=FILE_FORMS,
        advice="Paths are relative to the project; workspace:<path> is your own. Write to output/ or workspace:.",
        when_truncated=(READ_FULL_CONTENT,),
        optional_permissions=("file.read", "file.write"),
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        op: str = call.args["op"]
        arguments = _FORMS[op].complete(call.args)
        location = locate(_PATHS[op](arguments), env.roots)
        verdict = env.gate.write(location) if op in _WRITERS else env.gate.read(location)
        if op in _SLOW and not isinstance(verdict, Denied):
            verdict = _may_search(arguments, location, env)
        if isinstance(verdict, Denied):
            return verdict
        approval = verdict.rule if isinstance(verdict, NeedsApproval) else None
        if op in _READERS:
            reads = _content_hash(location, env) if approval and op == "read" else ""
            return Plan(verdict.rule, approval=approval, reads=reads, locations=(location,))
        read_approval = None
        if _FORMS[op].reveals:
            reading = env.gate.read(location)
            if isinstance(reading, Denied):
                return reading
            read_approval = approval_of(reading)
        try:
            written = _WRITERS[op](arguments, location, env)
        except HoldsSecret:
            raise
        except Exception as error:  # noqa: BLE001 - becomes the result, under the rule that allowed the op
            return Plan(verdict.rule, result=call.failed(error))
        if isinstance(written, Denied):
            return written
        fields, change, source_approval = written
        result, read_approval = call.ok(**fields), read_approval or source_approval
        if change is None:
            return Plan(verdict.rule, (), result, approval=read_approval)
        asked = " and ".join(dict.fromkeys(filter(None, (approval, read_approval)))) or None
        return Plan(verdict.rule, (change.change,), result, change.blobs, approval=asked, locations=(location,))

    def changes_error(self, call: Call, recorded: RecordedChanges) -> str:
        return changes_error(str(call.op), _FORMS[call.op].complete(call.args), recorded)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        if call.args["op"] in _SLOW:
            import asyncio

            return await asyncio.to_thread(_read, call, plan, env)
        return _read(call, plan, env)


def _content_hash(location: Location, env: Env) -> str:
    """Return the hash of a file; empty if it cannot be read, which `perform` reports."""
    if location.zone == "recorded":
        return env.recorded.find(location.parts) or ""
    with suppress(Exception):
        image = read(location, env.roots, env.file_bytes)
        return "" if image is None else digest(image.content)
    return ""


def _may_search(arguments: Arguments, location: Location, env: Env) -> Verdict:
    """Decide about a search: the folder or file that it starts from, then what its pattern spells below it."""
    verdict, names = _may_look(location, env), spelled_names(arguments)
    if isinstance(verdict, Denied) or not names:
        return verdict
    inside = _may_look(location.below(*names), env)
    return inside if isinstance(inside, Denied) else verdict


def _may_look(location: Location, env: Env) -> Verdict:
    verdict = env.gate.read(location)
    return verdict if isinstance(verdict, Denied) or not is_folder(location, env) else env.gate.search(location)


def _read(call: Call, plan: Plan, env: Env) -> Result:
    op: str = call.args["op"]
    arguments = _FORMS[op].complete(call.args)
    if plan.locations:
        (location,) = plan.locations
    else:
        location = locate(_PATHS[op](arguments), env.roots)
        verdict = _may_search(arguments, location, env) if op in _SLOW else env.gate.read(location)
        if refused := refusal(verdict, approved=plan.approved):
            return call.denied(refused)
    return _READERS[op](call, arguments, location, env)


def plan_file(call: Call, env: Env, arguments: Arguments, /, **fields: Any) -> Plan | Denied:
    """Plan an op of any kind that changes a file as the op `file` does, and returns `fields` as its result."""
    plan = FileOp().plan(Call(call.key, {"kind": "file", **arguments}), env)
    if isinstance(plan, Denied):
        return plan
    assert plan.result is not None
    if plan.result["status"] != "ok":
        return Plan(plan.rule, result=call.error(str(plan.result.get("error", ""))))
    return replace(plan, result=call.ok(**fields))


def plan_write(call: Call, env: Env, path: str, text: str, /, **fields: Any) -> Plan | Denied:
    """Plan an op that writes one file and returns `fields` as its result.

    The change is checked by the gate, recorded with its before-image, and can be undone.

    Args:
        call: The call of the op.
        env: What the op may use.
        path: The file, relative to the project or `workspace:<path>`.
        text: Its whole content.
        **fields: The fields of the result.
    """
    return plan_file(call, env, {"op": "write", "path": path, "content": text}, **fields)
