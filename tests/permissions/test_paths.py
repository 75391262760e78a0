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


EXECUTED = (
    "bash bat cjs class cmd com cron csh desktop dll dylib exe fish jar js ksh lua mjs mk nu php pl pm ps1 psm1 pth py "
    "pyc pyd pyi pyw pyx r rb service sh so tcl timer ts vbs zsh"
)
READ_AS_INSTRUCTIONS = (
    "Brewfile build.gradle CMakeLists.txt composer.json crontab docker-compose.yaml docker-compose.yml Dockerfile "
    "Earthfile Gemfile GNUmakefile Guardfile hooks Jenkinsfile justfile Makefile meson.build node_modules package.json "
    "Podfile pom.xml Procfile pyproject.toml Rakefile setup.cfg sitecustomize Taskfile.yaml Taskfile.yml Tiltfile "
    "tox.ini Vagrantfile wscript"
)


@pytest.mark.parametrize("suffix", EXECUTED.split())
def test_a_file_that_is_executed_or_imported_is_covered_by_a_pattern_with_its_suffix_only(suffix: str):
    path = f"tools/x.{suffix}"
    assert not any(covers(pattern, path) for pattern in ("tools/", "tools/*", "tools/x.*", "tools/?.?*"))
    assert covers(f"tools/*.{suffix}", path)


@pytest.mark.parametrize("name", READ_AS_INSTRUCTIONS.split())
def test_a_file_that_is_read_as_instructions_is_covered_by_its_name_only(name: str):
    for spelled in (name, name.upper()):
        path = f"tools/{spelled}"
        assert not any(covers(pattern, path) for pattern in ("tools/", "tools/*", f"tools/{spelled[:-1]}?"))
        assert covers(path, path)


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
    for pattern in ("./", "docs/", "docs/**", "docs/*/", "**/reyn/*"):
        assert covers(pattern, "docs/reyn/x.md")
    assert covers("docs/", "docs/x/reyn/a.md")


def test_reading_protects_hidden_names_only():
    assert covers("./", "tools/run.py", "read")
    assert covers("./", "Makefile", "read")
    assert not covers("./", ".env", "read")
    assert not covers("./", "x/.git/config", "read")


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*env", ".env"),
        ("[.]env", ".env"),
        ("?env", ".env"),
        ("**/x", ".git/x"),
        ("**/x", "a/.git/x"),
        ("*/config", ".git/config"),
        ("*/run.py", "a/run.sh"),
        ("tools/*.p[y]", "tools/run.py"),
        ("tools/*.py", "tools/.run.py"),
        ("tools/*.PY", "tools/run.py"),
        ("*.yaml", "reyn.yaml"),
        ("*/a.md", "hooks/a.md"),
        ("*.py/a.md", "reyn/a.md"),
        ("tools/run.*", "tools/run.py"),
        ("tools/*.json", "tools/package.json"),
    ],
)
def test_a_pattern_that_does_not_spell_a_protected_name_does_not_cover_it(pattern: str, path: str):
    assert not covers(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "covered", "not_covered"),
    [
        ("**", ["a.md", "x/y/a.md"], []),
        ("**/a.md", ["a.md", "x/a.md", "x/y/a.md"], ["x/a.md/b", "b.md"]),
        ("docs/**", ["docs", "docs/x", "docs/x/y"], ["x/docs"]),
        ("**/x/**/a.md", ["x/a.md", "b/x/c/d/a.md"], ["a.md", "b/a.md"]),
        ("[ab].md", ["a.md"], ["c.md", "[ab].md"]),
        ("docs/./a.md", ["docs/a.md"], ["docs/./a"]),
        ("docs//a.md", ["docs/a.md"], []),
        ("*", ["a.md"], ["x/a.md"]),
        ("*/", ["a.md", "x/a.md"], []),
    ],
)
def test_two_stars_match_any_number_of_folders_and_one_star_a_name(pattern: str, covered: list, not_covered: list):
    assert [path for path in covered if not covers(pattern, path)] == []
    assert [path for path in not_covered if covers(pattern, path)] == []


def test_a_recursive_pattern_covers_its_own_folder():
    assert covers("tickets/", "tickets")
    assert PathPattern.parse("./").covers(Location.at("project", ()), "read")


def test_two_wildcards_reach_a_protected_name_only_through_folders_that_are_not_protected():
    assert covers("**/*.py", "x/y/run.py")
    assert not covers("**/*.py", "node_modules/run.py")
    assert covers("**/*.py", "node_modules/run.py", "read")
    assert not covers("**/*.py", ".venv/run.py", "read")


def test_a_home_folder_is_expanded_and_lies_outside(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/ada")
    pattern = PathPattern.parse("~/notes/")
    assert (pattern.zone, pattern.segments, pattern.is_recursive) == ("outside", ("home", "ada", "notes"), True)
    assert pattern.text == "~/notes/"


@pytest.mark.parametrize(
    ("text", "zone", "segments", "is_recursive"),
    [
        ("a/b", "project", ("a", "b"), False),
        ("./", "project", (), True),
        (".", "project", (), True),
        ("/", "outside", (), True),
        ("workspace:a", "workspace", ("a",), False),
        ("workspace:./", "workspace", (), True),
        ("x/workspace:", "project", ("x", "workspace:"), False),
    ],
)
def test_a_pattern_names_a_zone_and_segments(text: str, zone: str, segments: tuple[str, ...], is_recursive: bool):
    pattern = PathPattern.parse(text)
    assert (pattern.zone, pattern.segments, pattern.is_recursive) == (zone, segments, is_recursive)


def test_a_request_lists_paths_and_scopes():
    entries = ["a", {"path": "b", "scope": "recursive"}, {"path": "c/", "scope": "just_path", "reason": "to file it"}]
    patterns = parse_patterns(entries)
    assert [(one.text, one.is_recursive) for one in patterns] == [("a", False), ("b", True), ("c/", False)]
    assert [one.is_recursive for one in parse_patterns([{"path": "d/"}, {"path": "d", "scope": ""}])] == [True, False]
    assert [one.text for one in parse_patterns("a/")] == ["a/"]


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
