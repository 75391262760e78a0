"""Virtual environments. The attacker writes a folder that looks like one: in the project, or around it.

What belongs to an environment is shown to a program beside what the gate allows. The oracle is a program in the sandbox
that reads a file of the user.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from reyn.errors import EnvironmentUnavailable
from reyn.packages import installation_of_program
from reyn.packages.declared import EnvironmentRecord
from reyn.packages.installation import find_installation
from reyn.sandbox.backends import BACKENDS
from reyn.sandbox.process import Backend
from tests.attacks.test_sandbox import usable
from tests.ops.test_programs import call, make, one
from tests.packages.support import declared

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHON = os.path.realpath(sys.executable)
CANARY = "canary of the user"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of the user: with keys, and with folders and files that look like parts of a Python."""
    home = tmp_path / "home"
    for name in ("key", "bin/tool", "include/key", "ssl/cert.pem", "x.so", f"python{VERSION}/key", "pyvenv.cfg"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(CANARY)
    (home / "tool").write_text(f"#!/bin/sh\n# {CANARY}\n")
    (home / "tool").chmod(0o755)
    return home


def write_venv(folder: Path, home: Path, shape: str) -> Path:
    """Write a folder that looks like a virtual environment and leads to a folder of the user."""
    (folder / "bin").mkdir(parents=True)
    (folder / f"lib/python{VERSION}/site-packages").mkdir(parents=True)
    program = {"folder": home, "file": home / "tool", "key": home / "key"}.get(shape, Path(PYTHON))
    (folder / "bin/python3").symlink_to(program)
    named = home / "bin" if shape == "home" else Path(PYTHON).parent
    (folder / "pyvenv.cfg").write_text(f"home = {named}\nversion = {VERSION}\n")
    for part in ("ssl", "include", "lib64"):
        if shape == part:
            (folder / part).symlink_to(home / part if part != "lib64" else home)
    (folder / "bin/show").symlink_to("/bin/cat")
    return folder


SHAPES = ("folder", "file", "key", "home", "ssl", "include", "lib64")


@pytest.mark.parametrize("shape", SHAPES)
def test_an_environment_shows_no_file_outside_of_it_but_those_of_a_python(shape: str, tmp_path: Path, home: Path):
    venv = write_venv(tmp_path / "project/venv", home, shape)
    try:
        shown = find_installation(venv).shown
    except EnvironmentUnavailable:
        assert shape in ("folder", "file", "key")
        return
    for part in shown:
        if not Path(part).is_symlink():  # a sandbox shows a link as it is, and not where it leads
            assert not Path(os.path.realpath(part)).is_relative_to(home)
            assert not home.is_relative_to(os.path.realpath(part))


@pytest.mark.parametrize("shape", ["folder", "home"])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_program_reads_no_file_of_the_user_through_an_environment(
    backend: Backend, shape: str, tmp_path: Path, home: Path
):
    (tmp_path / "project").mkdir()
    project = make(tmp_path / "project", "{exec: ['venv/bin/show']}")
    (project.root / "reyn.yaml").write_text(f"sandbox: {{backend: {usable(backend).name}}}\n")
    write_venv(project.root / "venv", home, shape)
    files = (str(home / name) for name in ("key", "bin/tool", "include/key"))
    result = one(project, call("venv/bin/show", *files), permissions={"exec": [{"allow": ["venv/bin/show"]}]})
    assert result["status"] == "error"
    assert CANARY not in str(result)


def test_a_program_that_is_called_by_name_is_none_of_a_folder_around_the_project(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
):
    """A grant of `cat` started `bin/cat` of the folder above the current one, if that looked like an environment."""
    venv = write_venv(tmp_path / "repository", home, "")
    (venv / "bin/cat").write_text("#!/bin/sh\necho planted\n")
    (venv / "bin/cat").chmod(0o755)
    project = make(venv / "bin")
    for folder in (venv / "bin", venv / "lib"):
        monkeypatch.chdir(folder)
        result = one(project, call("cat", "notes.txt", read_paths=["notes.txt"]))
        assert result["stdout"] == "a note\n"


def test_a_program_in_another_folder_of_an_environment_is_not_replaced_by_one_of_its_own(tmp_path: Path, home: Path):
    venv = write_venv(tmp_path / "venv", home, "")
    (venv / "tools").mkdir()
    assert installation_of_program(str(venv / "tools/show")) is None
    assert installation_of_program(str(venv / "bin/show")) is not None


@pytest.mark.parametrize("name", ["office", "other"])
def test_an_environment_that_came_with_the_project_is_not_one_that_the_user_made(
    name: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
):
    """An archive of a project with a state folder brought packages that had no hash of the requirements."""
    root = tmp_path / "project"
    (root / ".reyn").mkdir(0o700, parents=True)
    with monkeypatch.context() as attacker:
        attacker.setenv("XDG_CONFIG_HOME", str(tmp_path / "attacker"))
        packages = declared(root)
        with packages.folder(create=True):
            write_venv(root / ".reyn/environments/office-00000000", home, "")
        record = EnvironmentRecord("office-00000000", "", "")
        packages.store(name, record)
        if name == "office":  # it is one of the attacker
            with pytest.raises(EnvironmentUnavailable, match="changed after it was made"):
                packages.find("office")
    stored = root / f".reyn/environments/{name}.json"
    stored.rename(root / ".reyn/environments/office.json")
    for seal in (None, "", "0" * 64):
        if seal is not None:
            stored = root / ".reyn/environments/office.json"
            stored.write_text(json.dumps(json.loads(stored.read_text()) | {"seal": seal}))
        with pytest.raises(EnvironmentUnavailable, match="was not made by this user"):
            declared(root).find("office")
    declared(root).store("office", record)  # the user's own
    with pytest.raises(EnvironmentUnavailable, match="changed after it was made"):
        declared(root).find("office")
