"""Files that expand: a few bytes of YAML that stand for gigabytes, or that take minutes to read.

The attacker is the author of a cloned project, whose files are read by commands that only look. The oracles are the
characters in what comes out, counted by a walk, and processor time for one size against the time for four times it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.documents import DocumentError, parse_yaml, yaml_events
from tests.attacks.support import with_limits
from tests.properties import examples
from tests.support import grows_too_fast, write_skill

TEXT = "x" * 100_000
"""A text that a file may have once."""
FEW = 2_000

CARRIERS: dict[str, Callable[[str, int], str]] = {
    "items": lambda text, count: f"a: &a {text}\nb:\n" + "- *a\n" * count,
    "values": lambda text, count: f"a: &a {text}\n" + "".join(f"k{number}: *a\n" for number in range(count)),
    "a flow list": lambda text, count: f"- &a '{text}'\n- [{'*a, ' * count}]\n",
    "a block text": lambda text, count: f"a: &a |\n  {text}\nb: [{'*a, ' * count}]\n",
    "keys": lambda text, count: (
        f"a: &a {{{', '.join(text[:999] + str(at) for at in range(len(text) // 999))}}}\nb: [{'*a, ' * count}]\n"
    ),
    "a list": lambda text, count: f"a: &a [{text}]\nb: [{'*a, ' * count}]\n",
    "levels": lambda text, count: f"a: &a {text}\nb: &b [{'*a, ' * 10}]\nc: &c [{'*b, ' * 10}]\nd: [{'*c, ' * 20}]\n",
    "an outer container": lambda text, count: "a: &a\n  - &b " + text + "\n  - [*b, *b]\nc: [" + "*a, " * count + "]\n",
}  # fmt: skip


def characters(value: Any) -> int:
    if isinstance(value, dict):
        return sum(len(key) + characters(one) for key, one in value.items())
    return sum(map(characters, value)) if isinstance(value, list) else len(str(value))


@pytest.mark.parametrize("carrier", CARRIERS)
def test_an_alias_counts_as_much_as_it_stands_for(carrier: str):
    with pytest.raises(DocumentError, match="expands to more than 1000000 characters"):
        parse_yaml(CARRIERS[carrier](TEXT, FEW), "x.yaml")
    assert parse_yaml(CARRIERS[carrier](TEXT[:9], 3), "x.yaml").value


def test_a_file_of_the_largest_size_without_aliases_is_read():
    text = "x" * 999_990
    assert parse_yaml(f"a: {text}", "x.yaml").value == {"a": text}
    assert len(parse_yaml("- ab\n" * 49_000, "x.yaml").value) == 49_000


NAMES = st.sampled_from("abcd")
PARTS = st.sampled_from(
    ["{text}", "'{text}'", "&{name} {text}", "&{name} [{text}, {text}]", "*{name}", "[*{name}, *{name}]",
     "&{name} [*{other}, *{other}]", "&{name} {{k{text}: *{other}}}"]
)  # fmt: skip


@examples(200)
@given(st.lists(st.tuples(PARTS, NAMES, NAMES, st.integers(1, 30)), max_size=14))
def test_what_comes_out_is_bounded_however_aliases_are_combined(parts: list[tuple[str, str, str, int]]):
    lines = [part.format(text="x" * size, name=name, other=other) for part, name, other, size in parts]
    text = "".join(f"- {line}\n" for line in ["&a a", "&b b", "&c c", "&d d", *lines])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_events, "MAX_YAML_CHARACTERS", 200)
        try:
            value = parse_yaml(text, "x.yaml").value
        except DocumentError as error:
            assert "200 characters" in error.finding.message  # noqa: PT017 - or there is no error
            patch.setattr(yaml_events, "MAX_YAML_CHARACTERS", 10**9)
            assert characters(parse_yaml(text, "x.yaml").value) > 200
        else:
            assert characters(value) <= 200


def test_a_long_key_is_refused_because_every_finding_below_it_repeats_it():
    text = "? " + "k" * 1_025 + "\n: {a: 1}\n"
    with pytest.raises(DocumentError, match="a key is longer than 1024 characters"):
        parse_yaml(text, "x.yaml")
    assert parse_yaml(text.replace("k" * 1_025, "k" * 1_024), "x.yaml").value


@pytest.mark.parametrize("line_end", ["\n", "\r", "\r\n", "\x85", "\u2028", "\u2029"])
def test_tag_directives_are_counted_before_the_parser_compares_them(line_end: str, monkeypatch: pytest.MonkeyPatch):
    text = line_end.join(f"%TAG !{number}! b" for number in range(101)) + f"{line_end}--- a\n"
    monkeypatch.setattr(yaml_events, "yaml", None)
    with pytest.raises(DocumentError, match="more than 100 `%TAG` directives"):
        parse_yaml(text, "x.yaml")


REPEATED = {
    "flow lists": "[", "flow mappings": "{a: ", "lists": "- ", "keys": "? ", "colons": ":", "anchors": "- &a{n} x\n",
    "aliases": "- &a{n} [*a{n}]\n", "escapes": '- "\\n\\x41"\n', "folded": "a\n ", "blank lines": "- |\n\n\n\n  x\n",
    "comments": "#\n", "tags": "- !a b\n", "directives": "%TAG !{n}! b\n", "documents": "--- a\n...\n",
    "keys in one line": "{{k{n}: v}}, ", "pairs": "k{n}: v\n", "quotes": "- 'it''s'\n", "open quotes": '- "a\n',
    "digits": "9", "white space": " \t", "numbers": "- 1e9999\n", "combining": "- a\u0301\u0323\n",
}  # fmt: skip


@pytest.mark.parametrize("name", REPEATED)
def test_reading_takes_time_in_proportion_to_the_size(name: str):
    def read(count: int) -> None:
        fragment = REPEATED[name]
        text = "".join(fragment.replace("{n}", str(number)) for number in range(count)).replace("{{", "{")
        with suppress(DocumentError):
            parse_yaml(text.replace("}}", "}"), "x.yaml")

    assert not grows_too_fast(read, 6_000)


PLACES = {
    "reyn/project/one/artifacts/note.yaml": "type: object\nexamples:\n  - {inner}",
    "reyn/project/two/phases/work.md": "---\ntype: phase\nname: work\ninput: note\n{bomb}---\nWork.\n",
    "reyn/project/three/skill.md": "---\ntype: skill\nname: three\nentry: work\n{bomb}---\n",
    "reyn/agents/one.md": "---\ntype: agent\nname: one\n{bomb}---\nYou are one.\n",
}


def test_commands_that_only_look_read_no_bomb(tmp_path: Path):
    for name in ("one", "two", "three"):
        write_skill(tmp_path, name, {"work": ["end"]})
    (tmp_path / "reyn" / "agents").mkdir()
    bomb = f"bomb: &b {TEXT}\nmore: [{'*b, ' * 40_000}]\n"
    for place, text in PLACES.items():
        (tmp_path / place).write_text(text.format(bomb=bomb, inner=bomb.replace("\nmore", "\n    more")))
    (tmp_path / "empty").write_text("{}\n")
    (tmp_path / "bomb").write_text(bomb)
    program = f"""
import os
from reyn.cli.app import run_app
os.chdir({str(tmp_path)!r})
for configuration in ("empty", "bomb"):
    os.replace(configuration, "reyn.yaml")
    for command in ("lint", "skills", "agent list"):
        run_app(command.split())
"""
    printed = with_limits(program, seconds=60, megabytes=800)
    assert "expands to more than" in printed
    assert len(printed) < 50_000
