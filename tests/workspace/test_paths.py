"""Path resolution: every spelling of a path resolves to one location."""

import os

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from reyn.workspace import Location, PathInvalid, locate
from reyn.workspace.paths import is_recorded_path
from tests.properties import examples


@pytest.mark.parametrize(
    ("text", "zone", "parts", "display_path"),
    [
        ("README.md", "project", ("README.md",), "README.md"),
        ("./reyn//a/./b.md", "project", ("reyn", "a", "b.md"), "reyn/a/b.md"),
        ("reyn/../README.md", "project", ("README.md",), "README.md"),
        ("reyn/", "project", ("reyn",), "reyn"),
        (".", "project", (), "."),
        ("~/notes", "project", ("~", "notes"), "~/notes"),
        (" ", "project", (" ",), " "),
        ("./workspace:x", "project", ("workspace:x",), "./workspace:x"),
        ("workspace:a/b.md", "workspace", ("a", "b.md"), "workspace:a/b.md"),
        ("workspace:/a.md", "workspace", ("a.md",), "workspace:a.md"),
        ("workspace:", "workspace", (), "workspace:."),
        ("workspace:a/../b", "workspace", ("b",), "workspace:b"),
        ("workspace:.full/call-1", "recorded", ("call-1",), "workspace:.full/call-1"),
        ("workspace:a/../.full/call-1", "recorded", ("call-1",), "workspace:.full/call-1"),
        ("workspace:.full", "recorded", (), "workspace:.full/."),
    ],
)
def test_equivalent_paths_resolve_to_one_location(roots, text, zone, parts, display_path):
    assert locate(text, roots) == Location(zone, parts, display_path)


@pytest.mark.parametrize(
    "text",
    [
        ".reyn",
        ".reyn/journal.db",
        "reyn/../.reyn/journal.db",
        ".REYN/Journal.db",
        "./.reyn/workspace/run-1/mine.md",
        "workspace:../..",
        "workspace:../run-2/theirs.md",
        "workspace:../../journal.db",
    ],
)
def test_every_spelling_of_the_state_directory_is_recognised(roots, text):
    assert locate(text, roots).zone == "state"
    assert locate(text, roots).display_path == text


@pytest.mark.parametrize("text", ["..", "../beside/secret.md", "/", "/etc/passwd", "workspace:../../../README.md"])
def test_paths_that_leave_the_project_are_outside(roots, text):
    location = locate(text, roots)
    assert (location.zone, location.display_path) == ("outside", text)


def test_absolute_paths_are_resolved_to_their_zone(roots):
    assert locate(str(roots.project / "README.md"), roots) == locate("README.md", roots)
    assert locate(str(roots.state / "journal.db"), roots).zone == "state"
    assert locate(str(roots.workspace / "mine.md"), roots).zone == "state"
    assert locate(f"{roots.project}-2/README.md", roots).zone == "outside"


def test_symlinks_are_resolved_before_the_zone_is_decided(roots, tmp_path):
    links = {
        "to_file": tmp_path / "beside" / "secret.md",
        "to_folder": tmp_path / "beside",
        "to_link": roots.project / "to_folder",
        "to_nothing": tmp_path / "nothing",
        "to_state": roots.state,
        "to_journal": roots.state / "journal.db",
        "to_reyn": roots.project / "reyn",
    }
    for name, target in links.items():
        (roots.project / name).symlink_to(target)
    zones = {name: locate(name, roots).zone for name in links}
    assert zones == dict.fromkeys(("to_file", "to_folder", "to_link", "to_nothing"), "outside") | {
        "to_state": "state",
        "to_journal": "state",
        "to_reyn": "project",
    }
    assert locate("to_link/secret.md", roots).zone == "outside"
    assert locate("to_state/journal.db", roots).zone == "state"
    assert locate("to_reyn/new/a.md", roots).display_path == "reyn/new/a.md"


def test_a_path_is_resolved_again_after_a_symlink_replaced_its_file(roots, tmp_path):
    (roots.project / "a.md").write_text("here")
    assert locate("a.md", roots).zone == "project"
    (roots.project / "a.md").unlink()
    (roots.project / "a.md").symlink_to(tmp_path / "beside" / "secret.md")
    assert locate("a.md", roots).zone == "outside"


def test_a_symlink_in_the_workspace_cannot_leave_it(roots):
    (roots.workspace / "up").symlink_to(roots.project)
    (roots.workspace / "state").symlink_to(roots.state)
    assert locate("workspace:up/README.md", roots).zone == "outside"
    assert locate("workspace:state/journal.db", roots).zone == "state"


def test_the_roots_may_be_symlinks(roots, tmp_path):
    (tmp_path / "door").symlink_to(roots.project)
    through = type(roots)(tmp_path / "door", tmp_path / "door" / ".reyn", tmp_path / "door/.reyn/workspace/run-1")
    for text in ("README.md", ".reyn/journal.db", "workspace:a.md", "../beside"):
        assert locate(text, through) == locate(text, roots)


