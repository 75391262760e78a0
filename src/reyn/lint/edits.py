"""Rewrite front matter from the older form by editing its text.

Every edit replaces one range of the text, so that comments, quotes and layout stay as the author wrote them. YAML
writers that preserve comments move or lose those between list items. The caller checks that the result is equal.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from reyn.skills.dialect import FILE_PERMISSIONS, IGNORED_ARGUMENTS, module_path
from reyn.skills.front_matter import PhaseFrontMatter, SkillFrontMatter
from reyn.vocabulary import PERMISSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Calls = frozenset[tuple[str, str]]
"""Modules and functions of python steps."""

_BOOLEANS = {
    **dict.fromkeys(("yes", "Yes", "YES", "on", "On", "ON"), "true"),
    **dict.fromkeys(("no", "No", "NO", "off", "Off", "OFF"), "false"),
}


def rewrite_front_matter(text: str, file: str, unsafe: Calls) -> str:
    """Return front matter in the documented form.

    Args:
        text: The YAML text between the `---` lines.
        file: The file's path in the skill's folder.
        unsafe: Python functions whose permission has `mode: unsafe`.

    Raises:
        ValueError: the text uses YAML features that this rewrite does not support.
    """
    if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text, Loader=yaml.SafeLoader)):
        raise ValueError("it uses YAML aliases")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, MappingNode):
        raise ValueError("its front matter is not a mapping")
    return _Rewriter(text).rewrite(root, file, unsafe)


def write_edge_texts(text: str, texts: dict[str, dict[str, str]]) -> str:
    """Return the front matter of skill.md with lists of successors as mappings to when to choose each.

    Args:
        text: The YAML text between the `---` lines.
        texts: The texts by phase and successor, for every successor in the list of a phase.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    graph = _entries(root).get("graph")
    rewriter = _Rewriter(text)
    for name, (_, targets) in _entries(graph[1]).items() if graph else ():
        if name in texts and isinstance(targets, SequenceNode):
            rewriter.add_texts(targets, texts[name])
    return rewriter.edited()


