"""Environments are made by a command with exactly the listed packages; a failure leaves what there was."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from reyn.config.environments import EnvironmentSettings
from reyn.errors import EnvironmentChanged, EnvironmentNotMade, EnvironmentUnavailable, RequirementsInvalid
from reyn.folders import take_lock
from reyn.packages.making import lock_requirements, make_environment
from tests.packages.support import declared, make_venv, offline, seal, site_of, write_source, write_wheel


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    folder = tmp_path / "wheels"
    folder.mkdir()
    offline(monkeypatch, folder)
    return folder


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A project with a made environment, to copy."""
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("made")
        offline(patch, root / "wheels")
        (root / "office.txt").write_text(write_wheel(root / "wheels", "alpha"))
        make_environment(declared(root), "office")
        return root


@pytest.fixture
def copied(made, root):
    """A project with an environment that the test may damage."""
    shutil.copytree(made, root, symlinks=True, dirs_exist_ok=True)
    seal(root)
    return root


def test_an_environment_has_what_the_requirements_list_and_can_import_it(wheels, root):
    beta = write_wheel(wheels, "beta", "2.1")
    (root / "office.txt").write_text(f"{write_wheel(wheels, 'alpha', needs=('beta>=2',))}\n{beta}\n")
    steps: list[str] = []
    status = make_environment(declared(root), "office", report=steps.append)
    assert status.state == "ready"
    assert [(one.name, one.version) for one in status.packages] == [("alpha", "1.0"), ("beta", "2.1")]
    assert any("alpha" in step for step in steps)
    found = declared(root).find("office")
    ran = subprocess.run(
        [found.installation.program, "-c", "import alpha, beta; print(beta.VERSION)"], check=True, capture_output=True
    )
    assert ran.stdout == b"2.1\n"


def test_the_content_depends_on_the_packages_alone(wheels, tmp_path):
    line = write_wheel(wheels, "alpha")
    contents = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "office.txt").write_text(line)
        contents.add(make_environment(declared(tmp_path / name), "office").content)
    assert len(contents) == 1
    (tmp_path / "one" / "office.txt").write_text(write_wheel(wheels, "alpha", "1.1"))
    assert make_environment(declared(tmp_path / "one"), "office").content not in contents