def test_a_symlink_loop_is_an_empty_location(roots):
    (roots.project / "a").symlink_to("b")
    (roots.project / "b").symlink_to("a")
    assert locate("a/x", roots).zone == "project"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("a\0b", "NUL"),
        ("a" * 256, "longer than 255"),
        ("é" * 120 + "/" + ("a" * 200 + "/") * 19, "longer than 4000"),
        ("a/" * 1_900, "more than 100 folders"),
        ("a\ud800", "Unicode"),
    ],
)
def test_an_invalid_path_is_refused_with_the_reason(roots, text, reason):
    with pytest.raises(PathInvalid, match=reason):
        locate(text, roots)


@pytest.mark.parametrize(
    ("accepted", "refused"),
    [
        ("a/" * 99 + "b", "a/" * 100 + "b"),
        ("a" + "/" * 100 + "b", "a" + "/" * 101 + "b"),
        ("a" * 255, "a" * 256),
        ("b/" + "a" * 255, "b/" + "a" * 256),
        ("b/" + "é" * 127, "b/" + "é" * 128),
        ("/".join(["a" * 249] * 15 + ["a" * 250]), "/".join(["a" * 249] * 15 + ["a" * 251])),
    ],
)
def test_the_limits_of_a_path_are_exact(roots, accepted, refused):
    assert locate(accepted, roots).zone == "project"
    with pytest.raises(PathInvalid):
        locate(refused, roots)


def test_a_link_that_leads_too_deep_is_refused(roots):
    (roots.project / "link").symlink_to("a/" * 100)
    assert locate("link", roots).parts == ("a",) * 100
    with pytest.raises(PathInvalid, match="more than 100 folders deep"):
        locate("link/b", roots)


def test_the_root_of_the_file_system_has_no_parts(roots):
    assert locate("/", roots) == Location("outside", (), "/")


@pytest.mark.parametrize("text", ["geheimé/a", "GEHEIMÉ/a", "geheime\u0301/a", "GEHEIME\u0301", "Geheimé"])
def test_a_hidden_folder_is_recognised_in_every_spelling_of_its_name(roots, text):
    hiding = type(roots)(roots.project, roots.state, roots.workspace, (roots.project / "Geheimé",))
    assert locate(text, hiding).zone == "state"
    assert locate(text, roots).zone == "project"


def test_an_absolute_path_through_a_symlink_is_resolved(roots):
    (roots.project / "link").symlink_to("reyn")
    assert locate(str(roots.project / "link/a.md"), roots).display_path == "reyn/a.md"


@pytest.mark.parametrize("zone", ["state", "outside"])
def test_what_lies_out_of_reach_has_no_neighbours(zone):
    with pytest.raises(AssertionError):
        Location(zone, ("a", "b"), "x").above()


@pytest.mark.parametrize(
    ("text", "is_recorded"),
    [
        ("a/b.md", True),
        ("workspace:a/b.md", True),
        ("./workspace:x", True),
        ("./workspace:x/./y", False),
        ("./a", False),
        ("a/../b", False),
        ("a//b", False),
        ("workspace:", False),
        ("workspace:./a", False),
        ("/a", False),
        ("a/workspace:", True),
        ("./a/./workspace:", False),
        ("", False),
        ("a\0b", False),
    ],
)
def test_a_recorded_path_is_the_display_path_of_a_file(text, is_recorded):
    assert is_recorded_path(text) is is_recorded


def test_a_symlink_to_a_non_utf8_name_is_refused(roots):
    (roots.project / "odd").symlink_to(os.fsdecode(b"\xff"))
    with pytest.raises(PathInvalid, match="UTF-8"):
        locate("odd", roots)


_TEXTS = st.lists(
    st.sampled_from(["reyn", "a", "b.md", "..", ".", "", ".full", "link", "up", ".reyn", "workspace:", "é"]), max_size=6
).map("/".join)


@examples(200, allow=[HealthCheck.function_scoped_fixture])
@given(scheme=st.sampled_from(["", "workspace:"]), text=_TEXTS | st.text(max_size=12))
def test_display_path_resolves_to_the_same_location(roots, scheme, text):
    for name, target in (("link", "reyn"), ("up", "..")):
        if not (roots.project / name).is_symlink():
            (roots.project / name).symlink_to(target)
    try:
        location = locate(scheme + text, roots)
    except PathInvalid:
        return
    if location.zone in ("project", "workspace", "recorded"):
        again = locate(location.display_path, roots)
        assert (again.zone, again.parts) == (location.zone, location.parts)
    assert not {"", ".", ".."} & set(location.parts)
