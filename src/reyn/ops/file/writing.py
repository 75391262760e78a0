"""What was asked for becomes a draft: the change it would make, its contents, and what would be fields of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.journal import Blob
from reyn.ops.file.reading import not_found
from reyn.ops.op import OpFailed
from reyn.workspace import Change, Image, missing_folders, read, text_of

if TYPE_CHECKING:
    from reyn.ops.op import Env
    from reyn.workspace import Place

Arguments = dict[str, Any]


class Draft(msgspec.Struct, frozen=True):
    """No changes if all is as it should be already."""

    fields: dict[str, Any]
    """The fields of the result."""
    changes: tuple[Change, ...] = ()
    blobs: tuple[Blob, ...] = ()


def write_draft(arguments: Arguments, place: Place, env: Env) -> Draft:
    before = read(place, env.roots, env.file_bytes)
    return draft_of(place, before, arguments["content"], {"path": place.shown}, env)


def edit_draft(arguments: Arguments, place: Place, env: Env) -> Draft:
    before = read(place, env.roots, env.file_bytes)
    if before is None:
        raise not_found(place, env)
    text, old, new = text_of(before.content, place), arguments["old_string"], arguments["new_string"]
    count = text.count(old)
    if not count:
        raise OpFailed(f"`old_string` is not found in `{place.shown}`; it must be there to the letter")
    if count > 1 and not arguments["replace_all"]:
        raise OpFailed(
            f"`old_string` appears {count} times in `{place.shown}`; give more of the text around it, or `replace_all`"
        )
    # Before it is made: a short answer can ask for more than there is memory.
    if len(text) + count * (len(new) - len(old)) > env.file_bytes:
        raise OpFailed(f"`{place.shown}` would become larger than {env.file_bytes} bytes")
    return draft_of(place, before, text.replace(old, new), {"path": place.shown, "replacements": count}, env)


def delete_draft(arguments: Arguments, place: Place, env: Env) -> Draft:
    before = read(place, env.roots, env.file_bytes)
    fields = {"path": place.shown, "deleted": before is not None}
    if before is None:
        return Draft(fields)
    blob = Blob.of(before.content)
    return Draft(fields, (Change(place.shown, blob.hash, None, before.mode),), (blob,))


def draft_of(place: Place, before: Image | None, text: str, fields: dict[str, Any], env: Env) -> Draft:
    """The draft of a file that is to hold a text."""
    after = Blob.of(_encoded(text, env.file_bytes))
    if before is None:
        made = missing_folders(place, env.roots)
        return Draft(fields, (Change(place.shown, None, after.hash, None, made),), (after,))
    if before.content == after.content:
        return Draft(fields)
    blob = Blob.of(before.content)
    return Draft(fields, (Change(place.shown, blob.hash, after.hash, before.mode),), (blob, after))


def _encoded(text: str, limit_bytes: int) -> bytes:
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise OpFailed("the content is not valid Unicode") from None
    if b"\0" in content:
        raise OpFailed("the content holds a NUL character; only text is written")
    if len(content) > limit_bytes:
        raise OpFailed(f"the file would be {len(content)} bytes; {limit_bytes} is the most")
    return content
