"""The forms `glob` and `grep`."""

import os

import pytest
from msgspec.structs import replace

from reyn.ops import budget
from reyn.permissions import PathPattern, Policy, parse_rules
from tests.ops.support import Desk, without_envelope
from tests.workspace.support import CANARY

DOT_FOLDER = Policy(read_zone=(PathPattern.parse("./"), PathPattern.parse("output/.hidden/")))


@pytest.fixture
def tree(desk):
    """Files of which one is hidden, in a folder that may be read because a zone spells it."""
    desk = Desk(desk.roots, policy=DOT_FOLDER)
    for path, content in {
        "output/a.md": "alpha\nTODO one\nbeta\n",
        "output/b.txt": "todo two\r\nTODO three\r\n",
        "output/sub/c.md": "gamma\n",
        "output/sub/deep/d.md": "TODO four\n",
        "output/.hidden/e.md": "TODO hidden\n",
        "src/f.py": "# TODO five\n",
    }.items():
        desk.put(path, content)
    desk.put("output/g.bin", b"TODO\xff")
    desk.put("output/h.log", "TODO\n" * 3_000)
    return desk


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("output/*.md", ["output/a.md"]),
        ("output/**/*.md", ["output/a.md", "output/sub/c.md", "output/sub/deep/d.md"]),
        ("**/d.md", ["output/sub/deep/d.md"]),
        ("**", ["README.md", "output/a.md", "output/b.txt", "output/g.bin", "output/h.log"]),
        ("*", ["README.md"]),
        ("output/[ab].*", ["output/a.md", "output/b.txt"]),
        ("output/?.txt", ["output/b.txt"]),
        ("output/sub/../*.txt", ["output/b.txt"]),
        ("output/.hidden/*", ["output/.hidden/e.md"]),
        ("output/.*/*", ["output/.hidden/e.md"]),
        ("output/sub", ["output/sub/c.md"]),
        ("output/sub/", ["output/sub/c.md"]),
        ("output/a.md", ["output/a.md"]),
        ("none/*", []),
        ("README.md/*", []),
        ("**/*.md/**", []),
        ("./output/*.md", ["output/a.md"]),
        (".reyn*/*", []),
        (".r*/**/*", []),
    ],
)
def test_glob_returns_matching_files_in_order(tree, pattern, matches):
    result = tree.do("glob", pattern=pattern)
    assert (result["status"], result["pattern"]) == ("ok", pattern)
    assert result["matches"][: len(matches)] == matches
    assert (result["count"], result["truncated"]) == (len(result["matches"]), False)
    if pattern != "**":
        assert result["matches"] == matches


def test_glob_accepts_path_and_absolute_patterns(tree):
    assert tree.do("glob", path="output/*.md")["matches"] == ["output/a.md"]
    assert tree.do("glob", pattern=f"{tree.roots.project}/output/*.md")["matches"] == ["output/a.md"]


def test_glob_lists_the_workspace(tree):
    tree.do("write", path="workspace:x/y.md", content="")
    assert tree.do("glob", pattern="workspace:**/*.md")["matches"] == ["workspace:x/y.md"]
    assert tree.do("glob", pattern="workspace:*")["matches"] == []


def test_glob_reports_truncation(tree):
    result = tree.do("glob", pattern="output/**", max_results=2)
    assert without_envelope(result) == {
        "pattern": "output/**",
        "matches": ["output/a.md", "output/b.txt"],
        "count": 2,
        "truncated": True,
    }
    assert tree.do("glob", pattern="output/*.md", max_results=1)["truncated"] is False


@pytest.mark.parametrize("pattern", ["../*", "/*", "../beside/secret.md", ".reyn/*", "workspace:../*", "out/*"])
def test_glob_outside_the_readable_zones_is_denied(tree, tmp_path, pattern):
    (tree.roots.project / "out").symlink_to(tmp_path / "beside")
    assert tree.do("glob", pattern=pattern)["status"] == "denied"


@pytest.mark.parametrize("pattern", ["*/../../*", "output/*/..", "**/../../beside/*", "output/.."])
def test_a_pattern_with_parent_components_is_an_error(tree, pattern):
    result = tree.do("glob", pattern=pattern)
    assert result["status"] == "error"
    assert "`..`" in result["error"]


def test_many_wildcards_match_in_bounded_time(tree):
    """With backtracking, these would not end."""
    tree.put("output/" + "a" * 200, "")
    assert tree.do("glob", pattern="output/" + "*a" * 60 + "b")["matches"] == []
    assert tree.do("glob", pattern="**/" * 90 + "none")["matches"] == []


