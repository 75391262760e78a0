"""A skill in the older form becomes one in the documented form: the same skill, with every comment and all prose.

Nothing is written unless the rewritten folder gives the very same value. Comments that would lose their place stand at
the top; keys that nobody knows become comments.
"""

from __future__ import annotations

import io
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from reyn.errors import FixImpossible
from reyn.ops import standard_ops
from reyn.skills import read_skill
from reyn.skills.dialect import is_wrapped
from reyn.skills.fronts import PhaseFront, SkillFront

if TYPE_CHECKING:
    from reyn.skills import Library

_OLDER_BOOLEANS = {"yes": True, "on": True, "no": False, "off": False}


def fix_skill(folder: Path, library: Library) -> list[str]:
    """Rewrite what is written in the older form; the files that changed."""
    before = read_skill(folder, standard_ops().vocabulary, library)
    if not before.folder.is_older:
        return []
    if before.skill is None:
        raise FixImpossible(f"skill `{folder.name}` has errors; mend them first")
    files = ["skill.md", *before.folder.own("phases", ".md"), *before.folder.own("artifacts", ".yaml")]
    rewritten = {file: content for file in files if (content := _rewrite(folder, file)) is not None}
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / folder.name
        for path in [*(folder / file for file in files), *(p for p in folder.glob("*.py") if p.is_file())]:
            target = copy / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(rewritten.get(str(path.relative_to(folder)), path.read_bytes()))
        after = read_skill(copy, standard_ops().vocabulary, library)
    if after.skill != before.skill or after.folder.is_older:
        told = "; ".join(str(finding) for finding in after.findings[:3]) or "its value would change"
        raise FixImpossible(f"skill `{folder.name}` cannot be rewritten without changing it: {told}")
    for file, content in rewritten.items():
        _replace(folder / file, content)
    return sorted(rewritten)


