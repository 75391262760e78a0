"""Write YAML nodes whose parts were changed, and leave the rest of the text as its author wrote it.

Nodes of the source are copied from the text. Comments stay above the entry, or beside the line, that they belong to.
YAML writers that preserve comments move or lose those between list items. The caller checks that the result is equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from reyn.skills.yaml_nodes import value_of

if TYPE_CHECKING:
    from reyn.skills.yaml_nodes import YamlEntry, YamlNodes


def write_nodes(nodes: YamlNodes, dropped: Iterable[YamlEntry] = ()) -> str:
    """Return the text of changed nodes.

    Args:
        nodes: The nodes.
        dropped: Entries that were removed and become comments.

    Raises:
        ValueError: The text has YAML aliases, which are nodes with several places.
    """
    if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(nodes.text, Loader=yaml.SafeLoader)):
        raise ValueError("it uses YAML aliases")
    writer = _Writer(nodes)
    new = "\n".join([*writer.comments_of(dropped), *writer.lines(nodes.root), *writer.tail(), ""])
    lost = Counter(comments_of(nodes.text)) - Counter(comments_of(new))
    return "".join(f"{comment}\n" for comment in lost.elements()) + new


class _Writer:
    """Writes nodes as lines."""

    def __init__(self, nodes: YamlNodes) -> None:
        self._nodes = nodes
        self._source_lines = nodes.text.split("\n")
        self._comments, self._filled = _scan(nodes.text)
        self._written: set[int] = set()

    def lines(self, root: Node) -> list[str]:
        if _is_inline(root):
            return [self._inline(root) + self._beside(root)]
        return list(self._block(root, 0))

    def tail(self) -> list[str]:
        """Return the comments after the last line of the source."""
        return [line for line in self._source_lines[max(self._filled, default=-1) + 1 :] if line.strip()]

    def comments_of(self, dropped: Iterable[tuple[Node, Node]]) -> Iterator[str]:
        """Yield entries of the source as comments."""
        for key, value in dropped:
            if self._nodes.is_in_flow(key):
                yield from (f"# {line}" for line in f"{self._inline(key)}: {self._inline(value)}".split("\n"))
            else:
                yield from (f"# {line}" for line in self._copy(key, value, 0))

    def _block(self, node: Node, indent: int) -> Iterator[str]:
        if isinstance(node, MappingNode):
            for key, value in node.value:
                yield from self._above(key, indent)
                yield from self._entry(key, value, indent)
            return
        for item in node.value:
            yield from self._above(item, indent)
            lines = [*self._value(item, indent + 2)]
            yield f"{' ' * indent}- {lines[0][indent + 2 :]}"
            yield from lines[1:]

    def _value(self, node: Node, indent: int) -> Iterator[str]:
        """Yield the lines of a list item."""
        if self._is_copied(node):
            yield from self._copy(node, node, indent)
        elif _is_inline(node):
            yield f"{' ' * indent}{self._inline(node)}{self._beside(node)}"
        else:
            yield from self._block(node, indent)

    def _entry(self, key: Node, value: Node, indent: int) -> Iterator[str]:
        if self._is_copied(key) and self._is_copied(value):
            yield from self._copy(key, value, indent)
        elif _is_inline(value):
            beside = self._beside(value if value.end_mark else key)
            yield f"{' ' * indent}{self._inline(key)}: {self._inline(value)}{beside}"
        else:
            yield f"{' ' * indent}{self._inline(key)}:{self._beside(key)}"
            yield from self._block(value, indent + 2)

    def _is_copied(self, node: Node) -> bool:
        return self._nodes.is_unchanged(node) and not self._nodes.is_in_flow(node)

    def _copy(self, start: Node, end: Node, indent: int) -> Iterator[str]:
        """Yield the lines of the source from one node to another, with another indentation."""
        column, last = start.start_mark.column, _last_line(end)
        first = start.start_mark.line
        yield " " * indent + self._source_lines[first][column:]
        for line in self._source_lines[first + 1 : last + 1]:
            surplus = min(column, len(line) - len(line.lstrip(" ")))
            yield " " * indent + line[surplus:] if line.strip() else line

    def _above(self, node: Node, indent: int) -> Iterator[str]:
        """Yield the comments and blank lines above a node."""
        end = start = node.start_mark.line if node.start_mark else 0
        while start and start - 1 not in self._filled | self._written:
            start -= 1
        self._written |= {*range(start, end)}
        for line in self._source_lines[start:end]:
            yield f"{' ' * indent}{line.strip()}".rstrip()

    def _beside(self, node: Node) -> str:
        """Return the comment that follows a node in its line."""
        end = node.end_mark
        if end is None:
            return ""
        line = end.line - (end.column == 0 and end.line > node.start_mark.line)
        return f"  {self._comments[line]}" if line in self._comments and line in self._filled else ""

    def _inline(self, node: Node) -> str:
        is_quoted = isinstance(node, ScalarNode) and node.style in ("'", '"')
        is_flow = self._nodes.is_in_flow(node) or getattr(node, "flow_style", False) or is_quoted
        if is_flow and self._nodes.is_unchanged(node):
            return self._nodes.text[node.start_mark.index : node.end_mark.index]
        if isinstance(node, MappingNode):
            return f"{{{', '.join(f'{self._inline(key)}: {self._inline(value)}' for key, value in node.value)}}}"
        if isinstance(node, SequenceNode):
            return f"[{', '.join(map(self._inline, node.value))}]"
        value = value_of(node)
        return _flow_text(value) if isinstance(value, str) else str(node.value)


def _is_inline(node: Node) -> bool:
    return not isinstance(node, MappingNode | SequenceNode) or bool(node.flow_style) or not node.value


def _flow_text(text: str) -> str:
    """Return a text as YAML, quoted if it needs quotes between braces."""
    return str(yaml.safe_dump([text], default_flow_style=True, allow_unicode=True, width=10_000)).strip()[1:-1]


def _last_line(node: Node) -> int:
    """Return the last line of a node, without the comments and blank lines that follow it."""
    if isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(node, MappingNode) else last)
    mark = node.end_mark
    is_block = isinstance(node, ScalarNode) and node.style in ("|", ">")
    return int(mark.line - 1 if is_block and not mark.column else mark.line)


def _scan(text: str) -> tuple[dict[int, str], set[int]]:
    """Return the comments of a YAML text by line, and the lines that have more than comments.

    A `#` inside a token is not a comment.
    """
    comments: dict[int, str] = {}
    filled: set[int] = set()
    end = line = 0
    for token in [*yaml.scan(text, Loader=yaml.SafeLoader), None]:
        gap = text[end : token.start_mark.index if token else len(text)]
        for number, part in enumerate(gap.split("\n"), line):
            if "#" in part:
                comments[number] = part[part.index("#") :].rstrip()
        if token is not None and token.end_mark.index > max(end, token.start_mark.index):
            end, line = token.end_mark.index, token.end_mark.line
            filled |= {*range(token.start_mark.line, line + (token.end_mark.column > 0))}
    return comments, filled


def comments_of(text: str) -> list[str]:
    """Return every comment of a YAML text."""
    return list(_scan(text)[0].values())
