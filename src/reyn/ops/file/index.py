"""A folder of Markdown files becomes a list of them: a line for each that has front matter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.documents import DocumentError, parse_front_matter
from reyn.ops.file.reading import text_at
from reyn.ops.file.writing import draft_of
from reyn.ops.op import OpFailed
from reyn.permissions import Denied
from reyn.workspace import FileFault, Guard, entries_of, kind_of, locate, read

if TYPE_CHECKING:
    from reyn.ops.file.writing import Arguments, Draft
    from reyn.ops.op import Env
    from reyn.workspace import Place

_FIELD = re.compile(r"\{\{|\}\}|\{([\w-]+)\}")
_BREAKS = re.compile(r"\s*\n\s*")


def index_draft(arguments: Arguments, place: Place, env: Env) -> Draft | Denied:
    folder = locate(arguments["path"], env.roots)
    verdict = env.gate.read(folder)
    if isinstance(verdict, Denied):
        return verdict
    if kind_of(folder, env.roots) != "folder":
        raise OpFailed(f"there is no folder `{folder.shown}`")
    sources = _sources(folder, place, env)
    lines, room = [], env.file_bytes
    for source in sources:
        line = _entry(source, arguments["entry_template"], env)
        if line is None:
            continue
        lines.append(line)
        room -= len(line)
        if room < 0:
            raise OpFailed(f"`{place.shown}` would become larger than {env.file_bytes} bytes")
    fields = {"path": folder.shown, "output_path": place.shown, "entries": len(lines)}
    if len(lines) < len(sources):
        fields["skipped"] = len(sources) - len(lines)
    before = read(place, env.roots, env.file_bytes)
    return draft_of(place, before, _page(arguments["header"], lines), fields, env)


def _sources(folder: Place, output: Place, env: Env) -> list[Place]:
    entries = entries_of(folder, Guard(env.roots))
    names = [entry.name for entry in entries if entry.name.endswith(".md") and not entry.is_folder]
    return [folder.below(name) for name in names if name != output.parts[-1]]


def _entry(source: Place, template: str, env: Env) -> str | None:
    """The line of a file; `None` if it cannot be read or says nothing of itself."""
    try:
        text = text_at(source, env) or ""
        front = parse_front_matter(text.removeprefix("\ufeff").replace("\r\n", "\n"), source.shown).value
    except (FileFault, DocumentError):
        return None
    if not isinstance(front, dict):
        return None
    values = front | {"slug": source.parts[-1].removesuffix(".md")}
    longest = max((len(_text(value)) for value in values.values()), default=0)
    if template.count("{") * longest + len(template) > env.file_bytes:
        raise OpFailed(f"an entry for `{source.shown}` would become larger than {env.file_bytes} bytes")
    # Not `str.format`, whose templates can reach into values and ask for a gigabyte of blanks.
    return _FIELD.sub(lambda found: _filled(found, values), template)


def _filled(found: re.Match[str], values: dict[str, Any]) -> str:
    if found[1] is None:
        return found[0][0]
    return _BREAKS.sub(" ", _text(values.get(found[1])).strip())


def _text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _page(header: str, lines: list[str]) -> str:
    above = f"{header}\n" if header and not header.endswith("\n") else header
    return above + "".join(f"{line}\n" for line in lines)
