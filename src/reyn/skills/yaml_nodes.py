"""The nodes of a YAML text, with edits that remember what they changed.

Nodes have positions in the text, which edits keep: findings about a converted file name the line of the author, and a
writer can copy what did not change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from reyn.documents import plain_scalar

if TYPE_CHECKING:
    YamlEntry = tuple[Node, Node]

N = TypeVar("N", bound=Node)


def yaml_entries(node: Node | None) -> dict[str, YamlEntry]:
    """Return the key and value nodes of a mapping by key; none for another node."""
    return {str(key.value): (key, value) for key, value in node.value} if isinstance(node, MappingNode) else {}


def node_at(node: Node | None, name: str) -> Node | None:
    """Return the value of a key of a mapping; `None` if there is none."""
    return yaml_entries(node).get(name, (None, None))[1]


def value_of(node: Node | None) -> Any:
    """Return the value of a scalar; `None` for another node."""
    if not isinstance(node, ScalarNode):
        return None
    return node.value if node.style else plain_scalar(node.value)


def children_of(node: Node) -> list[Node]:
    """Return the nodes in a mapping or a sequence."""
    if isinstance(node, MappingNode):
        return [part for entry in node.value for part in entry]
    return node.value if isinstance(node, SequenceNode) else []


class YamlNodes:
    """The nodes of one text.

    Attributes:
        text: The text.
        root: The outermost node.
    """

    def __init__(self, text: str) -> None:
        """Parse a text.

        Raises:
            yaml.YAMLError: It is not YAML.
        """
        self.text = text
        self.root: Node = yaml.compose(text, Loader=yaml.CSafeLoader) or ScalarNode("", "", None, None)
        self._source = self.root
        self._changed: set[int] = set()
        self._in_flow: set[int] = set()
        pending = [self.root]
        while pending:
            node = pending.pop()
            pending += children_of(node)
            if getattr(node, "flow_style", False) or id(node) in self._in_flow:
                self._in_flow |= {id(child) for child in children_of(node)}

    @property
    def is_original(self) -> bool:
        """Whether nothing was changed."""
        return self.root is self._source and self.is_unchanged(self.root)

    def is_unchanged(self, node: Node) -> bool:
        """Return whether a node of the text and everything in it is as it was."""
        return id(node) not in self._changed and all(map(self.is_unchanged, children_of(node)))

    def is_in_flow(self, node: Node) -> bool:
        """Return whether a node stands between brackets or braces in the text."""
        return id(node) in self._in_flow

    def scalar(self, text: str, at: Node | None = None, *, is_text: bool = True) -> ScalarNode:
        """Return a new scalar at the position of a node."""
        start, end = (at.start_mark, at.end_mark) if at else (None, None)
        return self._new(ScalarNode("", text, start, end, style="'" if is_text else None))

    def mapping(self, entries: Iterable[YamlEntry], like: Node | None = None) -> MappingNode:
        """Return a new mapping with the position and style of a node; by default, one in one line."""
        start, end = (like.start_mark, like.end_mark) if like else (None, None)
        return self._new(MappingNode("", list(entries), start, end, flow_style=getattr(like, "flow_style", True)))

    def sequence(self, items: Iterable[Node], at: Node) -> SequenceNode:
        """Return a new sequence in one line, at the position of a node."""
        return self._new(SequenceNode("", list(items), at.start_mark, at.end_mark, flow_style=True))

    def _new(self, node: N) -> N:
        self._changed.add(id(node))
        return node

    def pop(self, mapping: Node, name: str) -> YamlEntry:
        """Remove an entry of a mapping."""
        entry = yaml_entries(mapping)[name]
        self.update(mapping, [one for one in mapping.value if one[0] is not entry[0]])
        return entry

    def put(self, mapping: Node, name: str, value: Node, *, at: Node | None = None) -> None:
        """Set the value of a key. A new key comes first; it has the position of `at`."""
        entries = yaml_entries(mapping)
        if name not in entries:
            self.update(mapping, [(self.scalar(name, at), value), *mapping.value])
        elif entries[name][1] is not value:
            self.update(mapping, [(key, value if key is entries[name][0] else old) for key, old in mapping.value])

    def rename(self, mapping: Node, name: str, new: str) -> None:
        """Change a key of a mapping."""
        key = yaml_entries(mapping)[name][0]
        self.update(mapping, [(self.scalar(new, key), old) if one is key else (one, old) for one, old in mapping.value])

    def replace_scalars(self, node: Node, words: dict[str, str]) -> Node:
        """Return a node in which unquoted scalars were replaced by others; keys are not changed."""
        if isinstance(node, ScalarNode):
            is_word = not node.style and node.value in words
            return self.scalar(words[node.value], node, is_text=False) if is_word else node
        if isinstance(node, MappingNode):
            for name, (_, value) in yaml_entries(node).items():
                self.put(node, name, self.replace_scalars(value, words))
        elif isinstance(node, SequenceNode):
            items = [self.replace_scalars(item, words) for item in node.value]
            if any(new is not old for new, old in zip(items, node.value, strict=True)):
                self.update(node, items)
        return node

    def update(self, node: Node, value: list[Any]) -> None:
        """Replace the entries of a mapping, or the items of a sequence."""
        node.value = value
        self._changed.add(id(node))
