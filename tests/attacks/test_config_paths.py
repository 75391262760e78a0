"""The configuration of an untrusted project names paths outside of it.

The attacker writes the configuration, the agents and the links of a clone, and runs a server. The oracles are a file
outside of the project with a text that must appear nowhere, and the requests that the server received.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import pwd
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from reyn.cli.app import run_app
from reyn.config import ModelSettings
from reyn.config.user import UserConfig, user_config
from reyn.errors import ModelNotInstalled, ProjectNotFound, PullFailed
from reyn.functions.ambient import project_runtime
from reyn.models import prompt_cache, weights
from reyn.models.local import LocalModel
from reyn.models.prompt_cache import PromptCache
from reyn.models.weights import DEFAULT_WEIGHTS, KNOWN_WEIGHTS, pull, weights_path
from reyn.permissions.trust import load_project, store_decision
from tests.models.fake_server import FakeServer, good
from tests.support import finish, go, two_phases

CANARY = "canary-of-the-users-own-file"
IN = '{"text": "in"}'


class Clone(NamedTuple):
    root: Path
    outside: Path
    server: FakeServer


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clone]:
    root, outside = tmp_path / "deep" / "clone", tmp_path / "home"
    outside.mkdir()
    two_phases(root)
    monkeypatch.chdir(root)
    with FakeServer(good(finish())) as server:
        yield Clone(root, outside, server)


CONTENTS = {
    "credentials": json.dumps({"token": CANARY}),
    "json lines": f"{json.dumps(CANARY)}\n{json.dumps(CANARY)}",
    "answers": json.dumps(go("second", CANARY)),
    "text": f"[default]\nkey = {CANARY}\n",
    "broken": f'{{"token": "{CANARY}',
}
SPELLINGS = ("../../home/f", "{outside}/f", "./x/../../../home/f", "link.jsonl", "folder/f", "real/../../../home/f")


def seen_text(clone: Clone, capsys: pytest.CaptureFixture[str]) -> bytes:
    """Return everything that an attacker could read: the project, what was printed, and what the server received."""
    printed = "".join(capsys.readouterr()).encode()
    links = {clone.root / "link.jsonl", clone.root / "folder"}
    files = [path for path in clone.root.rglob("*") if path.is_file() and not links & {path, *path.parents}]
    return b"".join([printed, *(path.read_bytes() for path in files), *(one.raw for one in clone.server.requests)])


@pytest.mark.sockets
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("place", ["model", "alias", "fallback", "agent"])
def test_a_script_outside_is_not_read(
    spelling: str, place: str, clone: Clone, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (clone.root / "folder").symlink_to(clone.outside)
    (clone.root / "link.jsonl").symlink_to(clone.outside / "f")
    (clone.root / "real").mkdir()
    named = f"scripted:{spelling.format(outside=clone.outside)}"
    far = f"far: {{model: openai:m, base_url: '{clone.server.url}'}}"
    texts = {
        "model": f"model: '{named}'\nmodels:\n  {far}\n",
        "alias": f"model: m\nmodels:\n  m: {{model: '{named}', fallback: [far]}}\n  {far}\n",
        "fallback": f"model: n\nmodels:\n  n: {{model: 'scripted:none', fallback: ['{named}', far]}}\n  {far}\n",
        "agent": f"models:\n  {far}\n",
    }
    (clone.root / "reyn.yaml").write_text(texts[place])
    (clone.root / "reyn/agents").mkdir()
    (clone.root / "reyn/agents/a.md").write_text(f"---\ntype: agent\nname: a\nmodel: '{named}'\n---\nHelp.\n")
    (clone.outside / "f").write_text([*CONTENTS.values()][SPELLINGS.index(spelling) % len(CONTENTS)])
    for words in (("chat", "a"),) if place == "agent" else (("run", "pair", IN), ("models",)):
        monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
        run_app(words)
    assert CANARY.encode() not in seen_text(clone, capsys)
    assert clone.server.requests == []


@pytest.mark.sockets
def test_a_link_that_leads_out_is_not_followed_after_trust_either(
    clone: Clone, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Trust shows the path as it is written, and that path is inside."""
    (clone.outside / "f").write_text(CONTENTS["answers"])
    (clone.root / "link.jsonl").symlink_to(clone.outside / "f")
    far = f"{{model: openai:m, base_url: '{clone.server.url}'}}"
    (clone.root / "reyn.yaml").write_text(
        f"model: m\nmodels:\n  m: {{model: 'scripted:link.jsonl', fallback: [far]}}\n  far: {far}\n"
    )
    store_decision(load_project(clone.root))
    run_app(("run", "pair", IN))
    assert clone.server.requests != []  # the fallback answers
    assert CANARY.encode() not in seen_text(clone, capsys)


