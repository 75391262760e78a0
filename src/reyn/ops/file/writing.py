"""The forms `write`, `edit` and `delete`: compute the change of a file without making it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.journal import Blob
from reyn.ops.budget import OpFailed
from reyn.ops.file.reading import not_found
from reyn.workspace import Change, Guard, Image, decode_text, look

if TYPE_CHECKING:
    from reyn.ops.op import Env
    from reyn.workspace import Location

Arguments = dict[str, Any]


class Draft(msgspec.Struct, frozen=True):
    """A planned change of a file; without `changes` if the file needs none. `fields` belong to the result."""

    fields: dict[str, Any]
    changes: tuple[Change, ...] = ()
    blobs: tuple[Blob, ...] = ()
    approval: str | None = None
    """The rule that wants a person to approve what was read for it."""


def write_draft(arguments: Arguments, location: Location, env: Env) -> Draft:
    return draft_of(location, look_at(location, env), arguments["content"], {"path": location.display_path}, env)


def edit_draft(arguments: Arguments, location: Location, env: Env) -> Draft:
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
    return draft_of(location, (before, ()), text.replace(old, new), fields, env)


def delete_draft(arguments: Arguments, location: Location, env: Env) -> Draft:
    before, _ = look_at(location, env)
    fields = {"path": location.display_path, "deleted": before is not None}
    if before is None:
        return Draft(fields)
    blob = Blob.of(before.content)
    return Draft(fields, (Change(location.display_path, blob.hash, None, before.mode),), (blob,))


Found = tuple[Image | None, tuple[str, ...]]
"""A file as it is, and the folders to create for it."""


def look_at(location: Location, env: Env) -> Found:
    """Look at a file that is to be changed."""
    env.budget.check_read()
    found = look(location, Guard(env.roots), env.file_bytes)
    if found[0] is not None:
        env.budget.add_read(len(found[0].content))
    return found


def draft_of(location: Location, found: Found, text: str, fields: dict[str, Any], env: Env) -> Draft:
    """Return the draft that gives a file this text."""
    before, made = found
    after = Blob.of(_encode(text, env.file_bytes))
    if before is None:
        return Draft(fields, (Change(location.display_path, None, after.hash, None, made),), (after,))
    if before.content == after.content:
        return Draft(fields)
    blob = Blob.of(before.content)
    return Draft(fields, (Change(location.display_path, blob.hash, after.hash, before.mode),), (blob, after))


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
