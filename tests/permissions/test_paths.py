"""Path patterns: what they cover, and which names they must spell out."""

from __future__ import annotations

import pytest

from reyn.permissions import PathPattern
from reyn.permissions.paths import parse_patterns
from reyn.workspace import Location


def covers(pattern: str, path: str, access: str = "write", scope: str = "") -> bool:
    return PathPattern.parse(pattern, scope).covers(Location.at("project", tuple(path.split("/"))), access)


@pytest.mark.parametrize(
    ("pattern", "covered", "not_covered"),
    [
        ("tickets/", ["tickets/a.md", "tickets/x/y/b.md"], ["ticket/a.md", "x/tickets/a.md", "a.md"]),
        ("tickets", ["tickets"], ["tickets/a.md"]),
        ("notes/*.md", ["notes/a.md"], ["notes/x/a.md", "notes/a.txt"]),
        ("notes/**/*.md", ["notes/a.md", "notes/x/y/a.md"], ["a.md", "notes/a.txt"]),
        ("./", ["a.md", "x/y/z.md"], []),
        ("a?c.md", ["abc.md"], ["ac.md", "abbc.md"]),
    ],
)
def test_a_pattern_covers_paths(pattern: str, covered: list[str], not_covered: list[str]):
    assert all(covers(pattern, path) for path in covered)
    assert not any(covers(pattern, path) for path in not_covered)


PROTECTED = [
    "tickets/.env",
    "tickets/.git/config",
    "tickets/run.py",
    "tickets/RUN.PY",
    "tickets/Makefile",
    "tickets/makefile",
    "tickets/hooks/pre-commit",
    "tickets/package.json",
    "tickets/x.sh",
    "tickets/x.pth",
    "tickets/node_modules/a/b",
]


@pytest.mark.parametrize("path", PROTECTED)
def test_no_wildcard_covers_a_protected_name_for_writing(path: str):
    for pattern in ("tickets/", "**", "./", "tickets/**", "tickets/*", "tickets/**/*"):
        assert not covers(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("tickets/.env", "tickets/.env"),
        ("tickets/.e*", "tickets/.env"),
        ("tools/*.py", "tools/run.py"),
        ("**/*.py", "tools/x/run.py"),
        ("Makefile", "Makefile"),
        (".github/workflows/*.yml", ".github/workflows/ci.yml"),
        ("reyn/local/", "reyn/local/x/skill.md"),
        ("reyn.yaml", "reyn.yaml"),
    ],
)
def test_a_pattern_that_spells_a_protected_name_covers_it(pattern: str, path: str):
    assert covers(pattern, path)


@pytest.mark.parametrize("path", ["reyn/local/x.md", "reyn/__init__.py", "reyn.yaml", "reyn.local.yaml", "Reyn/x.md"])
def test_what_reyn_reads_is_protected_at_the_root(path: str):
    assert not covers("./", path)
    assert not covers("**", path)


def test_reyn_is_an_ordinary_name_below_the_root():
    assert covers("./", "docs/reyn/x.md")


def test_reading_protects_hidden_names_only():
    assert covers("./", "tools/run.py", "read")
    assert covers("./", "Makefile", "read")
    assert not covers("./", ".env", "read")
    assert not covers("./", "x/.git/config", "read")


def test_a_scope_overrides_the_spelling():
    assert covers("notes", "notes/a.md", scope="recursive")
    assert not covers("notes/", "notes/a.md", scope="just_path")


@pytest.mark.parametrize("text", ["", "a/../b", "../x", "a\0b"])
def test_an_unusable_pattern_is_an_error(text: str):
    with pytest.raises(ValueError, match="not a usable path pattern"):
        PathPattern.parse(text)


def test_paths_outside_the_project_and_in_the_workspace_have_their_own_patterns():
    outside = Location("outside", ("srv", "out.csv"), "/srv/out.csv")
    assert PathPattern.parse("/srv/").covers(outside, "write")
    assert not PathPattern.parse("./").covers(outside, "write")
    assert not PathPattern.parse("/srv/").covers(Location.at("project", ("srv", "out.csv")), "write")
    assert PathPattern.parse("workspace:a/").covers(Location.at("workspace", ("a", "b")), "write")


@pytest.mark.parametrize("wrong", [3, [3], [{"path": 3}], [{"path": "a", "scope": "all"}], [{"path": "a", "more": 1}]])
def test_a_request_that_is_no_path_is_an_error(wrong: object):
    with pytest.raises(ValueError, match=r"path|scope"):
        parse_patterns(wrong)