def test_grep_returns_lines_with_numbers(tree):
    result = tree.do("grep", pattern="TODO", path="output", glob="*.md")
    assert without_envelope(result) == {
        "pattern": "TODO",
        "matches": [
            {"path": "output/a.md", "line_number": 2, "content": "TODO one"},
            {"path": "output/sub/deep/d.md", "line_number": 1, "content": "TODO four"},
        ],
        "count": 2,
        "truncated": False,
    }


def test_grep_returns_context_lines(tree):
    [match] = tree.do("grep", pattern="TODO", path="output/a.md", context_before=5, context_after=1)["matches"]
    assert match["context"] == {"before": ["alpha"], "after": ["beta"]}


@pytest.mark.parametrize(
    ("args", "files"),
    [
        ({"glob": "*.txt"}, ["output/b.txt"]),
        ({"glob": "output/*"}, ["output/a.md", "output/b.txt"]),
        ({"glob": "**/deep/*"}, ["output/sub/deep/d.md"]),
        ({"file_type": "py"}, ["src/f.py"]),
        ({"file_type": ".py"}, ["src/f.py"]),
        ({"path": "output/.hidden"}, ["output/.hidden/e.md"]),
        ({"path": "output/sub"}, ["output/sub/deep/d.md"]),
        ({"pattern": "^todo", "path": "output"}, ["output/b.txt"]),
        ({"pattern": "three$"}, ["output/b.txt"]),
        ({"head_limit": 1}, ["output/a.md"]),
    ],
)
def test_glob_and_file_type_select_the_searched_files(tree, args, files):
    (tree.roots.project / "output/h.log").unlink()
    result = tree.do("grep", **{"pattern": "TODO", "output_mode": "files_with_matches", **args})
    assert (result["files"][: len(files)], result["count"]) == (files, len(result["files"]))
    if "head_limit" in args:
        assert result["truncated"]
    else:
        assert result["files"] == files


def test_output_mode_count_counts_lines(tree):
    result = tree.do("grep", pattern="todo", path="output/b.txt", output_mode="count", case_insensitive=True)
    assert without_envelope(result) == {"pattern": "todo", "count": 2, "truncated": False}


def test_binary_and_large_files_are_skipped_and_counted(tree):
    result = tree.do("grep", pattern="TODO", path="output", output_mode="count")
    assert (result["count"], result["skipped"]) == (3, 2)
    assert tree.do("grep", pattern="TODO", path="output/g.bin")["status"] == "error"


def test_grep_reports_truncation(tree):
    result = tree.do("grep", pattern="O", head_limit=2, path="output")
    assert (len(result["matches"]), result["truncated"]) == (2, True)
    exact = tree.do("grep", pattern="TODO", head_limit=1, path="output/a.md")
    assert (len(exact["matches"]), exact["truncated"]) == (1, False)


def test_a_long_line_is_shortened_around_the_match(desk):
    desk.put("a.txt", "x" * 4_000 + "NEEDLE" + "y" * 4_000)
    [match] = desk.do("grep", pattern="NEEDLE")["matches"]
    assert "NEEDLE" in match["content"]
    assert len(match["content"]) == 402
    assert match["content"][0] == match["content"][-1] == "…"


@pytest.mark.parametrize(
    "pattern", ["(", "[a-", "(" * 499 + ")" * 499, "\\p{Foo}", "(a{39d<", "(?R)", "(a|(?1))*b", "(?&x)"]
)
def test_an_invalid_pattern_is_an_error(tree, pattern):
    result = tree.do("grep", pattern=pattern)
    assert result["status"] == "error"
    assert "pattern" in result["error"]


@pytest.mark.parametrize("pattern", ["(?R)", "(a|(?1))*b", "(?P<x>a(?&x))", "(?P<x>a(?P>x))", "(a|(?-1))*b"])
def test_a_recursive_pattern_is_an_error(tree, pattern):
    assert "calls itself" in tree.do("grep", pattern=pattern)["error"]


@pytest.mark.slow
def test_grep_returns_partial_results_at_the_time_limit(desk):
    desk.put("output/a.txt", "a\n" + "a" * 60 + "b\n")
    result = desk.do("grep", pattern="(a|aa)+$")  # without the limit it would not end
    assert result["status"] == "timeout"
    assert "2 seconds" in result["error"]
    assert [match["line_number"] for match in result["matches"]] == [1]


def test_glob_stops_at_the_time_limit(tree, monkeypatch):
    monkeypatch.setattr(budget, "SEARCH_SECONDS", 0.0)
    result = tree.do("glob", pattern="**")
    assert (result["status"], result["truncated"]) == ("timeout", True)


