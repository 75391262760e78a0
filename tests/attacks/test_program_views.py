"""A second way around the gate: what a program sees in the folders that it was granted, and what an import copies.

The attacker controls the program and the contents of the folders. The oracle is a program that opens every path inside
the sandbox; outside, the gate is asked about each path on its own.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from reyn.errors import SandboxStartFailed
from reyn.ops.budget import OpFailed
from reyn.ops.program_view import MAX_ENTRIES, program_view
from reyn.permissions import Allowed, Gate
from reyn.permissions.rules import Policy, parse_requests, parse_rules
from reyn.sandbox import (
    Access,
    PartialFolder,
    ProgramLimits,
    PythonFailed,
    PythonStep,
    bubblewrap,
    process,
    run_program,
    run_safe,
)
from reyn.sandbox.backends import BACKENDS
from reyn.sandbox.process import Backend, python_program
from reyn.workspace import Location, Roots, locate
from tests.attacks.test_sandbox import usable
from tests.ops.test_programs import GRANTED, call, make, one, shell
from tests.ops.test_skill_drafts import AGENT_SKILL, Approving, results
from tests.properties import examples
from tests.runtime.test_trials import add_case, problems
from tests.support import finish, write_skill

LIMITS = ProgramLimits(seconds=60)
PYTHON_STEP = """permissions:
  python:
    - {module: ./m.py, function: f}
postprocessor:
  output_schema: note
  steps:
    - python: {module: ./m.py, function: f, into: data.text}
"""
READ_ALL = """
import json, os, sys
def content(path):
    try: return open(path).read()
    except OSError: return None
def names(path):
    try: return sorted(os.listdir(path))
    except OSError: return None
seen, listed = {}, {}
for path in json.load(sys.stdin):
    seen[path], listed[path] = content(path), names(path)
