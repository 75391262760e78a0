"""Rewrite a skill from the older form to the documented one, and its graph with edge texts.

Where the descriptions of artifacts say when to choose each successor of a phase, they become the texts of its edges.
Files are written only if the rewritten skill loads as an equal value and offers the model equal candidates. Comments
and prose are preserved: a comment whose key disappears moves to the top of its block, and an unknown key becomes a
comment.
"""

from __future__ import annotations

import io
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from msgspec.structs import replace

from reyn.contract import candidates_of
from reyn.documents import DocumentError, read_raw
from reyn.errors import FixImpossible
from reyn.lint.edits import add_requests, rewrite_front_matter, write_edge_texts
from reyn.ops import standard_ops
from reyn.skills import USER_MESSAGE, pin, read_skill
from reyn.skills.dialect import IMPLIED_PERMISSIONS, data_schema, is_wrapped
from reyn.skills.values import END
from reyn.workspace.writing import replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reyn.contract import Candidate
    from reyn.lint.edits import Calls
    from reyn.skills import Library, Skill
    from reyn.vocabulary import Vocabulary

_YAML_1_1_BOOLEANS = {"yes": True, "on": True, "no": False, "off": False}


def fix_skill(folder: Path, library: Library, vocabulary: Vocabulary | None = None) -> list[str]:
    """Rewrite a skill in the documented form, with edge texts.

    Args:
        folder: The skill's folder.
        library: Where sub-skills and shared files are found.
        vocabulary: The known ops; by default, the built-in and installed ones.

    Returns:
        The files that changed; none if the skill is in the documented form already.

    Raises:
        FixImpossible: the skill has errors, or cannot be rewritten without changing it. No file was changed.
    """
    vocabulary = vocabulary or standard_ops().vocabulary
    before = read_skill(folder, vocabulary, library)
    is_older = before.folder.is_older
    texts = _edge_texts(before.skill) if before.skill else {}
    if not is_older and not texts:
        return []
    if before.skill is None:
        raise FixImpossible(f"skill `{folder.name}` has errors")
    files = ["skill.md", *before.folder.own_files("phases", ".md"), *before.folder.own_files("artifacts", ".yaml")]
    paths = {file: before.folder.path_of(file) for file in files}
    unsafe = frozenset(_unsafe_calls(before.skill))
    front = before.folder.front_matter("skill.md")
    written = front.value.get("permissions") if front and isinstance(front.value, dict) else None
    implied = [key for key in IMPLIED_PERMISSIONS if key in before.skill.permissions and key not in (written or {})]

    def rewrite(text: str, file: str) -> str | None:
        if file.endswith(".yaml"):
            return _rewrite_artifact(text) if is_older else None
        text = _rewrite_markdown(text, file, unsafe, implied) if is_older else text
        return _add_edge_texts(text, texts) if file == "skill.md" else text

    rewritten = {file: text for file in files if (text := _rewrite(paths[file], file, folder, rewrite)) is not None}
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / folder.name
        modules = {path.name: path for path in folder.glob("*.py") if path.is_file()}
        for file, path in (paths | modules).items():
            target = copy / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(rewritten.get(file) or _read(path, file, folder))
        after = read_skill(copy, vocabulary, library)
    if not _are_equal(before.skill, after.skill) or after.folder.is_older:
        problems = [f"{finding.file}:{finding.line}: {finding.message}" for finding in after.findings[:3]]
        reason = "; ".join(problems) or "its value would change"
        raise FixImpossible(f"skill `{folder.name}` cannot be rewritten without changing it: {reason}")
    for file, content in rewritten.items():
        replace_file(_resolved(paths[file], folder), [content])
    return sorted(rewritten)


def _edge_texts(skill: Skill) -> dict[str, dict[str, str]]:
    """Return the artifact descriptions as edge texts, for phases whose successors they distinguish."""
    found: dict[str, dict[str, str]] = {}
    for node, targets in skill.graph.items():
        if node not in skill.phases or node in skill.edge_texts or len(targets) < 2:
            continue
        candidates = [one for one in candidates_of(skill, node) if one.next_phase in targets]
        texts = {
            candidate.next_phase: candidate.description for candidate in candidates if _is_written(skill, candidate)
        }
        are_distinct = len({text.casefold() for text in texts.values()}) == len(candidates) == len(targets)
        if are_distinct and not any("\n" in text for text in texts.values()):
            found[node] = texts
    return found


def _is_written(skill: Skill, candidate: Candidate) -> bool:
    """Return whether the author wrote a candidate's description."""
    if candidate.next_phase == END:
        return bool(skill.final_output_description or skill.final_output.description)
    return any(one.description for one in skill.inputs_of(candidate.next_phase) if one != USER_MESSAGE)


def _add_edge_texts(text: str, texts: dict[str, dict[str, str]]) -> str:
    head, body = _split(text)
    return f"---\n{write_edge_texts(head, texts)}---\n{body}"


def _are_equal(before: Skill, after: Skill | None) -> bool:
    """Return whether two skills are the same but for edge texts, and offer the model the same candidates."""
    if after is None or pin(replace(after, edge_texts={})) != pin(replace(before, edge_texts={})):
        return False
    return all(candidates_of(before, phase) == candidates_of(after, phase) for phase in before.phases)


