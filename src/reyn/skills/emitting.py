"""Write values as YAML and Markdown with front matter, so that the loader reads the same values back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from reyn.documents import DocumentError, is_plain_text, parse_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

_WIDTH = 110
_SHORT = 80


class _Dumper(yaml.SafeDumper):
    """Quotes what Reyn would read as another value than a text, and writes texts of several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None if is_plain_text(text) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    """Write a short list of plain values in one line."""
    is_plain = all(isinstance(item, str | int | float | bool) and "\n" not in str(item) for item in items)
    is_short = is_plain and sum(len(str(item)) + 2 for item in items) <= _SHORT
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=is_short)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(list, _represent_list)


def to_yaml(value: Any) -> str:
    """Return a JSON value as YAML. Keys keep their order."""
    text = str(yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=_WIDTH))
    try:
        if parse_yaml(text, "").value == value:
            return text
    except DocumentError:
        pass
    # YAML has corners that no quoting rule covers; JSON is YAML without them.
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def to_front_matter(keys: Mapping[str, Any], body: str) -> str:
    """Return a Markdown file: the keys as front matter, then the body verbatim."""
    return f"---\n{to_yaml(dict(keys))}---\n{body}"