print(json.dumps([seen, listed]))
"""


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    return usable(request.param)


class Tree:
    """A project with a folder beside it, and what a program with a view of some paths finds there."""

    def __init__(self, root: Path, rules: list[dict[str, Any]], requests: list[str]) -> None:
        self.outside = root / "outside"
        project = root / "outside/project"
        for folder in (project / ".reyn/workspace/k", root / "config"):
            folder.mkdir(parents=True)
        for folder in (project / ".reyn", root / "config"):
            (folder / "key").write_text("key")
        self.roots = Roots(project, project / ".reyn", project / ".reyn/workspace/k", (root / "config",))
        policy = Policy(parse_rules({"file.read": rules} if rules else {}, ("file.read",)))
        self.gate = Gate(self.roots, policy, (parse_requests({"file.read": requests}),), "s")
        self.env: Any = SimpleNamespace(roots=self.roots, gate=self.gate)

    def fill(self, folder: Path, files: list[str]) -> None:
        for name in files:
            path = folder / name
            if not any(above.is_file() for above in path.parents) and not path.is_dir():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(name)

    def paths(self, top: Path) -> list[str]:
        return [str(path) for path in (top, *sorted(top.rglob("*"))) if not path.is_symlink()]

    def workspace(self) -> Location:
        return locate("workspace:", self.roots)

    def may_read(self, path: str, top: Path) -> bool:
        """Whether the gate allows a path and every folder from the granted one on."""
        here = Path(path)
        above = [here, *here.parents]
        below = above[: above.index(top)]
        return all(isinstance(self.gate.show(locate(str(one_), self.roots)), Allowed) for one_ in below)

    def seen(
        self, backend: Backend, granted: list[Location], paths: list[str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        view = program_view(granted, [], self.env)
        access = Access(**view._asdict())
        assert backend.refusal(access) == ""
        argv = (python_program(), "-S", "-c", READ_ALL)
        outcome = run_program(backend, argv, access, LIMITS, json.dumps(paths).encode())
        assert outcome.returncode == 0, outcome.stderr
        contents, listed = json.loads(outcome.stdout)
        return contents, listed


NAMES = st.sampled_from(("a.txt", "b.key", ".env", "notes", "secret", "vendor", ".git", "x.py"))
FILES = st.lists(st.lists(NAMES, min_size=1, max_size=3).map("/".join), min_size=1, max_size=8, unique=True)
PATTERNS = st.sampled_from(
    ("secret/", "**/secret/", "*.key", "**/*.key", "vendor/a.txt", "**/a.txt", "notes/", ".env", "**/.env", "**/*.py")
)
EFFECTS = st.sampled_from(("deny", "ask"))


@examples(8, allow=list(HealthCheck))
@given(FILES, st.lists(st.tuples(EFFECTS, PATTERNS), max_size=4), st.booleans())
@example(
    ["a.txt", "secret/a.txt", "secret/b.key", "vendor/a.txt", ".env"], [("deny", "secret/"), ("ask", "*.key")], True
)
@example(["notes/secret/a.txt", "notes/a.txt", "b.key"], [("ask", "**/*.key"), ("deny", "**/secret/")], False)
def test_a_program_sees_what_the_gate_allows(
    backend: Backend, tmp_path: Path, files: list[str], rules: list[tuple[str, str]], is_outside: bool
):
    root = tmp_path / "case"
    shutil.rmtree(root, ignore_errors=True)
    prefix = f"{root}/outside/" if is_outside else ""
    written = [{effect: f"{prefix}{pattern}"} for effect, pattern in rules]
    allowed = [{"allow": prefix}] if is_outside else []
    tree = Tree(root, [*allowed, *written], [prefix or "./"])
    top = tree.outside if is_outside else tree.roots.project
    tree.fill(top, files)
    paths = tree.paths(top)
    contents, listed = tree.seen(backend, [locate(str(top) if is_outside else ".", tree.roots)], paths)
    expected = {path: Path(path).read_text() for path in paths if Path(path).is_file() and tree.may_read(path, top)}
    assert {path: content for path, content in contents.items() if content is not None} == expected
    for path, names in listed.items():
        assert names is None or path == str(top) or tree.may_read(path, top), path
        visible = [entry.name for entry in Path(path).iterdir() if tree.may_read(str(entry), top)] if names else []
        assert names is None or sorted(visible) == names


APPROVED_FILES = [f"{folder}/{name}" for folder in ("docs", "docs/in", "vault", "open") for name in ("a.txt", "b.txt")]


@pytest.mark.parametrize("most_shown", [0, 100], ids=["covered", "rebuilt"])
@pytest.mark.parametrize(
    ("named", "seen"),
    [
        ("./", "open/"),
        ("./ docs/a.txt", "open/ docs/a.txt"),
        ("docs/a.txt ./", "open/ docs/a.txt"),
        ("docs/in/ ./ vault/b.txt", "open/ docs/in/ vault/b.txt"),
        ("docs/ open/a.txt", "docs/ open/a.txt"),
        ("docs/a.txt docs/in/b.txt", "docs/a.txt docs/in/b.txt"),
        ("./ docs/ vault/", "./"),
    ],
)
def test_an_approval_shows_what_the_call_names(
    backend: Backend, tmp_path: Path, named: str, seen: str, most_shown: int, monkeypatch: pytest.MonkeyPatch
):
    """One rule asks about two folders: the approval of a file in one showed the other one below `.`, too."""
    monkeypatch.setattr(bubblewrap, "_MAX_SHOWN", most_shown)
    tree = Tree(tmp_path, [{"ask": ["docs/", "vault/"]}], ["./"])
    project = tree.roots.project
    tree.fill(project, APPROVED_FILES)
    paths = [str(project / name) for name in APPROVED_FILES]
    contents, _ = tree.seen(backend, [locate(path, tree.roots) for path in named.split()], paths)
    expected = [
        name for name in APPROVED_FILES if any(f"./{name}".startswith((one_, f"./{one_}")) for one_ in seen.split())
    ]
    assert [name for name, path in zip(APPROVED_FILES, paths, strict=True) if contents[path]] == expected


def test_a_program_writes_where_it_also_reads_a_part(tmp_path: Path):
    """A folder that is read in part and written was mounted read-only at last."""
    backend = usable(bubblewrap.Bubblewrap())
    tree = Tree(tmp_path, [{"deny": "workspace:b/"}, {"ask": "workspace:c/"}], ["./"])
    workspace = tree.roots.workspace
    tree.fill(workspace, ["a.txt", "b/a.txt", "c/a.txt", "c/b.txt"])
    read = [tree.workspace(), locate("workspace:c/a.txt", tree.roots)]
    access = Access(**program_view(read, [tree.workspace()], tree.env)._asdict(), cwd=str(workspace))
    script = "import glob, pathlib; pathlib.Path('new').touch(); print(sorted(glob.glob('**', recursive=True)))"
    outcome = run_program(backend, (python_program(), "-S", "-c", script), access, LIMITS)
    assert (outcome.stdout, outcome.stderr) == (b"['a.txt', 'b', 'c', 'c/a.txt', 'new']\n", b"")


def test_what_is_no_plain_file_is_not_shown(backend: Backend, tmp_path: Path):
    tree = Tree(tmp_path, [], ["./"])
    project = tree.roots.project
    os.mkfifo(project / "pipe")
    os.link(project / ".reyn/key", project / "linked.txt")
    os.link(tmp_path / "config/key", project / "configured.txt")
    (project / "out").symlink_to(tmp_path / "config")
    (project / "a.txt").write_text("a")
    names = ("linked.txt", "configured.txt", "out/key", ".reyn/key", "a.txt")
    paths = [str(project / name) for name in names]
    contents, _ = tree.seen(backend, [locate(".", tree.roots)], paths)
    assert [name for name, path in zip(names, paths, strict=True) if contents[path]] == ["a.txt"]


@pytest.mark.parametrize("kind", ["state", "configuration", "pipe", "socket", "device"])
@pytest.mark.parametrize("is_written", [False, True], ids=["read", "written"])
def test_a_path_itself_is_checked_like_those_below_it(tmp_path: Path, kind: str, is_written: bool):
    tree = Tree(tmp_path, [], ["./"])
    folder = tree.roots.workspace if is_written else tree.roots.project
    path = folder / "given"
    match kind:
        case "state":
            os.link(tree.roots.state / "key", path)
        case "configuration":
            os.link(tmp_path / "config/key", path)
        case "pipe":
            os.mkfifo(path)
        case "socket":
            os.mknod(path, stat.S_IFSOCK | 0o600)
        case _ if os.geteuid() == 0:
            try:
                os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
            except OSError as error:
                pytest.skip(f"no device can be made: {error.strerror}")
        case _:
            pytest.skip("only root makes devices")
    location = locate("workspace:given" if is_written else "given", tree.roots)
    with pytest.raises(OpFailed, match="cannot be shown to a program"):
        program_view(*([], [location]) if is_written else ([location], []), tree.env)


class TestSystemFolders:
    """The project, its state, the user's files and what rules restrict are below a folder that every program sees."""

    @pytest.fixture
    def system(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        # Not in the temporary folder, which every sandbox replaces.
        with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="reyn-test-") as name:
            folder = Path(name).resolve()
            folder.chmod(0o755)
            monkeypatch.setattr(process, "_LOADER", (*process._LOADER, str(folder)))
            monkeypatch.setenv("HOME", str(folder / "home"))
            for path in ("lib/a.txt", "lib/deep/b.txt", "home/c.txt", "denied/d.txt", "lib/deep/e.key", "asked.txt"):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text("x")
            yield folder

    def seen(self, backend: Backend, system: Path, access: Access) -> list[str]:
        argv = (python_program(), "-S", "-c", READ_ALL)
        paths = json.dumps([str(path) for path in system.rglob("*")]).encode()
        outcome = run_program(backend, argv, access, LIMITS, paths)
        assert outcome.returncode == 0, outcome.stderr
        contents, _ = json.loads(outcome.stdout)
        return sorted(path.removeprefix(f"{system}/") for path, content in contents.items() if content is not None)

    def tree(self, system: Path) -> Tree:
        rules = [{"deny": [f"{system}/DENIED/", f"{system}/**/*.key"]}, {"ask": f"{system}/asked.txt"}]
        tree = Tree(system / "src", rules, ["./"])
        (tree.roots.project / "own.txt").write_text("own")
        return tree

    def test_they_are_not_shown(self, backend: Backend, system: Path):
        tree = self.tree(system)
        assert self.seen(backend, system, Access(private=tree.gate.private)) == ["lib/a.txt", "lib/deep/b.txt"]

    def test_what_was_granted_is_shown(self, backend: Backend, system: Path):
        tree = self.tree(system)
        view = program_view([locate(".", tree.roots)], [tree.workspace()], tree.env)
        access = Access(**view._asdict(), private=tree.gate.private, cwd=str(tree.roots.project))
        expected = ["lib/a.txt", "lib/deep/b.txt", "src/outside/project/own.txt"]
        assert self.seen(backend, system, access) == expected

    def test_programs_of_a_run_do_not_see_the_project(self, backend: Backend, system: Path):
        root = system / "app"
        root.mkdir()
        project = make(root)
        (root / "reyn.yaml").write_text(f"sandbox: {{backend: {backend.name}}}\n")
        result = one(project, call("cat", str(root / "notes.txt"), str(root / "reyn.yaml"), str(root / ".env")))
        assert (result["stdout"], result["backend"]) == ("", backend.name)

    def test_a_safe_step_does_not_see_the_project(self, backend: Backend, system: Path):
        tree = self.tree(system)
        path = str(tree.roots.project / "own.txt")
        code = f"def f(artifact):\n    return open({path!r}).read()"
        call_ = partial(run_safe, PythonStep({"./m.py": code}, "./m.py", "f", {}, 0), LIMITS, backend.name)
        with pytest.raises(PythonFailed, match=r"own\.txt"):
            call_(sandbox="process", private=tree.gate.private)
        assert call_(sandbox="process").value == "own"  # without the private paths

    @pytest.mark.parametrize("layout", ["below a system folder", "an environment", "a system folder"])
    def test_a_safe_step_of_a_trial_does_not_see_the_real_project(
        self, backend: Backend, system: Path, layout: str, monkeypatch: pytest.MonkeyPatch
    ):
        root = system if layout == "a system folder" else system / "deep/app"
        places = [".env", ".reyn/journal.db", "denied/d.txt"][layout == "a system folder" :]
        skill = write_skill(root, "s", {"a": ["end"]}, skill_keys=PYTHON_STEP)
        code = f"def f(artifact):\n    return ', '.join(filter(content, {[str(root / place) for place in places]!r}))\n"
        code += "def content(path):\n    try: return open(path).read()\n    except OSError: return ''"
        (skill / "m.py").write_text(code)
        add_case(skill, "c", [finish()], {"artifact": {"type": "note", "data": {"text": ""}}})
        for place in places:
            (root / place).parent.mkdir(parents=True, exist_ok=True)
            (root / place).write_text("secret")
        if layout == "an environment":
            monkeypatch.setattr(sys, "prefix", str(root))
        process._python_parts.cache_clear()
        try:
            rules: dict[str, Any] = {"permissions": {"file.read": [{"deny": "denied/"}]}}
            assert problems(root, "s", sandbox={"backend": backend.name}, python={"sandbox": "process"}, **rules) == ""
        finally:
            process._python_parts.cache_clear()


