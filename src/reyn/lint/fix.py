"""A skill in the older form becomes one in the documented form: the same skill, with every comment and all prose.

Nothing is written unless the rewritten folder gives the very same value. Comments that would lose their place stand at
the top; keys that nobody knows become comments.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import FixImpossible
from reyn.skills import read_skill
from reyn.skills.dialect import is_wrapped
from reyn.skills.fronts import PhaseFront, SkillFront

if TYPE_CHECKING:
    from reyn.skills import Library

_OLDER_BOOLEANS = {"yes": True, "on": True, "no": False, "off": False}


def fix_skill(folder: Path, library: Library) -> list[str]:
    """Rewrite what is written in the older form; the files that changed."""
    before = read_skill(folder, library)
    if not before.folder.is_older:
        return []
    rewritten = {file: text for file in _files(folder) if (text := _rewrite(folder, file)) is not None}
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / folder.name
        shutil.copytree(folder, copy, symlinks=True)
        for file, text in rewritten.items():
            (copy / file).write_text(text, encoding="utf-8")
        after = read_skill(copy, library)
    if before.skill is None or after.skill != before.skill or after.folder.is_older:
        told = "; ".join(str(finding) for finding in after.findings[:3]) or "its value would change"
        raise FixImpossible(f"skill `{folder.name}` cannot be rewritten without changing it: {told}")
    for file, text in rewritten.items():
        (folder / file).write_text(text, encoding="utf-8")
    return sorted(rewritten)


def _files(folder: Path) -> list[str]:
    found = [*folder.glob("phases/*.md"), *folder.glob("artifacts/*.yaml")]
    return ["skill.md", *(str(path.relative_to(folder)) for path in found)]


def _rewrite(folder: Path, file: str) -> str | None:
    """The new text of a file, or `None` if it stays as it is."""
    old = (folder / file).read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    if file.endswith(".yaml"):
        new = _rewrite_artifact(old)
    else:
        head, body = _split(old)
        new = f"---\n{_rewrite_front(head, file)}---\n{body}"
    return None if new is None or new == old else new


def _split(text: str) -> tuple[str, str]:
    """Front matter and everything after it, to the byte."""
    lines = text.split("\n")
    end = next(number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---")
    return "\n".join(lines[1:end]) + "\n", "\n".join(lines[end + 1 :])


def _yaml() -> Any:
    try:
        from ruamel.yaml import YAML
    except ImportError as error:
        raise FixImpossible(
            "`--fix` needs the package ruamel.yaml", hint="Install it with `pip install 'reyn[fix]'`."
        ) from error
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 120
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _rewrite_artifact(text: str) -> str | None:
    yaml = _yaml()
    value = yaml.load(text)
    if not is_wrapped(value):
        return None
    schema = value["schema"]
    _booleans(schema)
    if value.get("description") and hasattr(schema, "insert"):
        schema.pop("description", None)
        schema.insert(0, "description", value["description"])
    return _with_comments(text, _dump(yaml, schema))


def _rewrite_front(text: str, file: str) -> str:
    yaml = _yaml()
    value = yaml.load(text)
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
    dropped = _drop_unknown(value, SkillFront if is_skill else PhaseFront)
    return _with_comments(text, dropped + _dump(yaml, value))


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


def _drop_unknown(value: Any, shape: type[msgspec.Struct]) -> str:
    """Keys that the documented form would refuse, as comments."""
    known = {field.name for field in msgspec.structs.fields(shape)}
    unknown = [key for key in value if key not in known and not str(key).startswith("imported_")]
    text = ""
    for key in unknown:
        lines = _dump(_yaml(), {key: value.pop(key)}).rstrip("\n").split("\n")
        text += "".join(f"# {line}\n" for line in lines)
    return text


def _booleans(value: Any) -> None:
    """Unquoted words that the older form took for booleans. Quoted ones have a type of their own."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items):
        if type(item) is str and item.lower() in _OLDER_BOOLEANS:
            value[key] = _OLDER_BOOLEANS[item.lower()]
        else:
            _booleans(item)


def _dump(yaml: Any, value: Any) -> str:
    stream = io.StringIO()
    yaml.dump(value, stream)
    return stream.getvalue()


def _with_comments(old: str, new: str) -> str:
    """The new text, with those comments at its top that did not find a place in it."""
    lost = Counter(_comments(old)) - Counter(_comments(new))
    return "".join(f"{comment}\n" for comment in lost.elements()) + new


def _comments(text: str) -> list[str]:
    """Every comment of a YAML text, by its tokens: a `#` inside a string is none."""
    found = []
    for line in text.split("\n"):
        quote = ""
        for index, char in enumerate(line):
            if quote:
                quote = "" if char == quote else quote
            elif char in "\"'":
                quote = char
            elif char == "#" and (index == 0 or line[index - 1].isspace()):
                found.append(line[index:].rstrip())
                break
    return found