@pytest.mark.parametrize("path", ["..", ".reyn", "/", "workspace:..", "out"])
def test_grep_outside_the_readable_zones_is_denied(tree, tmp_path, path):
    (tree.roots.project / "out").symlink_to(tmp_path / "beside")
    assert tree.do("grep", pattern=".", path=path)["status"] == "denied"


def test_grep_never_enters_the_state_directory_or_follows_symlinks(tree, tmp_path):
    project = tree.roots.project
    (project / "out").symlink_to(tmp_path / "beside")
    (project / "output/secret.md").symlink_to(tmp_path / "beside/secret.md")
    os.link(tree.roots.state / "journal.db", project / "output/copy.db")
    for glob in ("**/*", ".*/*", "out/*"):
        assert tree.do("grep", pattern=CANARY, glob=glob, output_mode="count")["count"] == 0
    assert tree.do("grep", pattern=CANARY, glob=".reyn/**/*")["status"] == "denied"


def test_a_run_without_a_workspace_folder_finds_nothing(tree):
    tree.roots.workspace.rmdir()
    assert tree.do("grep", pattern="x", path="workspace:")["count"] == 0
    assert tree.do("glob", pattern="workspace:**")["count"] == 0


def test_grep_of_a_missing_path_is_an_error(tree):
    result = tree.do("grep", pattern="x", path="output/subs")
    assert (result["status"], result["suggestions"]) == ("error", ["output/sub/"])


def test_truncated_content_can_be_listed_and_searched(desk):
    desk = Desk(desk.roots, full_content={"call-1": "one\ntwo\n", "call-2": "three\n"})
    assert desk.do("glob", pattern="workspace:.full/*")["matches"] == [
        "workspace:.full/call-1",
        "workspace:.full/call-2",
    ]
    assert desk.do("grep", pattern="t", path="workspace:.full")["count"] == 2
    [match] = desk.do("grep", pattern="t", path="workspace:.full/call-1")["matches"]
    assert match == {"path": "workspace:.full/call-1", "line_number": 2, "content": "two"}
    assert desk.do("grep", pattern="t", path="workspace:.full/call-3")["status"] == "error"


@pytest.fixture
def guarded(desk):
    """Files that contain a secret and may not be read, for three reasons, and one that may."""
    rules = {"file.read": [{"deny": "output/private/"}, {"ask": "output/asked/"}]}
    desk = Desk(desk.roots, policy=Policy(parse_rules(rules, ("file.read",))))
    for path in (".env", "output/.hidden/a.md", "output/.b.md", "output/private/c.md", "output/asked/d.md"):
        desk.put(path, CANARY)
    desk.put("output/e.md", CANARY)
    return desk


@pytest.mark.parametrize("pattern", ["**", ".*", "*/.*", "output/.*/*", "output/*", "output/*/*"])
def test_glob_lists_only_files_that_may_be_read(guarded, pattern):
    assert set(guarded.do("glob", pattern=pattern)["matches"]) <= {"README.md", "output/e.md"}


@pytest.mark.parametrize("glob", ["**/*", ".*", ".env", "*/.*", "output/.*/*", "output/*/*"])
def test_grep_searches_only_files_that_may_be_read(guarded, glob):
    result = guarded.do("grep", pattern=CANARY, path=".", glob=glob, output_mode="files_with_matches")
    assert result["files"] == (["output/e.md"] if glob == "**/*" else [])
    assert "skipped" not in result


@pytest.mark.parametrize("pattern", [".env", "output/.b.md", "output/private", "output/private/*", "output/.hidden/*"])
def test_a_search_for_what_may_not_be_read_is_denied(guarded, pattern):
    assert guarded.do("glob", pattern=pattern)["status"] == "denied"
    if "/" in pattern:
        assert guarded.do("grep", pattern=CANARY, glob=pattern)["status"] == "denied"


@pytest.mark.parametrize("path", [".env", "output/.hidden", "output/private", "output/private/c.md"])
def test_grep_below_what_may_not_be_read_is_denied(guarded, path):
    assert guarded.do("grep", pattern=CANARY, path=path)["status"] == "denied"


def test_an_approved_search_covers_what_its_rule_asks_about(guarded):
    guarded.put("output/asked/.f.md", CANARY)
    call = guarded.call("grep", pattern=CANARY, path="output/asked", glob="**/*", output_mode="files_with_matches")
    plan = guarded.plan(call)
    assert plan.approval == "permissions.file.read: ask output/asked/"
    assert guarded.perform(call, plan)["status"] == "denied"
    assert guarded.perform(call, replace(plan, approved=plan.approval))["files"] == ["output/asked/d.md"]