@pytest.mark.parametrize("place", ["work/project", "work", "home/.local"])
@pytest.mark.parametrize("kind", ["prefix", "base_prefix"])
def test_an_environment_in_a_folder_with_other_things_shows_only_itself(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, place: str, kind: str
):
    """The folder is that of the project, one above several projects, or the user's `~/.local`."""
    library = f"lib/python{sys.version_info.major}.{sys.version_info.minor}"
    parts = ["bin/tool", "lib/libpython3.so.1", f"{library}/m.py", f"{library}/site-packages/n.py", "pyvenv.cfg"]
    others = ["share/login.keyring", "bank/.env", "pip.conf", "lib/own.txt", "lib/node/x.so", ".env", "etc/t", "x.so"]
    # Not in the temporary folder, which every sandbox replaces.
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="reyn-test-") as name:
        top = Path(name).resolve()
        folder = top / place
        for path in (*parts, *others):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(path)
        (top / "work/project").mkdir(parents=True, exist_ok=True)
        top.chmod(0o755)
        monkeypatch.setenv("HOME", str(top / "home"))
        monkeypatch.setattr(sys, "prefix", sys.base_prefix)  # the interpreter of the test stays visible
        monkeypatch.setattr(sys, kind, str(folder))
        process._python_parts.cache_clear()
        try:
            state = top / "work/project/.reyn"
            roots = Roots(state.parent, state, state / "workspace/k")
            private = Gate(roots, Policy(()), (parse_requests({}),), "s").private
            outcome = run_program(
                usable(backend),
                (python_program(), "-S", "-c", READ_ALL),
                Access(private=private),
                LIMITS,
                json.dumps([str(path) for path in folder.rglob("*")]).encode(),
            )
        finally:
            process._python_parts.cache_clear()
    assert outcome.returncode == 0, outcome.stderr
    contents = json.loads(outcome.stdout)[0].items()
    assert sorted(path.removeprefix(f"{folder}/") for path, content in contents if content) == sorted(parts)


