"""The form `regenerate_index`: list the Markdown files of a folder, one line for each file with front matter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from reyn.documents import DocumentError, parse_front_matter
from reyn.ops.budget import SEARCH_SECONDS, OpFailed
from reyn.ops.file.reading import is_readable_below, text_at
from reyn.ops.file.writing import draft_of, look_at
from reyn.permissions import Denied, NeedsApproval
from reyn.workspace import FileError, Guard, entries_of, kind_of, locate

if TYPE_CHECKING:
    from reyn.ops.file.writing import Arguments, Draft
    from reyn.ops.op import Env
    from reyn.workspace import Location

_FIELD = re.compile(r"\{\{|\}\}|\{([\w-]+)\}")
_BREAKS = re.compile(r"\s*\n\s*")


def index_draft(arguments: Arguments, location: Location, env: Env) -> Draft | Denied:
    folder = locate(arguments["path"], env.roots)
    verdict = env.gate.read(folder)
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
    draft = draft_of(location, look_at(location, env), _page(arguments["header"], lines), fields, env)
    return replace(draft, approval=verdict.rule) if isinstance(verdict, NeedsApproval) else draft


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