def _unsafe_calls(skill: Skill) -> Iterator[tuple[str, str]]:
    for entry in skill.permissions.get("python") or ():
        if isinstance(entry, dict) and entry.get("mode") == "unsafe":
            yield str(entry.get("module")), str(entry.get("function"))


def _read(path: Path, file: str, folder: Path) -> bytes:
    try:
        return read_raw(path, file, inside=folder)
    except DocumentError as error:
        raise FixImpossible(f"`{file}` cannot be read: {error.finding.message}") from error


def _resolved(path: Path, folder: Path) -> Path:
    """Return where a file of the skill is. It was read there: a link that leads out of the folder is refused before."""
    resolved = path.resolve()
    if not resolved.is_relative_to(folder.resolve()):
        raise FixImpossible(f"`{path.name}` points outside the skill's folder")
    return resolved


def _rewrite(path: Path, file: str, folder: Path, rewrite: Callable[[str, str], str | None]) -> bytes | None:
    """Return the new content of a file, or `None` if it does not change; line ends and byte-order marks stay."""
    raw = _read(path, file, folder)
    text = raw.decode("utf-8-sig")
    old = text.replace("\r\n", "\n")
    try:
        new = rewrite(old, file)
    except (AttributeError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise FixImpossible(f"`{file}` cannot be rewritten: {error}") from error
    if new is None or new == old:
        return None
    if "\r\n" in text:
        new = new.replace("\n", "\r\n")
    return (b"\xef\xbb\xbf" if raw.startswith(b"\xef\xbb\xbf") else b"") + new.encode()


def _rewrite_markdown(text: str, file: str, unsafe: Calls, requests: list[str]) -> str:
    head, body = _split(text)
    new = rewrite_front_matter(head, file, unsafe)
    new = add_requests(new, requests) if file == "skill.md" else new
    return f"---\n{_with_lost_comments(head, new)}---\n{body}"


def _split(text: str) -> tuple[str, str]:
    """Return the front matter and the body, both verbatim."""
    lines = text.split("\n")
    end = next(number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---")
    return "\n".join(lines[1:end]) + "\n", "\n".join(lines[end + 1 :])


def _round_trip() -> Any:
    """Return a YAML reader and writer that preserves comments and quotes.

    Raises:
        FixImpossible: ruamel.yaml is not installed.
    """
    try:
        from ruamel.yaml import YAML
    except ImportError as error:
        raise FixImpossible(
            "rewriting skills needs the package ruamel.yaml", hint="Install it with `pip install 'reyn[fix]'`."
        ) from error
    parser = YAML()
    parser.preserve_quotes = True
    parser.width = 120
    parser.indent(mapping=2, sequence=4, offset=2)
    return parser


def _load(text: str) -> Any:
    from ruamel.yaml.error import YAMLError

    try:
        return _round_trip().load(text)
    except YAMLError as error:
        raise ValueError(str(error).split("\n")[0]) from error


def _rewrite_artifact(text: str) -> str | None:
    from ruamel.yaml.comments import CommentedMap

    value = _load(text)
    if not is_wrapped(value):
        return None
    schema, _ = data_schema(value)
    _convert_booleans(schema)
    removed = {key: item for key, item in value.items() if key not in ("name", "schema", "description", "wrapped")}
    if value.get("description") and isinstance(schema, CommentedMap):
        if "description" in schema:
            removed["description"] = schema.pop("description")
        schema.insert(0, "description", value["description"])
    return _with_lost_comments(text, _as_comments(removed) + _dump(schema))


def _as_comments(removed: dict[str, Any]) -> str:
    """Return keys that the documented form does not have, as comments."""
    text = "".join(_dump({key: item}) for key, item in removed.items())
    return "".join(f"# {line}\n" for line in text.rstrip("\n").split("\n")) if removed else ""


def _convert_booleans(value: Any) -> None:
    """Convert unquoted YAML 1.1 booleans in place. Quoted strings have types of their own."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items):
        if type(item) is str and item.lower() in _YAML_1_1_BOOLEANS:
            value[key] = _YAML_1_1_BOOLEANS[item.lower()]
        else:
            _convert_booleans(item)


def _dump(value: Any) -> str:
    stream = io.StringIO()
    _round_trip().dump(value, stream)
    return stream.getvalue()


def _with_lost_comments(old: str, new: str) -> str:
    """Return the new text, preceded by the comments of the old one that it lacks."""
    lost = Counter(_comments(old)) - Counter(_comments(new))
    return "".join(f"{comment}\n" for comment in lost.elements()) + new


def _comments(text: str) -> list[str]:
    """Return every comment of a YAML text. A `#` inside a token is not a comment."""
    comments: list[str] = []
    end = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        if token.start_mark is None or token.end_mark is None:
            continue
        comments += _comments_in_gap(text[end : token.start_mark.index])
        end = max(end, token.end_mark.index)
    return [*comments, *_comments_in_gap(text[end:])]


def _comments_in_gap(gap: str) -> list[str]:
    return [line[line.index("#") :].rstrip() for line in gap.split("\n") if "#" in line]