def _replace(path: Path, content: bytes) -> None:
    """The whole new file or the whole old one, whenever the machine stops."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(content)
    beside.replace(path)


def _rewrite(folder: Path, file: str) -> bytes | None:
    """The new content of a file, or `None` if it stays as it is. Line ends and a byte-order mark are kept."""
    raw = (folder / file).read_bytes()
    text = raw.decode("utf-8-sig")
    old = text.replace("\r\n", "\n")
    try:
        new = _rewrite_artifact(old) if file.endswith(".yaml") else _rewrite_file(old, file)
    except (AttributeError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise FixImpossible(f"`{file}` cannot be rewritten: {error}") from error
    if new is None or new == old:
        return None
    if "\r\n" in text:
        new = new.replace("\n", "\r\n")
    return (b"\xef\xbb\xbf" if raw.startswith(b"\xef\xbb\xbf") else b"") + new.encode()


def _rewrite_file(text: str, file: str) -> str:
    head, body = _split(text)
    return f"---\n{_rewrite_front(head, file)}---\n{body}"


def _split(text: str) -> tuple[str, str]:
    """Front matter and everything after it, to the byte."""
    lines = text.split("\n")
    end = next(number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---")
    return "\n".join(lines[1:end]) + "\n", "\n".join(lines[end + 1 :])


def _round_trip() -> Any:
    """A reader and writer of YAML that keeps comments and quotes. Its errors are ours."""
    try:
        from ruamel.yaml import YAML
    except ImportError as error:
        raise FixImpossible(
            "`--fix` needs the package ruamel.yaml", hint="Install it with `pip install 'reyn[fix]'`."
        ) from error
    made = YAML()
    made.preserve_quotes = True
    made.width = 120
    made.indent(mapping=2, sequence=4, offset=2)
    return made


def _load(text: str) -> Any:
    from ruamel.yaml.error import YAMLError

    try:
        return _round_trip().load(text)
    except YAMLError as error:
        raise ValueError(str(error).split("\n")[0]) from error


def _rewrite_artifact(text: str) -> str | None:
    value = _load(text)
    if not is_wrapped(value):
        return None
    schema = value["schema"]
    _booleans(schema)
    left_out = {key: item for key, item in value.items() if key not in ("name", "schema", "description", "wrapped")}
    if value.get("description") and hasattr(schema, "insert"):
        if "description" in schema:
            left_out["description"] = schema.pop("description")
        schema.insert(0, "description", value["description"])
    return _with_comments(text, _as_comments(left_out) + _dump(schema))


def _as_comments(left_out: dict[str, Any]) -> str:
    """Keys that have no place in the documented form, as comments: nothing that somebody wrote is thrown away."""
    text = "".join(_dump({key: item}) for key, item in left_out.items())
    return "".join(f"# {line}\n" for line in text.rstrip("\n").split("\n")) if left_out else ""


def _rewrite_front(text: str, file: str) -> str:
    value = _load(text)
    _booleans(value)
    is_skill = file == "skill.md"
    if value.get("max_act_turns") == 0:
        del value["max_act_turns"]
    if isinstance(value.get("finish_criteria"), str):
        value["finish_criteria"] = [part.strip() for part in value["finish_criteria"].split(",") if part.strip()]
    for node, targets in (value.get("graph") or {}).items():
        if isinstance(targets, str):
            value["graph"][node] = [targets]
    after: Any = value.get("postprocessor") or {}
    if "output" in after and "output_schema" not in after:
        after.insert(0, "output_schema", after.pop("output"))
    for steps in (value.get("preprocessor") or [], after.get("steps") or []):
        steps[:] = [_modern(step) for step in steps]
    if "type" not in value:
        value.insert(0, "type", "skill" if is_skill else "phase")
    if "name" not in value:
        value.insert(1, "name", Path(file).stem)
    if not is_skill and "input" not in value:
        raise ValueError("it has no `input`, which the documented form needs")
    known = {field.name for field in msgspec.structs.fields(SkillFront if is_skill else PhaseFront)}
    unknown = [key for key in value if key not in known and not str(key).startswith("imported_")]
    left_out = {key: value.pop(key) for key in unknown}
    return _with_comments(text, _as_comments(left_out) + _dump(value))


def _modern(step: Any) -> Any:
    """`{type: python, …}` becomes `{python: {…}}`, comments with their keys."""
    from ruamel.yaml.comments import CommentedMap

    if not isinstance(step, CommentedMap) or "type" not in step:
        return step
    inner = CommentedMap(
        (key, _modern(item) if key == "apply" else item) for key, item in step.items() if key != "type"
    )
    for key, comment in step.ca.items.items():
        if key != "type":
            inner.ca.items[key] = comment
    modern = CommentedMap({step["type"]: inner})
    if step.fa.flow_style():
        inner.fa.set_flow_style()
    return modern


def _booleans(value: Any) -> None:
    """Unquoted words that the older form took for booleans. Quoted ones have a type of their own."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items):
        if type(item) is str and item.lower() in _OLDER_BOOLEANS:
            value[key] = _OLDER_BOOLEANS[item.lower()]
        else:
            _booleans(item)


def _dump(value: Any) -> str:
    stream = io.StringIO()
    _round_trip().dump(value, stream)
    return stream.getvalue()


def _with_comments(old: str, new: str) -> str:
    """The new text, with those comments at its top that did not find a place in it."""
    lost = Counter(_comments(old)) - Counter(_comments(new))
    return "".join(f"{comment}\n" for comment in lost.elements()) + new


def _comments(text: str) -> list[str]:
    """Every comment of a YAML text: what stands behind a `#` between two tokens, never inside one."""
    found: list[str] = []
    end = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        if token.start_mark is None or token.end_mark is None:
            continue
        found += _in_gap(text[end : token.start_mark.index])
        end = max(end, token.end_mark.index)
    return [*found, *_in_gap(text[end:])]


def _in_gap(gap: str) -> list[str]:
    return [line[line.index("#") :].rstrip() for line in gap.split("\n") if "#" in line]
