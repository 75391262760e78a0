"""Adapters from outside: an installed package, a class of the project, and what a project may load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.config import ModelSettings
from reyn.errors import AdapterInvalid, ModelUnknown, ModelUntrusted, SecretRefused
from reyn.journal import MemoryJournal
from reyn.models import Model
from reyn.models.roster import Roster
from reyn.permissions.trust import load_project
from reyn.secrets import MemoryStore, Secrets
from reyn.testing import ModelConformance
from tests.support import finish, write_skill

EXAMPLE = Path(__file__).parents[2] / "examples" / "echo-model"
ORACLE = f"""
from reyn import ModelAnswer
from reyn.models import ModelSetup

ANSWER = {json.dumps(json.dumps(finish()))}

class Oracle:
    name = "oracle"
    takes_time = False
    def __init__(self, setup: ModelSetup) -> None:
        self.setup = setup
    async def complete(self, request):
        return ModelAnswer(ANSWER)

class Plain(Oracle):
    def __init__(self) -> None:
        pass

class Broken:
    def __init__(self) -> None:
        raise RuntimeError("out of order")

class NoModel:
    name = "none"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", folder, EXAMPLE], check=True, timeout=120)
    return folder


def run_reyn(installed: Path, *words: str, cwd: Path) -> tuple[int, str]:
    path = os.pathsep.join([str(installed), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "reyn", *words],
        cwd=cwd, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_package_brings_an_adapter_through_an_entry_point(installed: Path, tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]})
    (tmp_path / "reyn.yaml").write_text("model: echo:loud\n")
    code, text = run_reyn(installed, "run", "s", '{"text": "in"}', cwd=tmp_path)
    assert (code, "needs trust: use the adapter of echo:loud" in text) == (2, True), text
    assert run_reyn(installed, "trust", "--yes", cwd=tmp_path)[0] == 0
    code, text = run_reyn(installed, "models", cwd=tmp_path)
    assert (code, "ok       echo:loud (model)" in text, "package: reyn-echo-model 0.1.0" in text) == (0, True, True)
    code, text = run_reyn(installed, "run", "s", '{"text": "in"}', "--run-id", "r", cwd=tmp_path)
    assert code == 0, text
    assert run_reyn(installed, "replay", "r", cwd=tmp_path)[0] == 0
    code, text = run_reyn(installed, "run", "s", '{"text": "in"}', "--model", "reyn_echo:EchoModel", cwd=tmp_path)
    assert code == 0, text
    code, text = run_reyn(tmp_path, "run", "s", '{"text": "in"}', cwd=tmp_path)
    assert (code, "RYN501" in text) == (2, True), text


class TestEcho(ModelConformance):
    """The example passes the conformance suite."""

    @pytest.fixture(autouse=True)
    def _path(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(EXAMPLE))

    def make_model(self) -> Model:
        return opened("reyn_echo:EchoModel")

    def make_broken_model(self) -> Model:
        from reyn_echo import EchoModel

        return EchoModel(_setup("asleep"))

    def reopen(self, name: str) -> Model:
        return opened(name)


def _setup(model: str) -> object:
    from reyn.models import ModelSetup

    return ModelSetup("echo", model, ModelSettings(f"echo:{model}"), EXAMPLE, lambda: Secrets([]))