def test_an_ordinary_project_has_no_private_places(tmp_path: Path):
    assert Tree(tmp_path, [{"deny": ["*.key", "/", "~/x/"]}], ["./"]).gate.private == ()


def test_a_new_file_in_a_folder_that_is_seen_in_part_is_not_shown(backend: Backend, tmp_path: Path):
    tree = Tree(tmp_path, [{"deny": "*.key"}], ["./"])
    project = tree.roots.project
    (project / "a.txt").write_text("a")
    view = program_view([locate(".", tree.roots)], [], tree.env)
    code = "import sys\nprint('started', flush=True)\nsys.stdin.readline()\n"
    code += f"print(open({str(project / 'b.key')!r}).read())"
    process = backend.start((python_program(), "-S", "-c", code), Access(**view._asdict()), LIMITS)
    assert os.read(process.streams[1], 100) == b"started\n"
    (project / "b.key").write_text("new")
    os.write(process.streams[0], b"\n")
    assert process.wait() == 1
    process.discard()


SWAPPED = {
    "a folder that is read": ("project/docs", {"read": ("project/docs",)}),
    "the folder above it": ("project", {"read": ("project/docs",)}),
    "a file that is read": ("project/docs/a.txt", {"read": ("project/docs/a.txt",)}),
    "a folder that is written": ("project/docs", {"write": ("project/docs",)}),
    "the folder above what is written": ("project", {"write": ("project/docs",)}),
    "a folder seen in part": ("project/docs", {"folders": ("project/docs",)}),
    "a file in it": ("project/docs/a.txt", {"folders": ("project/docs",)}),
}


