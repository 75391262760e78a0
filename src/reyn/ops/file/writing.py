"""The forms `write`, `edit`, `delete` and `regenerate_index`: compute the change of a file without making it.

For a replay, `changes_error` checks recorded changes against the arguments of their op.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.documents import DocumentError, parse_front_matter
from reyn.journal import digest
from reyn.ops.budget import SEARCH_SECONDS, OpFailed
from reyn.ops.file.reading import is_readable_below, look_at, not_found, text_at
from reyn.ops.op import Env, RecordedChanges, approval_of
from reyn.permissions import Denied
from reyn.workspace import (
    Change,
    FileChange,
    FileError,
    Guard,
    Location,
    decode_text,
    entries_of,
    kind_of,
    locate,
)
from reyn.workspace.paths import WORKSPACE

if TYPE_CHECKING:
    from reyn.journal.canonical import ReadBlob

Arguments = dict[str, Any]


Written = tuple[dict[str, Any], FileChange | None, str | None]
"""The fields of the result, the planned change, if the file needs one, and the rule that asks about what was read."""


def write_file(arguments: Arguments, location: Location, env: Env) -> Written:
    return {"path": location.display_path}, _text_change(location, arguments["content"], env), None


def edit_file(arguments: Arguments, location: Location, env: Env) -> Written:
    before, _ = look_at(location, env)
    if before is None:
        raise not_found(location, env)
    text, old, new = decode_text(before.content, location), arguments["old_string"], arguments["new_string"]
    count = text.count(old)
    if not count:
        raise OpFailed(f"`old_string` is not found in `{location.display_path}`; it must be there to the letter")
    if count > 1 and not arguments["replace_all"]:
        raise OpFailed(
            f"`old_string` appears {count} times in `{location.display_path}`; "
            "give more of the text around it, or `replace_all`"
        )
    # Check the size before replacing: a short answer can expand to more than the available memory.
    if len(text) + count * (len(new) - len(old)) > env.file_bytes:
        raise OpFailed(f"`{location.display_path}` would become larger than {env.file_bytes} bytes")
    fields = {"path": location.display_path, "replacements": count}
    return fields, FileChange.of(location, before, _encode(text.replace(old, new), env.file_bytes)), None


def delete_file(arguments: Arguments, location: Location, env: Env) -> Written:
    before, _ = look_at(location, env)
    fields = {"path": location.display_path, "deleted": before is not None}
    return fields, FileChange.of(location, before, None), None


def _text_change(location: Location, text: str, env: Env) -> FileChange | None:
    """Return the change that gives a file this text."""
    before, made = look_at(location, env)
    return FileChange.of(location, before, _encode(text, env.file_bytes), made)


def _encode(text: str, limit_bytes: int) -> bytes:
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise OpFailed("the content is not valid Unicode") from None
    if b"\0" in content:
        raise OpFailed("the content holds a NUL character; only text is written")
    if len(content) > limit_bytes:
        raise OpFailed(f"the file would be {len(content)} bytes; {limit_bytes} is the most")
    return content


# -- the form `regenerate_index` ------------------------------------------------------------------------------

_FIELD = re.compile(r"\{\{|\}\}|\{([\w-]+)\}")
_BREAKS = re.compile(r"\s*\n\s*")


def write_index(arguments: Arguments, location: Location, env: Env) -> Written | Denied:
    folder = locate(arguments["path"], env.roots)
    verdict = env.gate.search(folder)
    if isinstance(verdict, Denied):
        return verdict
    if kind_of(folder, env.roots) != "folder":
        raise OpFailed(f"there is no folder `{folder.display_path}`")
    sources = _sources(folder, location, env)
    lines, remaining = [], env.file_bytes
    with env.budget.search() as deadline:
        for source in sources:
            try:
                deadline.remaining()
            except TimeoutError:
                raise OpFailed(f"the folder takes longer than {SEARCH_SECONDS:g} seconds to read") from None
            line = _entry(source, arguments["entry_template"], env)
            if line is None:
                continue
            lines.append(line)
            remaining -= len(line)
            if remaining < 0:
                raise OpFailed(f"`{location.display_path}` would become larger than {env.file_bytes} bytes")
    fields = {"path": folder.display_path, "output_path": location.display_path, "entries": len(lines)}
    if len(lines) < len(sources):
        fields["skipped"] = len(sources) - len(lines)
    return fields, _text_change(location, _page(arguments["header"], lines), env), approval_of(verdict)


def _sources(folder: Location, output: Location, env: Env) -> list[Location]:
    entries = entries_of(folder, Guard(env.roots))
    names = [entry.name for entry in entries if entry.name.endswith(".md") and not entry.is_folder]
    sources = (folder.below(name) for name in names if name != output.parts[-1])
    return list(filter(is_readable_below(folder, env), sources))


def _entry(source: Location, template: str, env: Env) -> str | None:
    """Return the line of a file, or `None` if it cannot be read or has no front matter."""
    try:
        text = text_at(source, env) or ""
        front = parse_front_matter(text.removeprefix("\ufeff").replace("\r\n", "\n"), source.display_path).value
    except (FileError, DocumentError):
        return None
    if not isinstance(front, dict):
        return None
    values = front | {"slug": source.parts[-1].removesuffix(".md")}
    longest = max((len(_text(value)) for value in values.values()), default=0)
    if template.count("{") * longest + len(template) > env.file_bytes:
        raise OpFailed(f"an entry for `{source.display_path}` would become larger than {env.file_bytes} bytes")
    # Not `str.format`: its templates can access attributes and request gigabytes of padding.
    return _FIELD.sub(lambda match: _field_text(match, values), template)


def _field_text(match: re.Match[str], values: dict[str, Any]) -> str:
    if match[1] is None:  # `{{` or `}}`
        return match[0][0]
    return _BREAKS.sub(" ", _text(values.get(match[1])).strip())


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _page(header: str, lines: list[str]) -> str:
    above = f"{header}\n" if header and not header.endswith("\n") else header
    return above + "".join(f"{line}\n" for line in lines)


# -- recorded changes -----------------------------------------------------------------------------------------


def changes_error(op: str, arguments: Arguments, recorded: RecordedChanges) -> str:
    """Return why recorded changes do not follow from the arguments of a file op; empty if they do."""
    changes = recorded.changes
    if op not in _EXPECTED:
        return f"`{op}` changes no files"
    if len(changes) != 1:
        return f"`{op}` changes one file, not {len(changes)}"
    change, path = changes[0], arguments["output_path" if op == "regenerate_index" else "path"]
    if not _names(path, change.path) and recorded.resolve(path) != change.path:
        return f"it changes `{change.path}`, but its argument is `{path}`"
    if any(not change.path.startswith(f"{folder}/") for folder in change.made):
        return f"it creates folders that are not above `{change.path}`"
    return _EXPECTED[op](arguments, change, recorded.content)


def _names(argument: str, recorded: str) -> bool:
    """Return whether an argument names a recorded path, symbolic links aside."""
    if argument.startswith(WORKSPACE):
        return WORKSPACE + posixpath.normpath(argument.removeprefix(WORKSPACE).lstrip("/")) == recorded
    plain = posixpath.normpath(argument)
    recorded = recorded.removeprefix("./")
    return plain == recorded or (plain.startswith("/") and plain.endswith(f"/{recorded}"))


def _write(arguments: Arguments, change: Change, content: ReadBlob) -> str:
    return (
        "" if change.after == digest(arguments["content"].encode()) else "it writes another content than its argument"
    )


def _edit(arguments: Arguments, change: Change, content: ReadBlob) -> str:
    if change.before is None:
        return "it edits a file that did not exist"
    old, new = arguments["old_string"].encode(), arguments["new_string"].encode()
    before = content(change.before)
    if change.after is None or content(change.after) != before.replace(old, new):
        return "its change is not the replacement that its arguments describe"
    return ""


def _delete(arguments: Arguments, change: Change, content: ReadBlob) -> str:
    return "" if change.after is None and change.before is not None else "it does not delete a file"


def _index(arguments: Arguments, change: Change, content: ReadBlob) -> str:
    """The entries come from files that are not recorded; only the header is an argument."""
    is_index = change.after is not None and content(change.after).startswith(arguments["header"].encode())
    return "" if is_index else "it does not write an index with the header of its arguments"


_EXPECTED = {"write": _write, "edit": _edit, "delete": _delete, "regenerate_index": _index}
