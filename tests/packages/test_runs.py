"""Code of a skill runs in the environment that the skill names: read-only, in every backend, and recorded."""

from __future__ import annotations

import json
import os
import sys

import pytest

from reyn import SyncRuntime
from reyn.engines import Serving
from reyn.errors import EnvironmentUnavailable
from reyn.journal import MemoryJournal, decode, kinds
from reyn.runtime.submitting import REFUSED_SECONDS, drive
from reyn.sandbox.backends import BACKENDS
from reyn.testing import ScriptedModel
from tests.packages.support import make_venv, site_of
from tests.support import act, finish, write_skill

USABLE = [one.name for one in BACKENDS if not one.problem]
pytestmark = pytest.mark.skipif(not USABLE and not os.environ.get("CI"), reason="no process sandbox")
MODULE = """
def look(artifact):
    import alpha, sys, time, random
    try:
        open(alpha.__file__, "a")
        wrote = "written"
    except OSError as error:
        wrote = type(error).__name__
    return {"text": f"{alpha.VERSION} {wrote} {time.time() > 0} {random.random()}"}
"""
KEYS = "permissions: {python: [{module: ./look.py, function: look}], exec: [python3]}\nenvironment: office\n"
SCRIPT = """
import alpha
print(alpha.VERSION)
try:
    open(alpha.__file__, "a")
except OSError as error:
    print("read-only")
"""
RUN_SCRIPT = {"kind": "sandboxed_exec", "argv": ["python3", "-c", SCRIPT]}


@pytest.fixture
def root(tmp_path):
    """A project with an environment that exists, and a skill that uses it in a step and for a program."""
    project = tmp_path / "project"
    project.mkdir()
    venv = make_venv(tmp_path / "venvs" / "office")
    (site_of(venv) / "alpha.py").write_text("VERSION = '1.0'\n")
    (project / "reyn.yaml").write_text(f"environments: {{office: {{path: '{venv}'}}}}\n")
    step = "preprocessor: [{python: {module: ./look.py, function: look, into: data}}]\n"
    folder = write_skill(
        project, "s", {"work": ["end"]}, skill_keys=KEYS, phase_keys={"work": step}, ops={"work": "sandboxed_exec"}
    )
    (folder / "look.py").write_text(MODULE)
    return project


def alpha(root, text):
    (site_of(root.parent / "venvs" / "office") / "alpha.py").write_text(text)


def opened(root, *answers, backend="auto", **options):
    rules = {"exec": [{"allow": ["python3"]}]}
    options = {"permissions": rules, "sandbox": {"backend": backend}, "trust": True} | options
    return SyncRuntime.open(root, model=ScriptedModel([*answers]), **options)


def content_of(journal, name):
    return json.loads(journal.blob(name))


def bodies(rt, run, kind):
    return [body for body in map(decode, rt.runs.events(run)) if isinstance(body, kind)]


@pytest.mark.parametrize("backend", USABLE)
def test_steps_and_programs_import_the_packages_and_cannot_change_them(root, backend):
    journal = MemoryJournal()
    with opened(root, act(RUN_SCRIPT), finish(), backend=backend, journal=journal) as rt:
        result = rt.run("s", {"text": "in"}, run_id="r")
        assert result.status == "finished", result.reason
        step, program = bodies(rt, "r", kinds.OpCompleted)
        content = rt.project.environment("office").content
        assert step.environment == program.environment == kinds.EnvironmentRef("office", content)
        in_step, in_program = (content_of(journal, one.result) for one in (step, program))
    assert in_step["value"]["text"].startswith("1.0 ")
    assert "written" not in in_step["value"]["text"]
    assert in_program["stdout"] == "1.0\nread-only\n"
    assert (site_of(root.parent / "venvs" / "office") / "alpha.py").read_text() == "VERSION = '1.0'\n"


@pytest.mark.parametrize("backend", USABLE)
def test_a_step_sees_a_fixed_clock_and_seed_in_packages_too(root, backend):
    alpha(root, "import random, uuid\nVERSION = f'{random.random()} {uuid.uuid4()}'\n")
    found = []
    for name in ("one", "two"):
        with opened(root, finish(), backend=backend) as rt:
            rt.run("s", {"text": "in"}, run_id=name)
            found.append(bodies(rt, name, kinds.OpCompleted)[0].result)
    assert found[0] == found[1]


def test_a_change_is_reported_at_resume_and_at_replay(root):
    with opened(root) as rt:
        assert rt.run("s", {"text": "in"}, run_id="r").status == "failed"  # no answer is left
        before = rt.project.environment("office").content
        assert rt.runs.replay("r").notes == ()
    alpha(root, "VERSION = '2.0'\n")
    with opened(root, finish()) as rt:
        [note] = rt.runs.replay("r").notes
        assert note.startswith(
            f"RYN334: the environment `office` has changed since the run used it: {before[:12]} is now "
        )
        result = rt.resume("r", retry=True)
        assert result.status == "finished", result.reason
        assert note in result.warnings
        [resumed] = bodies(rt, "r", kinds.RunResumed)
        assert resumed.environment == kinds.EnvironmentRef("office", rt.project.environment("office").content)
        assert rt.runs.replay("r").events > 0