@pytest.mark.parametrize("is_late", [False, True], ids=["before it is opened", "before it is mounted"])
@pytest.mark.parametrize("case", SWAPPED)
def test_a_link_that_appears_after_the_check_leads_nowhere(
    backend: Backend, tmp_path: Path, case: str, is_late: bool, monkeypatch: pytest.MonkeyPatch
):
    """Another program that writes the same folder replaces what the gate has checked."""
    target, paths = SWAPPED[case]
    (tmp_path / "secret/docs").mkdir(parents=True)
    (tmp_path / "project/docs").mkdir(parents=True)
    for name in ("secret/a.txt", "secret/docs/a.txt", "secret/file"):
        (tmp_path / name).write_text("secret")
    (tmp_path / "project/docs/a.txt").write_text("harmless")
    full = {key: tuple(f"{tmp_path}/{name}" for name in names) for key, names in paths.items()}
    if "folders" in full:
        full["folders"] = tuple(PartialFolder(name, ("a.txt",), ("b.txt",)) for name in full["folders"])

    def swap() -> None:
        (tmp_path / target).rename(tmp_path / "moved")
        (tmp_path / target).symlink_to(tmp_path / ("secret/file" if target.endswith(".txt") else "secret"))

    module = import_module(type(backend).__module__)
    if is_late and hasattr(module, "start_piped"):
        start = module.start_piped

        def late(*arguments: Any, **options: Any) -> Any:
            swap()
            return start(*arguments, **options)

        monkeypatch.setattr(module, "start_piped", late)
    else:
        swap()
    wanted = [f"{tmp_path}/project/docs/a.txt", f"{tmp_path}/project/docs/docs/a.txt", f"{tmp_path}/project/docs"]
    argv = (python_program(), "-S", "-c", READ_ALL)
    try:
        outcome = run_program(backend, argv, Access(**full), LIMITS, json.dumps(wanted).encode())
    except SandboxStartFailed:
        return
    assert b"secret" not in outcome.stdout