@pytest.mark.parametrize("content", CONTENTS)
def test_a_configuration_that_is_a_link_out_is_not_read(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    root, outside = tmp_path / "clone", tmp_path / "home"
    two_phases(root)
    outside.mkdir()
    (outside / "f").write_text(CONTENTS[content])
    monkeypatch.chdir(root)
    for name in ("reyn.yaml", "reyn.local.yaml"):
        (root / name).symlink_to(outside / "f")
    for words in (("run", "pair", IN), ("config",), ("doctor",), ("lint",)):
        run_app(words)
    printed = "".join(capsys.readouterr())
    assert CANARY not in printed
    assert "leads out of" in printed


def test_an_error_about_a_script_of_the_caller_quotes_none_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    two_phases(tmp_path / "p")
    monkeypatch.chdir(tmp_path / "p")
    for content in ("text", "broken"):
        (tmp_path / "f").write_text(CONTENTS[content])
        assert run_app(("run", "pair", IN, "--model", "scripted:../f")) == 2
    printed = "".join(capsys.readouterr())
    assert "not valid JSON" in printed
    assert CANARY not in printed


def test_the_callers_own_path_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    two_phases(tmp_path / "p")
    monkeypatch.chdir(tmp_path / "p")
    (tmp_path / "f").write_text("\n".join(map(json.dumps, (go("second"), finish()))))
    assert run_app(("run", "pair", IN, "--model", "scripted:../f")) == 0
    monkeypatch.setenv("REYN_MODEL", f"scripted:{tmp_path / 'f'}")
    assert run_app(("run", "pair", IN)) == 0


@pytest.mark.parametrize("name", ["planted.gguf", "./planted.gguf", "../planted.gguf", "~/planted.gguf"])
def test_a_model_file_of_an_untrusted_project_is_not_opened(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    root = tmp_path / "clone"
    two_phases(root)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(root)
    opened: list[str] = []
    for place in (root, tmp_path):
        (place / "planted.gguf").write_bytes(b"GGUF" + b"\xff" * 64)
    (root / "reyn.yaml").write_text(f"model: m\nmodels: {{m: {{model: 'local:{name}'}}}}\n")
    (root / "reyn/agents").mkdir()
    (root / "reyn/agents/a.md").write_text(f"---\ntype: agent\nname: a\nmodel: 'local:{name}'\n---\nHelp.\n")

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and watching and str(arguments[0]).endswith("planted.gguf"):
            opened.append(os.fspath(str(arguments[0])))

    watching = True
    sys.addaudithook(watch)
    try:
        for words in (("run", "pair", IN), ("chat",), ("chat", "a"), ("models",), ("doctor",), ("frame", "pair")):
            monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
            run_app(words)
    finally:
        watching = False
    assert opened == []
    assert f"load the model file {name}" in "".join(capsys.readouterr())


# -- the user's folders ---------------------------------------------------------------------------------------

RELATIVE = ({"HOME": "."}, {"HOME": "home/user"}, {})


def plant(clone: Path, name: str) -> None:
    """Plant a file wherever a relative folder of the user would be."""
    for place in ("~/.cache", "~/.config", ".cache", ".config", "home/user/.cache", "home/user/.config", "x"):
        path = clone / place / "reyn" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("GGUF" if name.endswith("gguf") else f"projects: {{'{clone}': 1}}")


@pytest.mark.parametrize("home", RELATIVE, ids=repr)
@pytest.mark.parametrize("configured", [None, "x", "./x", "~/.cache", ""])
def test_no_folder_of_the_user_is_in_the_current_folder(
    home: dict[str, str], configured: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A clone cannot bring weights, prompt caches or a user configuration for a user without a home directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in home.items():
        monkeypatch.setenv(name, value)
    if configured is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", configured)
        monkeypatch.setenv("XDG_CONFIG_HOME", configured)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {}[uid])  # an unknown user
    default = KNOWN_WEIGHTS[DEFAULT_WEIGHTS]
    plant(tmp_path, f"models/{default.name}-{default.sha256[:12]}.gguf")
    plant(tmp_path, "config.yaml")
    assert weights_path(default) is None
    assert user_config().read() == UserConfig()
    (tmp_path / "m.gguf").write_text("GGUF")
    cache = PromptCache(tmp_path / "m.gguf", "1")
    cache.store("text", lambda name: pytest.fail(f"wrote {name}"))
    assert cache.find("text") is None
    with pytest.raises(ModelNotInstalled, match="is not installed"):
        LocalModel.locate("local", "", ModelSettings(model="local"), tmp_path)
    with pytest.raises(PullFailed, match="no folder for weights"):
        pull(default, print)


def test_a_cache_removes_only_files_that_it_names_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(prompt_cache, "MAX_CACHE_BYTES", 10)
    (tmp_path / "m.gguf").write_text("GGUF")
    cache, state = PromptCache(tmp_path / "m.gguf", "1"), b"0123456789"
    folder, outside = tmp_path / "reyn" / "prefixes", tmp_path / "outside"
    outside.mkdir()
    folder.mkdir(parents=True)
    own = f"{'0' * 32}-{'0' * 64}.kv"
    names = ("photo.raw", "notes.kv", f"x{own}", ".hidden", own)
    for place in (folder, outside):
        for name in names:
            (place / name).write_bytes(state)
            os.utime(place / name, (1_000, 1_000))
    cache.store("text", lambda name: cache.write(name, state))
    found = cache.find("text")
    assert {path.name for path in folder.iterdir()} == {*names, found} - {own}
    folder.rename(tmp_path / "moved")
    folder.symlink_to(outside)
    cache.store("text", lambda name: cache.write(name, state))
    assert cache.find("text") is None
    assert {path.name for path in outside.iterdir()} == set(names)


def test_a_pull_removes_only_folders_of_pulls(tmp_path: Path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/f").touch()
    for name in (".pull-abcdefgh", ".pull-notes", "models"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "link").symlink_to(tmp_path / "outside")
        os.utime(tmp_path / name, (1_000, 1_000))
    weights._remove_stale(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".pull-notes", "models", "outside"}
    assert (tmp_path / "outside/f").exists()


@pytest.mark.parametrize("owned", ["reyn.yaml", "."])
def test_a_project_of_another_user_above_the_current_folder_is_not_used(
    owned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    two_phases(tmp_path / "p")
    (tmp_path / "p/reyn.yaml").write_text("model: scripted:a.jsonl\n")
    (tmp_path / "p/work").mkdir()
    monkeypatch.chdir(tmp_path / "p/work")
    assert run_app(("runs",)) == 0
    stat, lstat = Path.stat, Path.lstat

    def foreign(path: Path, status: os.stat_result) -> os.stat_result:
        is_foreign = path == tmp_path / "p" / owned
        return os.stat_result((*status[:4], status.st_uid + 7 if is_foreign else status.st_uid, *status[5:]))

    monkeypatch.setattr(Path, "stat", lambda self, **kw: foreign(self, stat(self, **kw)))
    monkeypatch.setattr(Path, "lstat", lambda self: foreign(self, lstat(self)))
    capsys.readouterr()
    assert run_app(("runs",)) == 2
    assert "belongs to another user" in capsys.readouterr().err
    with pytest.raises(ProjectNotFound, match="belongs to another user"):
        asyncio.run(project_runtime())
    assert run_app(("--project", "..", "runs")) == 0
    monkeypatch.chdir(tmp_path / "p")
    assert run_app(("runs",)) == 0