def test_an_unchanged_environment_is_not_mentioned(root):
    with opened(root) as rt:
        rt.run("s", {"text": "in"}, run_id="r")
    with opened(root, finish()) as rt:
        assert rt.resume("r", retry=True).warnings == ()
        assert bodies(rt, "r", kinds.RunResumed)[0].environment is None


def _undeclared(root):
    (root / "reyn.yaml").write_text("")


def _gone(root):
    (root.parent / "venvs").rename(root.parent / "elsewhere")


def _not_made(root):
    (root / "reyn.yaml").write_text("environments: {office: {requirements: office.txt}}\n")


@pytest.mark.parametrize(
    ("damage", "reason"), [(_undeclared, "declares no"), (_gone, "not exist"), (_not_made, "not made")]
)
def test_a_run_does_not_start_or_continue_without_its_environment(root, damage, reason):
    with opened(root) as rt:
        rt.run("s", {"text": "in"}, run_id="old")
    damage(root)
    with opened(root, finish()) as rt:
        with pytest.raises(EnvironmentUnavailable, match=reason):
            rt.run("s", {"text": "in"}, run_id="new")
        assert not rt.runs.is_recorded("new")
        seq = rt.runs.find("old").seq
        with pytest.raises(EnvironmentUnavailable, match=reason):
            rt.resume("old", retry=True)
        assert rt.runs.find("old").seq == seq
        assert any(reason in note for note in rt.runs.replay("old").notes)


def test_an_untrusted_project_names_no_environment(root):
    with opened(root, finish(), trust=False) as rt, pytest.raises(EnvironmentUnavailable, match="not trusted"):
        rt.run("s", {"text": "in"})


def test_a_worker_without_the_environment_leaves_the_run_to_others(root):
    settings = (root / "reyn.yaml").read_text()
    _undeclared(root)
    with opened(root, finish()) as rt:
        rt.submit("s", {"text": "in"}, run_id="r")
        serving = Serving(queues=("default",))
        assert rt.wait(drive(rt.async_form._executor, "r", serving)) == REFUSED_SECONDS
        assert serving.refusals["r"].startswith("RYN333: `environments` in reyn.yaml declares no `office`")
        assert rt.runs.find("r").seq == 2  # nothing of it was executed
    (root / "reyn.yaml").write_text(settings)
    with opened(root, finish()) as rt:
        assert rt.wait(drive(rt.async_form._executor, "r", Serving(queues=("default",)))) is None
        assert rt.runs.find("r").status == "finished"


# -- interpreters of virtual environments that an operator grants by their path -----------------------------------


def _plain(folder):
    return folder


def _linked(folder):
    link = folder.parent / "link"
    link.symlink_to(folder)
    return link


def _without_lib64(folder):
    (folder / "lib64").unlink(missing_ok=True)
    return folder


def _copied_program(folder):
    program = folder / "bin" / "python3"
    target = os.path.realpath(program)
    program.unlink()
    program.symlink_to(target)
    return folder


@pytest.mark.parametrize("backend", USABLE)
@pytest.mark.parametrize("shape", [_plain, _linked, _without_lib64, _copied_program])
def test_a_granted_interpreter_of_a_virtual_environment_starts(root, tmp_path, backend, shape):
    venv = shape(make_venv(tmp_path / "granted"))
    (site_of(venv) / "beta.py").write_text("")
    program = f"{venv}/bin/python3"
    keys = f"permissions: {{exec: ['{program}']}}\n"
    write_skill(root, "g", {"work": ["end"]}, skill_keys=keys, ops={"work": "sandboxed_exec"})
    run = {"kind": "sandboxed_exec", "argv": [program, "-c", "import beta, ssl, json; print('started')"]}
    rules = {"exec": [{"allow": [program]}]}
    with opened(root, act(run), finish(), backend=backend, permissions=rules) as rt:
        result = rt.run("g", {"text": "in"}, run_id="r")
        assert result.status == "finished", result.reason
        [done] = bodies(rt, "r", kinds.OpCompleted)
        assert done.status == "ok", rt.runs.find("r")
        assert done.environment is None


OTHERS = [f"/usr/bin/python3.{minor}" for minor in (11, 12, 13, 14) if os.access(f"/usr/bin/python3.{minor}", os.X_OK)]


@pytest.mark.parametrize("python", dict.fromkeys([sys.executable, *OTHERS]))
@pytest.mark.parametrize("backend", USABLE)
def test_environments_of_every_python_of_the_machine_can_be_used(root, tmp_path, backend, python):
    try:
        venv = make_venv(tmp_path / "other", python)
    except OSError:
        pytest.skip("this Python makes no virtual environments")
    (site_of(venv) / "alpha.py").write_text("VERSION = '3.0'\n")
    (root / "reyn.yaml").write_text(f"environments: {{office: {{path: '{venv}'}}}}\n")
    with opened(root, finish(), backend=backend) as rt:
        result = rt.run("s", {"text": "in"})
        assert result.status == "finished", result.reason