def add_requests(text: str, keys: Iterable[str]) -> str:
    """Return the front matter of skill.md with more entries under `permissions`."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    permissions = _entries(root).get("permissions")
    rewriter = _Rewriter(text)
    lines = [f"{key}: true" for key in keys]
    if lines and permissions and isinstance(permissions[1], MappingNode) and permissions[1].value:
        for line in lines:
            rewriter.insert_entry(permissions[1], line)
    elif lines and permissions is None:
        rewriter.insert_entry(root, f"permissions: {{{', '.join(lines)}}}")
    return rewriter.edited()


class _Rewriter:
    """Collects edits as ranges of characters with their replacements."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._edits: list[tuple[int, int, str]] = []
        self._lines = [0, *(index + 1 for index, char in enumerate(text) if char == "\n")]

    def rewrite(self, root: MappingNode, file: str, unsafe: Calls) -> str:
        is_skill = file == "skill.md"
        keys = _entries(root)
        if not is_skill and "input" not in keys:
            raise ValueError("it has no `input`, which the documented form requires")
        if "type" not in keys:
            self.insert_entry(root, f"type: {'skill' if is_skill else 'phase'}")
        if "name" not in keys:
            self.insert_entry(root, f"name: {PurePath(file).stem}")
        for node in _values(root):
            if isinstance(node, ScalarNode) and node.style is None and node.value in _BOOLEANS:
                self._replace(node, _BOOLEANS[node.value])
        if "max_act_turns" in keys and self._source(keys["max_act_turns"][1]) == "0":
            self._delete_entry(root, "max_act_turns")
        if "finish_criteria" in keys:
            self._split_words(keys["finish_criteria"][1])
        for _, targets in _entries(keys["graph"][1]).values() if "graph" in keys else ():
            if isinstance(targets, ScalarNode):
                self._replace(targets, f"[{self._source(targets)}]")
        comments = ""
        if "permissions" in keys:
            self._rewrite_permissions(keys["permissions"][1])
            comments += self._comment_out_unknown(keys["permissions"][1])
        postprocessor = _entries(keys["postprocessor"][1]) if "postprocessor" in keys else {}
        if "output" in postprocessor and "output_schema" not in postprocessor:
            self._replace(postprocessor["output"][0], "output_schema")
        for _, steps in [entry for entry in (keys.get("preprocessor"), postprocessor.get("steps")) if entry]:
            for step in steps.value if isinstance(steps, SequenceNode) else ():
                self._rewrite_step(step, unsafe)
        fields = msgspec.structs.fields(SkillFrontMatter if is_skill else PhaseFrontMatter)
        known = {field.name for field in fields}
        comments += "".join(
            self._comment_out(root, key) for key in keys if key not in known and not key.startswith("imported_")
        )
        return comments + self._apply()

    def add_texts(self, targets: SequenceNode, texts: dict[str, str]) -> None:
        """Turn a list of successors into a mapping."""
        if targets.flow_style:
            self._edit(targets.start_mark.index, targets.start_mark.index + 1, "{")
            self._edit(targets.end_mark.index - 1, targets.end_mark.index, "}")
        for target in targets.value:
            start = target.start_mark.index
            if not targets.flow_style:
                start = self._text.rindex("-", 0, start)
            self._edit(start, target.end_mark.index, f"{self._source(target)}: {_flow_scalar(texts[target.value])}")

    def edited(self) -> str:
        """Return the text with all edits."""
        return self._apply()

    def _rewrite_step(self, step: Node, unsafe: Calls) -> None:
        """Rewrite `{type: python, …}` as `{python: {…}}`."""
        keys = _entries(step)
        if not isinstance(step, MappingNode) or "type" not in keys:
            return
        kind = self._source(keys["type"][1])
        arguments = [key for key in keys if key != "type"]
        indent = " " * (step.start_mark.column + 2)
        if step.flow_style:
            self._insert(step.start_mark.index + 1, f"{kind}: {{")
            self._delete_entry(step, "type")
            self._insert(step.end_mark.index - 1, "}")
        elif not arguments:
            self._edit(keys["type"][0].start_mark.index, keys["type"][1].end_mark.index, f"{kind}: {{}}")
        else:
            type_line = keys["type"][0].start_mark.line
            first_line = next(iter(keys.values()))[0].start_mark.line
            if next(iter(keys)) == "type":
                self._edit(keys["type"][0].start_mark.index, keys["type"][1].end_mark.index, f"{kind}:")
            else:
                self._insert(step.start_mark.index, f"{kind}:\n{indent}")
                self._delete_entry(step, "type")
            lines = range(first_line + 1, _last_line(step) + 1)
            self._indent(line for line in lines if line != type_line)
        if kind == "run_op" and "op" in keys:
            self._rewrite_op(keys["op"][1])
        if kind == "python":
            self._rewrite_python(step, keys, unsafe, indent)
        if "apply" in keys:
            self._rewrite_step(keys["apply"][1], unsafe)

    def _rewrite_python(
        self, step: MappingNode, keys: dict[str, tuple[Node, Node]], unsafe: Calls, indent: str
    ) -> None:
        self._rewrite_module(keys["module"][1])
        if (module_path(keys["module"][1].value), keys["function"][1].value) not in unsafe:
            return
        # In the older form, the permission has the mode of a step.
        if "mode" in keys:
            self._replace(keys["mode"][1], "unsafe")
        else:
            separator = ", " if step.flow_style else f"\n{indent}"
            self._insert(keys["module"][0].start_mark.index, f"mode: unsafe{separator}")

    def _rewrite_module(self, node: Node) -> None:
        path = module_path(node.value)
        if path != node.value:
            quote = node.style if isinstance(node, ScalarNode) and node.style else ""
            self._replace(node, f"{quote}{path}{quote}")

    def _rewrite_permissions(self, permissions: Node) -> None:
        """Rewrite `file: {read: …}` as `file.read: …`, and module names of python entries as paths."""
        keys = _entries(permissions)
        for entry in keys["python"][1].value if "python" in keys else ():
            module = _entries(entry).get("module")
            if module:
                self._rewrite_module(module[1])
        key, nested = keys.get("file", (None, None))
        accesses = _entries(nested)
        if (
            key is None
            or not isinstance(nested, MappingNode)
            or not accesses
            or not accesses.keys() <= {*FILE_PERMISSIONS}
        ):
            return
        entries = list(accesses.values())
        column = key.start_mark.column
        for name, (access, _) in accesses.items():
            self._replace(access, f"file.{name}")
        self._edit(key.start_mark.index, entries[0][0].start_mark.index, "")
        if nested.flow_style:
            for (_, value), (access, _) in pairwise(entries):
                separator = (
                    ", " if isinstance(permissions, MappingNode) and permissions.flow_style else f"\n{' ' * column}"
                )
                self._edit(value.end_mark.index, access.start_mark.index, separator)
            self._edit(entries[-1][1].end_mark.index, nested.end_mark.index, "")
            return
        surplus = entries[0][0].start_mark.column - column
        for line in range(entries[0][0].start_mark.line + 1, _last_line(nested) + 1):
            start = self._lines[line]
            if self._text.startswith(" " * surplus, start):
                self._edit(start, start + surplus, "")

    def _split_words(self, node: Node) -> None:
        if isinstance(node, ScalarNode) and node.tag.endswith(":str"):
            words = [word.strip() for word in node.value.split(",") if word.strip()]
            text = yaml.safe_dump(words, default_flow_style=True, allow_unicode=True, width=10_000)
            self._replace(node, text if node.style in ("|", ">") else text.rstrip("\n"))

    def _comment_out_unknown(self, permissions: Node) -> str:
        """Turn permissions that do not exist into comments."""
        if not isinstance(permissions, MappingNode):
            return ""
        known = {"file", *(entry.key for entry in PERMISSIONS)}
        return "".join(self._comment_out(permissions, key) for key in _entries(permissions) if key not in known)

    def _rewrite_op(self, op: Node) -> None:
        """Remove the arguments of an op that have no effect."""
        entries = _entries(op)
        kind = self._source(entries["kind"][1]) if "kind" in entries else ""
        ignored = [name for name in IGNORED_ARGUMENTS.get(kind, ()) if name in entries]
        if not ignored or not isinstance(op, MappingNode):
            return
        if "target" in ignored:
            raise ValueError("`target` of `judge_output` has to be rewritten by hand: `args_from: {output: PATH}`")
        if op.flow_style:
            rest = (pair for name, pair in entries.items() if name not in ignored)
            texts = (f"{self._source(key)}: {self._source(value)}" for key, value in rest)
            self._replace(op, f"{{{', '.join(texts)}}}")
        else:
            for name in ignored:
                self._delete_entry(op, name)

    def insert_entry(self, mapping: MappingNode, text: str) -> None:
        if mapping.flow_style:
            self._insert(mapping.start_mark.index + 1, f"{text}, ")
        else:
            self._insert(self._lines[mapping.start_mark.line], f"{' ' * mapping.start_mark.column}{text}\n")

    def _delete_entry(self, mapping: MappingNode, name: str) -> None:
        """Delete an entry; a comment on its line stays."""
        entries = list(_entries(mapping).items())
        index = [key for key, _ in entries].index(name)
        key, value = entries[index][1]
        if mapping.flow_style:
            if index + 1 < len(entries):
                self._edit(key.start_mark.index, entries[index + 1][1][0].start_mark.index, "")
            else:
                start = entries[index - 1][1][1].end_mark if index else key.start_mark
                self._edit(start.index, value.end_mark.index, "")
            return
        start, end = self._lines[key.start_mark.line], self._end_of_line(_last_line(value))
        if "#" in self._text[value.end_mark.index : end]:
            self._edit(key.start_mark.index, value.end_mark.index, "")
        else:
            self._edit(start, end, "")

    def _comment_out(self, root: MappingNode, name: str) -> str:
        """Turn an entry into a comment; return the comment if it has no line of its own."""
        key, value = _entries(root)[name]
        if root.flow_style:
            self._delete_entry(root, name)
            source = self._text[key.start_mark.index : value.end_mark.index]
            return "".join(f"# {line}\n" for line in source.split("\n"))
        for line in range(key.start_mark.line, _last_line(value) + 1):
            self._insert(self._lines[line], "# ")
        return ""

    def _indent(self, lines: Iterator[int]) -> None:
        for line in lines:
            if self._text[self._lines[line] : self._end_of_line(line)].strip():
                self._insert(self._lines[line], "  ")

    def _end_of_line(self, line: int) -> int:
        return self._lines[line + 1] if line + 1 < len(self._lines) else len(self._text)

    def _source(self, node: Node) -> str:
        return self._text[node.start_mark.index : node.end_mark.index]

    def _replace(self, node: Node, text: str) -> None:
        self._edit(node.start_mark.index, node.end_mark.index, text)

    def _insert(self, index: int, text: str) -> None:
        self._edit(index, index, text)

    def _edit(self, start: int, end: int, text: str) -> None:
        self._edits.append((start, end, text))

    def _apply(self) -> str:
        parts: list[str] = []
        position = 0
        # At the same index, insertions come before a replacement, and insertions keep their order.
        for start, end, text in sorted(self._edits, key=lambda edit: (edit[0], edit[1] > edit[0])):
            if start < position:
                raise ValueError("its layout is too unusual to edit")
            parts += [self._text[position:start], text]
            position = end
        return "".join([*parts, self._text[position:]])


def _flow_scalar(text: str) -> str:
    """Return a text as YAML, quoted if it needs quotes between braces."""
    return yaml.safe_dump([text], default_flow_style=True, allow_unicode=True, width=10_000).strip()[1:-1]


def _entries(node: Node | None) -> dict[str, tuple[Node, Node]]:
    """Return the key and value nodes of a mapping by key; none for another node."""
    if not isinstance(node, MappingNode):
        return {}
    return {str(key.value): (key, value) for key, value in node.value}


def _values(node: Node) -> Iterator[Node]:
    """Yield every value below a node; keys of mappings are not values."""
    children = [value for _, value in node.value] if isinstance(node, MappingNode) else node.value
    for child in children if isinstance(node, MappingNode | SequenceNode) else ():
        yield child
        yield from _values(child)


def _last_line(node: Node) -> int:
    """Return the last line of a node, without the comments and blank lines that follow it."""
    if isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(node, MappingNode) else last)
    mark = node.end_mark
    return mark.line - 1 if isinstance(node, ScalarNode) and node.style in ("|", ">") and not mark.column else mark.line