@pytest.mark.parametrize("binds", [True, False])
def test_a_program_gets_no_descriptor_of_what_it_sees(
    backend: Backend, tmp_path: Path, binds: bool, monkeypatch: pytest.MonkeyPatch
):
    """From one, it could go up and out."""
    if not binds:
        monkeypatch.setattr(bubblewrap, "_binds_descriptors", lambda program: False)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.txt").write_text("a")
    (tmp_path / "docs/link").symlink_to("a.txt")
    code = "import os\nfor number in range(3, 256):\n try: print(number, os.fstat(number))\n except OSError: pass"
    folder = PartialFolder(f"{tmp_path}/docs", ("a.txt", "link"), ("b.txt",))
    access = Access(read=(f"{tmp_path}/docs/a.txt",), folders=(folder,))
    outcome = run_program(backend, (python_program(), "-S", "-c", code), access, LIMITS)
    assert (outcome.returncode, outcome.stdout) == (0, b"")


def test_a_folder_with_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tree = Tree(tmp_path, [], ["./"])
    for number in range(20):
        (tree.roots.project / str(number)).touch()
    monkeypatch.setattr("reyn.ops.program_view.MAX_ENTRIES", 10)
    with pytest.raises(OpFailed, match="name smaller folders"):
        program_view([locate(".", tree.roots)], [], tree.env)
    assert MAX_ENTRIES == 50_000


def test_more_than_a_backend_can_exclude_is_refused(tmp_path: Path):
    tree = Tree(tmp_path, [], ["./"])
    for number in range(1_200):
        (tree.roots.project / f"{number}").mkdir()
        (tree.roots.project / f"{number}/.hidden").touch()
    access = Access(**program_view([locate(".", tree.roots)], [], tree.env)._asdict())
    assert "name smaller folders" in BACKENDS[0].refusal(access)
    assert BACKENDS[1].refusal(access) == ""


