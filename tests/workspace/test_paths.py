"""A text leads to one place, whatever it is spelled like."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reyn.workspace import Place, PlaceInvalid, locate


@pytest.mark.parametrize(
    ("text", "zone", "parts", "shown"),
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
        ("workspace:.kept/call-1", "kept", ("call-1",), "workspace:.kept/call-1"),
        ("workspace:a/../.kept/call-1", "kept", ("call-1",), "workspace:.kept/call-1"),
        ("workspace:.kept", "kept", (), "workspace:.kept/."),
    ],
)
def test_a_text_within_reach_has_one_spelling(roots, text, zone, parts, shown):
    assert locate(text, roots) == Place(zone, parts, shown)


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
def test_the_state_directory_is_told_by_any_spelling(roots, text):
    assert locate(text, roots).zone == "state"
    assert locate(text, roots).shown == text


@pytest.mark.parametrize("text", ["..", "../beside/secret.md", "/", "/etc/passwd", "workspace:../../../README.md"])
def test_what_leads_out_is_outside(roots, text):
    place = locate(text, roots)
    assert (place.zone, place.shown) == ("outside", text)


def test_absolute_paths_are_judged_by_where_they_lead(roots):
    assert locate(str(roots.project / "README.md"), roots) == locate("README.md", roots)
    assert locate(str(roots.state / "journal.db"), roots).zone == "state"
    assert locate(str(roots.workspace / "mine.md"), roots).zone == "state"
    assert locate(f"{roots.project}-2/README.md", roots).zone == "outside"


def test_links_are_followed_before_a_place_is_judged(roots, tmp_path):
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
    assert locate("to_reyn/new/a.md", roots).shown == "reyn/new/a.md"


def test_a_link_in_the_workspace_does_not_lead_out_of_it(roots):
    (roots.workspace / "up").symlink_to(roots.project)
    (roots.workspace / "state").symlink_to(roots.state)
    assert locate("workspace:up/README.md", roots).zone == "outside"
    assert locate("workspace:state/journal.db", roots).zone == "state"


def test_the_roots_may_themselves_be_links(roots, tmp_path):
    (tmp_path / "door").symlink_to(roots.project)
    through = type(roots)(tmp_path / "door", tmp_path / "door" / ".reyn", tmp_path / "door/.reyn/workspace/run-1")
    for text in ("README.md", ".reyn/journal.db", "workspace:a.md", "../beside"):
        assert locate(text, through) == locate(text, roots)


def test_a_circle_of_links_is_a_place_where_nothing_is(roots):
    (roots.project / "a").symlink_to("b")
    (roots.project / "b").symlink_to("a")
    assert locate("a/x", roots).zone == "project"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("a\0b", "NUL"),
        ("a" * 256, "longer than 255"),
        ("a/" * 2_500, "longer than 4000"),
        ("a\ud800", "Unicode"),
    ],
)
def test_what_cannot_be_a_path_is_refused_with_the_reason(roots, text, why):
    with pytest.raises(PlaceInvalid, match=why):
        locate(text, roots)


def test_a_link_to_a_name_that_is_not_utf8_is_refused(roots):
    (roots.project / "odd").symlink_to(os.fsdecode(b"\xff"))
    with pytest.raises(PlaceInvalid, match="UTF-8"):
        locate("odd", roots)


_TEXTS = st.lists(
    st.sampled_from(["reyn", "a", "b.md", "..", ".", "", ".kept", "link", "up", ".reyn", "workspace:", "é"]), max_size=6
).map("/".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(scheme=st.sampled_from(["", "workspace:"]), text=_TEXTS | st.text(max_size=12))
def test_what_is_shown_leads_back_to_the_place(roots, scheme, text):
    for name, target in (("link", "reyn"), ("up", "..")):
        if not (roots.project / name).is_symlink():
            (roots.project / name).symlink_to(target)
    try:
        place = locate(scheme + text, roots)
    except PlaceInvalid:
        return
    if place.zone in ("project", "workspace", "kept"):
        assert locate(place.shown, roots) == place
    assert not {"", ".", ".."} & set(place.parts)
