"""The form `regenerate_index`."""

import pytest

from reyn.permissions import Policy, parse_rules
from tests.ops.support import Desk, without_envelope


@pytest.fixture
def notes(desk):
    desk.put("output/notes/b.md", "---\ntitle: Second\ntags: [x, y]\n---\nBody\n")
    desk.put("output/notes/a.md", "---\r\ntitle: 'First\r\n\r\n  of all'\r\ncount: 3\r\n---\r\n")
    desk.put("output/notes/plain.md", "no front matter\n")
    desk.put("output/notes/broken.md", "---\n: [\n---\n")
    desk.put("output/notes/list.md", "---\n- a\n---\n")
    desk.put("output/notes/binary.md", b"---\n\xff")
    desk.put("output/notes/index.md", "---\ntitle: Old\n---\n")
    desk.put("output/notes/other.txt", "---\ntitle: Text\n---\n")
    desk.put("output/notes/below/c.md", "---\ntitle: Below\n---\n")
    return desk


def make(desk, template, **more):
    args = {"path": "output/notes", "output_path": "output/notes/index.md", "entry_template": template} | more
    return desk.do("regenerate_index", **args)


def page(desk, path="output/notes/index.md"):
    return (desk.roots.project / path).read_text()


def test_each_file_with_front_matter_gets_a_line(notes):
    result = make(notes, "- [{title}]({slug}.md) {tags}{count}{none}", header="# Notes\n\n")
    assert without_envelope(result) == {
        "path": "output/notes",
        "output_path": "output/notes/index.md",
        "entries": 2,
        "skipped": 4,
    }
    assert page(notes) == '# Notes\n\n- [First of all](a.md) 3\n- [Second](b.md) ["x","y"]\n'


def test_a_header_ends_its_line_and_an_empty_list_has_no_lines(notes):
    make(notes, "{title}", header="# Notes")
    assert page(notes) == "# Notes\nFirst of all\nSecond\n"
    (notes.roots.project / "output/none").mkdir()
    make(notes, "{title}", path="output/none", header="# None")
    assert page(notes) == "# None\n"
    make(notes, "{title}", path="output/none")
    assert page(notes) == ""


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{{title}} {title}", "{title} Second"),
        ("{title.__class__} {0} {title!r} {title:>9999999999}", "{title.__class__}  {title!r} {title:>9999999999}"),
        ("{ title } {", "{ title } {"),
    ],
)
def test_a_template_can_only_access_front_matter_keys(notes, template, line):
    make(notes, template)
    assert page(notes).splitlines()[1] == line


def test_an_unchanged_index_is_not_written(notes):
    make(notes, "{title}")
    call = notes.call(
        "regenerate_index", path="output/notes", output_path="output/notes/index.md", entry_template="{title}"
    )
    assert notes.plan(call).changes == ()


def test_the_folder_must_exist_and_be_readable(notes):
    assert "no folder" in make(notes, "x", path="output/nowhere")["error"]
    assert make(notes, "x", path="../beside")["status"] == "denied"
    assert make(notes, "x", output_path="index.md")["status"] == "denied"
    assert make(notes, "x", path="output/notes/a.md")["status"] == "error"
    assert make(notes, "x", path="workspace:.full")["status"] == "error"


def test_an_index_above_the_size_limit_is_an_error(notes):
    result = make(notes, "x" * 2_000, header="y" * 9_000)
    assert (result["status"], "10000 is the most" in result["error"]) == ("error", True)


def with_rules(desk, *rules):
    return Desk(desk.roots, policy=Policy(parse_rules({"file.read": list(rules)}, ("file.read",))))


def test_a_file_that_may_not_be_read_is_left_out(notes):
    notes.put("output/notes/.hidden.md", "---\ntitle: Hidden\n---\n")
    result = make(with_rules(notes, {"deny": "output/notes/a.md"}, {"ask": "output/notes/l*"}), "{title}")
    assert (result["entries"], result["skipped"], page(notes)) == (1, 3, "Second\n")


def test_an_index_of_what_a_rule_asks_about_needs_approval(notes):
    desk = with_rules(notes, {"ask": "output/notes/"}, {"deny": "output/notes/a.md"})
    desk.put("output/index.md", "Second\n")
    for output_path, entries in (("output/other.md", 2), ("output/index.md", 1)):
        args = {"path": "output/notes", "output_path": output_path, "entry_template": "{title}"}
        plan = desk.plan(desk.call("regenerate_index", **args))
        assert plan.approval == "permissions.file.read: ask output/notes/"
        assert (plan.result["entries"], len(plan.changes)) == (entries, entries - 1)
