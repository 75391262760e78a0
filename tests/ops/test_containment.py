"""Property: whatever ops a model requests in whatever file tree, they write and reveal only what the gate allows."""

import hashlib
import os
import re
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from reyn.ops import Plan
from tests.ops.support import Desk
from tests.properties import examples
from tests.workspace.support import CANARY, make_roots

NAMES = (
    "a", "b", "reyn", ".reyn", "link", "c.md", "README.md", "journal.db", "workspace", "run-1", "run-2", "REYN",
    "output", "OUTPUT", ".git", ".env", "run.py",
)  # fmt: skip

PRIVATE = (".env", "output/.git/config.md", "a/.git/config.md")
"""Hidden files of the project that hold the canary."""
NOT_MINE = re.compile(r"^\.|\.py$")

TARGETS = st.sampled_from(
    [
        "..",
        "../..",
        "../../beside",
        "../beside",
        "../.reyn",
        ".reyn",
        "../.reyn/journal.db",
        "workspace",
        ".",
        "a",
        "b",
        "link",
        "../reyn",
        "../output",
        ".git",
        "../output/.git",
        "../.env",
        "../run.py",
        "output/a",
        "/",
        "nowhere",
        "{project}",
        "{state}",
        "{beside}",
        "{beside}/secret.md",
        "{state}/journal.db",
        "{state}/workspace",
    ]
)

WORDS = st.sampled_from(
    [
        *NAMES,
        "..",
        ".",
        "",
        "*",
        "**",
        "~",
        "secret.md",
        "theirs.md",
        "beside",
        ".full",
        "config.md",
        ".*",
        "a\0b",
        "é",
        "[a-z]*",
        "?",
    ]
)
STARTS = st.sampled_from(
    [
        "",
        "output/",
        "output/a/",
        "output/link/",
        "workspace:",
        "workspace:/",
        "/",
        "{project}/",
        "{state}/",
        "{beside}/",
    ]
)
# Mostly existing paths, sometimes arbitrary text.
PATHS = st.integers(0, 9).flatmap(
    lambda die: (
        st.text(min_size=1, max_size=20)
        if die == 0
        else st.builds(lambda start, names: start + "/".join(names) or ".", STARTS, st.lists(WORDS, max_size=4))
    )
)

# Searches that reach hidden names, which arbitrary paths rarely do.
FOLDERS = st.one_of(PATHS, st.sampled_from([".", "output", "a", "workspace:"]))
GLOBS = st.one_of(PATHS, st.sampled_from(["**/*", ".*", ".env", "*/.*/*", "**/.git/*", ".git/*", "output/.*/*"]))

ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["", "reyn", "output", "output/a", "a", "workspace:"]),
        st.sampled_from(["a", "b", "link", "c.md"]),
        st.one_of(st.sampled_from(["file", "folder", "hard link to journal"]), TARGETS.map(lambda text: f"-> {text}")),
    ),
    max_size=6,
)

OPS = st.one_of(
    st.fixed_dictionaries({"op": st.just("read"), "path": PATHS}),
    st.fixed_dictionaries({"op": st.just("write"), "path": PATHS, "content": st.just("written")}),
    st.fixed_dictionaries(
        {"op": st.just("edit"), "path": PATHS, "old_string": st.just("e"), "new_string": st.just("E")},
        optional={"replace_all": st.just(True)},
    ),
    st.fixed_dictionaries({"op": st.just("delete"), "path": PATHS}),
    st.fixed_dictionaries({"op": st.just("glob"), "pattern": GLOBS}),
    st.fixed_dictionaries({"op": st.just("grep"), "pattern": st.just("."), "path": FOLDERS}, optional={"glob": GLOBS}),
    st.fixed_dictionaries(
        {
            "op": st.just("regenerate_index"),
            "path": PATHS,
            "output_path": PATHS,
            "entry_template": st.just("{title} {slug}"),
        }
    ),
)


def plant(desk: Desk, entries, fill) -> None:
    """Create a random tree; skip entries that cannot be created."""
    for folder, name, what in entries:
        base = desk.roots.workspace if folder == "workspace:" else desk.roots.project / folder
        path = base / name
        try:
            # Only real folders: creating the tree must not follow symlinks itself.
            assert not any(above.is_symlink() for above in (base, *base.parents))
            base.mkdir(parents=True, exist_ok=True)
            if what == "file":
                path.write_text("plain text\n")
            elif what == "folder":
                path.mkdir()
            elif what.startswith("-> "):
                path.symlink_to(fill(what.removeprefix("-> ")))
            else:
                os.link(desk.roots.state / "journal.db", path)
        except (OSError, AssertionError):
            continue


def guarded(folder: Path, project: Path) -> dict[str, str]:
    """Return everything in the writable folder whose name is hidden or that is a program."""
    found = fingerprint(project / "output", without=())
    parts = {path: Path(path).relative_to(folder).parts for path in found}
    return {path: what for path, what in found.items() if any(NOT_MINE.search(name) for name in parts[path][2:])}


def fingerprint(root: Path, *, without: tuple[Path, ...]) -> dict[str, str]:
    """Return the content of every file, folder and symlink below a folder, except below some."""
    found = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if Path(folder, name) not in without]
        for name in (*folders, *files):
            path = Path(folder, name)
            if path.is_symlink():
                found[str(path)] = f"-> {path.readlink()}"
            elif path.is_file():
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
            else:
                found[str(path)] = "folder"
    return found


@examples(400)
@given(entries=ENTRIES, ops=st.lists(OPS, min_size=1, max_size=4), swaps=ENTRIES)
def test_ops_write_only_in_writable_zones_and_reveal_no_secret(entries, ops, swaps):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        desk = Desk(make_roots(folder))
        roots = desk.roots
        beside = folder / "beside"

        def fill(text: str) -> str:
            placeholders = {"{project}": roots.project, "{state}": roots.state, "{beside}": beside}
            for word, path in placeholders.items():
                text = text.replace(word, str(path))
            return text

        for path in PRIVATE:
            desk.put(path, CANARY)
        desk.put("output/run.py", "print()\n")
        plant(desk, entries, fill)
        mine = (roots.project / "output", roots.workspace)
        for op in ops:
            call = desk.call(**{key: fill(value) if isinstance(value, str) else value for key, value in op.items()})
            plan = desk.plan(call)
            # Another program changes the tree between plan and perform.
            plant(desk, swaps, fill)
            before = fingerprint(folder, without=mine), guarded(folder, roots.project)
            result = desk.perform(call, plan) if isinstance(plan, Plan) else {}
            assert (fingerprint(folder, without=mine), guarded(folder, roots.project)) == before
            assert CANARY not in str(result)
            if call.op == "glob":
                assert not {*result.get("matches", ())} & {*PRIVATE}
            assert CANARY.encode() not in b"".join(desk.contents.values())


def test_the_property_detects_a_violation(tmp_path):
    """Writing through the gate's back and reading the canary are both detected."""
    desk = Desk(make_roots(tmp_path))
    mine = (desk.roots.project / "output", desk.roots.workspace)
    before = fingerprint(tmp_path, without=mine)
    (desk.roots.project / "output/x").write_text("x")
    assert fingerprint(tmp_path, without=mine) == before
    (desk.roots.state / "journal.db").write_text("x")
    assert fingerprint(tmp_path, without=mine) != before
    assert desk.do("read", path="README.md")["content"]
    before = guarded(tmp_path, desk.roots.project)
    for path in ("output/run.py", "output/.env", "output/.git/config.md"):
        desk.put(path, "x")
        assert guarded(tmp_path, desk.roots.project) != before
        before = guarded(tmp_path, desk.roots.project)