def opened(name: str, root: Path = EXAMPLE, **settings: object) -> Model:
    roster = Roster({}, root, MemoryJournal, lambda: Secrets([]))
    roster.ready(name)
    return roster.open(name)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a module of models, whose name no other test imports."""
    name = f"oracles_{os.urandom(4).hex()}"
    (tmp_path / f"{name}.py").write_text(ORACLE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_skill(tmp_path, "s", {"a": ["end"]})
    (tmp_path / "module").write_text(name)
    return tmp_path


def reference(project: Path, name: str = "Oracle") -> str:
    return f"{(project / 'module').read_text()}:{name}"


def test_a_class_can_be_named_on_the_command_line(project: Path):
    with SyncRuntime.open(project, model=reference(project)) as rt:
        result = rt.run("s", {"text": "in"}, run_id="k")
        assert result.status == "finished"
        rt.runs.replay("k")


def test_a_class_without_arguments_is_called_without(project: Path):
    assert opened(reference(project, "Plain"), project).name == "oracle"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Broken", "cannot be loaded: RuntimeError: out of order"),
        ("NoModel", "which is no model"),
        ("Missing", "has no `Missing`"),
    ],
)
def test_a_class_that_cannot_be_used_is_reported(project: Path, name: str, message: str):
    with pytest.raises(AdapterInvalid, match=message):
        opened(reference(project, name), project)


def test_a_misspelt_adapter_is_reported(tmp_path: Path):
    with pytest.raises(AdapterInvalid, match="cannot import `no_such_module`"):
        opened("no_such_module:Oracle", tmp_path)
    for name in ("opnai:m", "opnai:gpt-4.1", "nothing", "echo:"):
        with pytest.raises(ModelUnknown):
            opened(name, tmp_path)


def test_an_untrusted_project_loads_no_code(project: Path):
    (project / "reyn.yaml").write_text(
        f"model: {reference(project)}\n"
        f"models:\n  a: {{model: '{reference(project)}'}}\n  b: {reference(project)}\n"
        f"  c: {{model: 'scripted:x', fallback: ['{reference(project)}']}}\n  d: scripted:x\n"
    )
    loaded = load_project(project, trust=False)
    assert (loaded.config.model, list(loaded.config.models)) == ("", ["d"])
    assert {want.key for want in loaded.trust.ignored} == {"model", "models.a", "models.b", "models.c"}
    assert load_project(project, trust=True).config.model == reference(project)
    assert load_project(project, {"model": reference(project)}, trust=False).config.model == reference(project)


@pytest.mark.parametrize("named", ["a", "alias", "{reference}"])
def test_an_untrusted_project_names_the_trust_that_its_model_needs(project: Path, named: str):
    code = reference(project)
    named = named.format(reference=code)
    (project / "reyn.yaml").write_text(f"model: '{named}'\nmodels:\n  a: {{model: '{code}'}}\n  alias: a\n")
    with SyncRuntime.open(project, trust=False) as rt:
        with pytest.raises(ModelUntrusted, match=rf"not trusted.*load {code} \(reyn\.yaml:") as refused:
            rt.run("s", {"text": "in"})
        assert (refused.value.hint or "").startswith("Trust the project")
        assert any("not trusted" in status.why for status in rt.project.models())
    with SyncRuntime.open(project, trust=True) as rt:
        assert rt.run("s", {"text": "in"}).ok


def test_an_untrusted_project_uses_no_credentials_of_the_environment(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text(
        "models:\n  a: litellm:bedrock/m\n  b: {model: litellm:openai/m, base_url: 'http://127.0.0.1:9'}\n"
    )
    loaded = load_project(tmp_path, trust=False)
    assert list(loaded.config.models) == []
    assert "models.b: connect to http://127.0.0.1:9" in loaded.trust.warning
    assert "use credentials of the environment for litellm:bedrock/m" in loaded.trust.warning


def test_a_recorded_run_alone_loads_no_code(project: Path):
    with SyncRuntime.open(project, model=reference(project, "Oracle")) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
    with SyncRuntime.open(project) as rt, pytest.raises(AdapterInvalid, match="a recorded run alone may not load"):
        rt.rerun("k", run_id="k2")


def test_another_process_continues_a_run_with_the_code_that_the_configuration_names(project: Path):
    (project / "reyn.yaml").write_text(f"model: '{reference(project)}'\n")
    with SyncRuntime.open(project, trust=True) as rt:
        rt.submit("s", {"text": "in"}, run_id="k")
    with SyncRuntime.open(project, trust=True) as rt:
        rt.wait(rt.async_form.workers.serve(once=True))
        assert rt.runs.result("k").ok, rt.runs.result("k").reason
        assert rt.rerun("k", run_id="k2").ok
    with SyncRuntime.open(project, trust=False) as rt, pytest.raises(AdapterInvalid):
        rt.rerun("k", run_id="k3")


def test_an_adapter_gets_its_key_for_one_server_only(tmp_path: Path):
    from reyn.models import ModelSetup

    secrets = Secrets([MemoryStore({"ACME": "value-of-acme"})])
    settings = ModelSettings("acme:m", key="secret://ACME")
    setup = ModelSetup("far", "m", settings, tmp_path, lambda: secrets)
    assert setup.key("https://acme.example/v1") == "value-of-acme"
    with pytest.raises(SecretRefused):
        setup.key("https://evil.example/v1")


def test_the_answer_of_the_example_is_json(tmp_path: Path):
    sys.path.insert(0, str(EXAMPLE))
    try:
        from reyn_echo import example_of
    finally:
        sys.path.remove(str(EXAMPLE))
    schema = {"type": "object", "properties": {"n": {"type": "array", "items": {}}}, "required": ["n"]}
    assert json.dumps(example_of(schema, "x")) == '{"n": []}'