def test_a_rule_on_the_workspace_holds_for_programs_that_write(tmp_path: Path):
    script = "echo x >> kept.txt; cat kept.txt; cat secret.txt; echo y > new.txt"
    rules = {"file.write": [{"deny": "workspace:kept.txt"}], "file.read": [{"deny": "workspace:secret.txt"}]}
    for backend in BACKENDS:
        usable(backend)
        root = tmp_path / backend.name
        workspace = root / ".reyn/workspace/k"
        workspace.mkdir(parents=True)
        (workspace / "kept.txt").write_text("kept\n")
        (workspace / "secret.txt").write_text("secret\n")
        (root / "reyn.yaml").write_text(f"sandbox: {{backend: {backend.name}}}\n")
        op = shell(script, write_paths=["workspace:"], allow_subprocess=True)
        result = one(make(root), op, permissions=GRANTED | rules)
        assert (workspace / "kept.txt").read_text() == "kept\n"
        assert "secret" not in result.get("stdout", "")
        if backend.name == "landlock":
            assert (result["status"], result["rule"]) == ("denied", "default: the sandbox landlock")
        else:
            assert (workspace / "new.txt").read_text() == "y\n"


PROJECTS = {"no request": "{exec: [cat]}", "no grant": "{exec: [cat, 'system:*']}", "both": "{exec: [cat, 'system:*']}"}


@pytest.mark.parametrize("group", ["listen", "memory", "scheduling", "watch"])
def test_further_system_calls_need_a_request_and_a_grant(tmp_path: Path, group: str):
    for name in PROJECTS:
        (tmp_path / name).mkdir()
    op = call("cat", "/dev/null", system_calls=[group])
    rules = {"exec": [{"allow": ["cat", f"system:{group}"]}]}
    asked = {name: make(tmp_path / name, requests) for name, requests in PROJECTS.items()}
    assert one(asked["no request"], op, permissions=rules)["status"] == "denied"
    assert one(asked["no grant"], op)["status"] == "denied"
    assert one(asked["both"], op, permissions=rules)["status"] == "ok"


@pytest.mark.parametrize("pattern", ["*", "?*", "s*", "*y", "[s]ystem:*", "*:memory", "true", "allow"])
def test_a_pattern_of_programs_covers_no_system_calls(tmp_path: Path, pattern: str):
    """Neither as a request nor as a grant."""
    op = call("cat", "/dev/null", system_calls=["memory"])
    whole = {"true": "true", "allow": "true"}.get(pattern, f"[cat, '{pattern}', 'system:*']")
    grant = "allow" if pattern in ("true", "allow") else [{"allow": ["cat", pattern]}]
    for name, requests, rules in (
        ("request", whole.replace(", 'system:*'", ""), [{"allow": ["cat", "system:memory"]}]),
        ("grant", "[cat, 'system:*']", grant),
    ):
        (tmp_path / name).mkdir()
        project = make(tmp_path / name, f"{{exec: {requests}}}")
        assert one(project, op, permissions={"exec": rules})["status"] == "denied"


class TestImports:
    def skill(self, root: Path) -> dict[str, Any]:
        (root / "haiku/private").mkdir(parents=True)
        (root / "haiku/SKILL.md").write_text(AGENT_SKILL)
        (root / "haiku/private/names.txt").write_text("secret names")
        return {"kind": "skill_import", "path": "haiku"}

    def copied(self, root: Path) -> list[str]:
        return [
            str(path) for path in (root / ".reyn").rglob("*") if path.is_file() and b"secret names" in path.read_bytes()
        ]

    def test_what_a_rule_denies_is_not_imported(self, tmp_path: Path):
        op = self.skill(tmp_path)
        [result] = results(tmp_path, op, permissions={"file.read": [{"deny": "haiku/private/"}]})
        assert result["status"] == "denied"
        assert self.copied(tmp_path) == []

    @pytest.mark.parametrize(("reply", "status"), [("reject", "denied"), ("approve", "ok")])
    def test_what_a_rule_asks_about_is_imported_after_an_approval(self, tmp_path: Path, reply: str, status: str):
        op, people = self.skill(tmp_path), Approving(reply)
        [result] = results(tmp_path, op, people=people, permissions={"file.read": [{"ask": "haiku/private/"}]})
        assert (result["status"], len(people.asked)) == (status, 1)
        assert bool(self.copied(tmp_path)) == (reply == "approve")