def test_a_failure_leaves_the_environment_and_no_other_folder(copied, monkeypatch):
    offline(monkeypatch, copied / "nothing")
    before = declared(copied).find("office")
    (copied / "office.txt").write_text(f"gamma==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(EnvironmentNotMade, match=r"no wheel of `gamma==1.0`"):
        make_environment(declared(copied), "office")
    assert declared(copied).find("office") == before
    status = declared(copied).status("office")
    assert (status.state, status.reason) == ("outdated", "`office.txt` has changed since it was made")
    assert len(declared(copied).leftovers("office")) == 1


def test_a_package_of_source_is_not_built_unless_it_is_allowed(wheels, root):
    (root / "office.txt").write_text(write_source(wheels, "delta"))
    with pytest.raises(EnvironmentNotMade, match=r"no wheel of `delta==1.0`") as caught:
        make_environment(declared(root), "office")
    assert "source" in caught.value.hint
    assert not (wheels / "executed").exists()
    with pytest.raises(EnvironmentNotMade):  # building needs more than this folder of wheels has
        make_environment(declared(root), "office", allow_source=True)


def _wrong_hash(wheels):
    write_wheel(wheels, "alpha")
    return f"alpha==1.0 --hash=sha256:{'0' * 64}", "does not have the hash"


def _incomplete(wheels):
    write_wheel(wheels, "beta")
    return write_wheel(wheels, "alpha", needs=("beta",)), "no version and hash of `beta`"


def _contradiction(wheels):
    first = write_wheel(wheels, "alpha", needs=("beta<2",))
    return f"{first}\n{write_wheel(wheels, 'beta', '2.0')}", "contradict each other|no version and hash"


def _unknown(wheels):
    return f"epsilon==1.0 --hash=sha256:{'0' * 64}", "no wheel of `epsilon==1.0`"


@pytest.mark.parametrize("case", [_wrong_hash, _incomplete, _contradiction, _unknown])
def test_requirements_that_cannot_be_installed_are_explained(wheels, root, case):
    text, reason = case(wheels)
    (root / "office.txt").write_text(text)
    with pytest.raises(EnvironmentNotMade, match=reason) as caught:
        make_environment(declared(root), "office")
    assert caught.value.hint
    assert declared(root).status("office").state == "missing"
    assert not declared(root).leftovers("office")


def test_a_lock_names_every_package_with_its_hash(wheels, root):
    beta, alpha = write_wheel(wheels, "beta"), write_wheel(wheels, "alpha", needs=("beta",))
    (root / "office.in").write_text("alpha\n")
    assert lock_requirements(declared(root), "office") == [alpha, beta]
    assert make_environment(declared(root), "office").state == "ready"


def test_a_requirements_file_is_read_in_the_project_alone(root, tmp_path):
    (tmp_path / "outside.txt").write_text("alpha==1.0")
    (root / "office.txt").symlink_to(tmp_path / "outside.txt")
    for settings in (
        EnvironmentSettings(requirements="office.txt"),
        EnvironmentSettings(requirements="../outside.txt"),
    ):
        with pytest.raises(RequirementsInvalid):
            make_environment(declared(root, office=settings), "office")


def test_an_environment_that_exists_is_not_changed(root, tmp_path):
    packages = declared(root, office=EnvironmentSettings(path=str(make_venv(tmp_path / "venv"))))
    with pytest.raises(EnvironmentNotMade, match="a folder that exists"):
        make_environment(packages, "office")


def test_two_processes_do_not_make_an_environment_at_once(copied):
    handle = os.open(copied / ".reyn/environments/office.lock", os.O_RDWR)
    try:
        assert take_lock(handle)
        with pytest.raises(EnvironmentNotMade, match="another process"):
            make_environment(declared(copied), "office")
    finally:
        os.close(handle)


# -- damage -----------------------------------------------------------------------------------------------------


def _edited(folder):
    (site_of(folder) / "alpha.py").write_text("VERSION = 'planted'\n")


def _added(folder):
    (site_of(folder) / "planted.pth").write_text("import os\n")


def _removed(folder):
    (site_of(folder) / "alpha.py").unlink()


def _linked(folder):
    _removed(folder)
    (site_of(folder) / "alpha.py").symlink_to("/etc/hostname")


DAMAGES = {"edited": _edited, "added": _added, "removed": _removed, "linked": _linked}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_environment_that_was_changed_is_not_used(copied, damage):
    [name] = declared(copied).leftovers("office")
    DAMAGES[damage](copied / ".reyn/environments" / name)
    with pytest.raises(EnvironmentChanged, match="changed after it was made"):
        declared(copied).find("office")
    assert declared(copied).status("office").state == "changed"


def test_touched_files_and_bytecode_are_no_change(copied):
    [name] = declared(copied).leftovers("office")
    site = site_of(copied / ".reyn/environments" / name)
    before = declared(copied).record("office")
    os.utime(site / "alpha.py", (1, 1))
    (site / "__pycache__").mkdir(exist_ok=True)
    (site / "__pycache__" / "alpha.cpython-399.pyc").write_bytes(b"bytecode")
    assert declared(copied).find("office").content == before.content
    assert declared(copied).record("office").stamps != before.stamps  # so that it is not hashed each time


def _deleted(root, folder):
    shutil.rmtree(folder)


def _without_record(root, folder):
    (root / ".reyn/environments/office.json").unlink()


def _without_program(root, folder):
    for file in (folder / "bin").glob("python*"):
        file.unlink()


def _broken_link(root, folder):
    _without_program(root, folder)
    (folder / "bin/python3").symlink_to("/nowhere/python3")


def _for_another_python(root, folder):
    config = folder / "pyvenv.cfg"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    config.write_text(config.read_text().replace(f"version = {version}", "version = 3.9"))


def _home_gone(root, folder):
    (folder / "pyvenv.cfg").write_text("home = /nowhere/bin\nversion = 3.11.1\n")


def _packages_gone(root, folder):
    shutil.rmtree(site_of(folder))


def _damaged_record(root, folder):
    (root / ".reyn/environments/office.json").write_text('{"folder": "../../..", "content": "", "stamps": ""}')


UNUSABLE = {
    _deleted: "does not exist",
    _without_record: "half made",
    _without_program: "no `bin/python3`",
    _broken_link: "leads to no program",
    _for_another_python: r"made for Python 3\.9",
    _home_gone: "is gone",
    _packages_gone: "for another Python",
    _damaged_record: "half made",
}


@pytest.mark.parametrize("damage", UNUSABLE)
def test_an_environment_that_cannot_be_used_says_why(copied, damage):
    [name] = declared(copied).leftovers("office")
    damage(copied, copied / ".reyn/environments" / name)
    with pytest.raises(EnvironmentUnavailable, match=UNUSABLE[damage]) as caught:
        declared(copied).find("office")
    assert caught.value.message.startswith("the environment `office` cannot be used: ")
    assert declared(copied).status("office").state in ("unusable", "incomplete")
    assert declared(copied).status("office").reason == caught.value.message


def test_an_interrupted_one_is_made_again_and_leaves_nothing(copied, monkeypatch):
    offline(monkeypatch, copied / "wheels")
    _without_record(copied, copied)
    (copied / ".reyn/environments/office-00000000").mkdir()
    assert make_environment(declared(copied), "office").state == "ready"
    assert len(declared(copied).leftovers("office")) == 1


@pytest.mark.parametrize(("name", "reason"), [("offfice", "declares no `offfice`"), ("planted", "not trusted")])
def test_an_undeclared_environment_is_not_used(root, name, reason):
    packages = declared(root)
    packages._ignored = ("planted",)
    with pytest.raises(EnvironmentUnavailable, match=reason) as caught:
        packages.find(name)
    assert caught.value.hint
