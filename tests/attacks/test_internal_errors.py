"""Input that no code expected. The attacker writes arguments, settings and files; each is refused with its own error.

The oracle is the code of the error: `RYN900` stands for an exception that nothing handles.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pwd
import random
import shutil
import typing
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
import yaml

from reyn.cli.app import app
from reyn.config import Config
from tests.cli.conftest import here, reyn
from tests.support import two_phases

__all__ = ["here", "reyn"]  # fixtures
# A command may write where an argument says, and `/` can be written by root: nobody can write in `/proc`.
ODD = [
    *(
        "",
        " ",
        ".",
        "..",
        "/proc/self",
        "//proc",
        "~",
        "~/x",
        "~nouser/x",
        "-",
        "--",
        "-1",
        "0",
        "nan",
        "1e400",
        "9" * 30,
    ),
    *("x" * 5_000, "scripted:~/x"),
    *("{", "[]", '{"a": 1e999}', '{"a":' * 600, '{"text": "x"}', '{"decision": 1}', "[", "**/[", "*", "%s%n", "🙂"),
    *("\x1b[31m", "\ud800", "\udcff", "\u202e", "a/../../b", ":", "a:b:c", "=", "a=b", "run_tokens=", "run_tokens=-1"),
    *("local:", "local:~/x", "local:~nouser/x", "local:/", "local:/dev/null", "scripted:", "scripted:.", "a\nb"),
    *("recorded:", "recorded:..", "x.y:Z", "os:system", "openai:", "secret://", "http://[", "http://x:99999"),
    *("ask-x", "2026-13-45", "99999999999d", "k:99999999999999999999", "None", "/dev/full", "pair", "asking", "k"),
]
VALUES = [
    *ODD, 0, -1, 10**30, 1.5, float("inf"), True, None, [], {}, [[]], [None], {"a": 1}, {"": {}}, [{"allow": "["}],
    {"x": {"model": "local:~/x"}}, {"x": {"model": "openai:m", "base_url": "http://["}}, {"x": {"command": [""]}},
    [{"ask": 5}], {"file.write": [{"allow": "~nouser/"}]}, {"file.read": [{"deny": "~/x"}]}, {"USD": "x"},
]  # fmt: skip
SKIPPED = ("chat", "explain", "pull", "serve", "watch", "worker")
"""A conversation reads the terminal, `explain` prints the codes, and a download needs the network."""
LOOKS: tuple[tuple[str, ...], ...] = (
    ("config",), ("lint", "pair"), ("run", "pair", '{"text": "x"}', "--no-input"), ("models",), ("doctor",), ("runs",),
    ("trust", "--yes"), ("frame", "pair", '{"text": "x"}'), ("permissions", "pair"), ("skills",), ("usage",),
    ("agents",),
)  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose parents are folders of the test, too: `init ..` is a command like any other."""
    root = tmp_path / "outer" / "project"
    root.mkdir(parents=True)
    two_phases(root)
    return root


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a home directory: no variable, and no entry in the list of users."""

    def unknown(*_: object) -> Any:
        raise KeyError("unknown user")

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.setenv("EDITOR", "true")
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(pwd, "getpwnam", unknown)


def commands(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        return [] if set(path) & set(SKIPPED) else [(path, command)]
    context = click.Context(command, obj={})
    names = [name for name in command.list_commands(context) if name not in SKIPPED]
    return [found for name in names for found in commands(command.get_command(context, name), (*path, name))]


def odd_arguments(choose: random.Random, path: tuple[str, ...], command: click.Command) -> list[str]:
    found = list(path)
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            found += choose.choices(ODD, k=max(parameter.nargs, 1))
        elif parameter.name != "help" and choose.random() < 0.3:
            is_flag = getattr(parameter, "is_flag", False)
            found += [parameter.opts[0]] if is_flag else [parameter.opts[0], choose.choice(ODD)]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_no_argument_is_an_internal_error(here: Path, reyn: Any, seed: int, homeless: None):
    choose, known = random.Random(seed), commands(app)
    for path, command in choose.choices(known, k=50):
        arguments = odd_arguments(choose, path, command)
        found = reyn(*arguments)
        assert "RYN900" not in found.err + found.out, arguments
        os.chdir(here)


@pytest.mark.parametrize("model", [name for name in ODD if ":" in name and not name.startswith("http")])
def test_no_name_of_a_model_is_an_internal_error(here: Path, reyn: Any, model: str, homeless: None):
    found = reyn("run", "pair", '{"text": "in"}', "--no-input", "--model", model)
    assert "RYN900" not in found.err + found.out


def settings_of(kind: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """All keys of the configuration."""
    found: list[tuple[str, ...]] = []
    for field in msgspec.structs.fields(kind):
        below = [one for one in (field.type, *typing.get_args(field.type)) if isinstance(one, type)]
        found.append((*path, field.name))
        for one in below:
            with contextlib.suppress(TypeError):
                found += settings_of(one, (*path, field.name)) if issubclass(one, msgspec.Struct) else ()
    return found


def written(value: Any) -> bytes:
    return yaml.safe_dump(value, allow_unicode=True).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("seed", range(3))
def test_no_setting_is_an_internal_error(here: Path, reyn: Any, seed: int, homeless: None):
    choose, keys = random.Random(seed), settings_of(Config)
    for key in choose.choices(keys, k=20):
        value = tree = choose.choice(VALUES)
        for name in reversed(key):
            tree = {name: tree}
        (here / "reyn.yaml").write_bytes(written(tree))
        for command in choose.sample(LOOKS, 2):
            found = reyn(*command)
            assert "RYN900" not in found.err + found.out, (key, value, command)


KEYS = "type name entry graph final_output permissions description required_credentials input allowed_ops preprocessor"
MORE = "model model_class max_act_turns requires_approval postprocessor role skills agents budget memory handoff"
BROKEN = [b"", b"\xff\xfe", b"[", b"null", b"{}", b"[]", b"1", b"{" * 3_000, b"a: &a [*a]", b"---\n---\n", b"--- \x00"]


@pytest.mark.parametrize("seed", range(3))
def test_no_file_of_a_skill_is_an_internal_error(
    here: Path, reyn: Any, seed: int, homeless: None, tmp_path_factory: pytest.TempPathFactory
):
    choose, saved = random.Random(seed), tmp_path_factory.mktemp("saved")
    shutil.copytree(here, saved, dirs_exist_ok=True)
    for _ in range(20):
        files = sorted(path for path in here.glob("reyn/**/*") if path.is_file())
        path = choose.choice(
            [*files, here / "answers.jsonl", here / "reyn/agents/boss.md", here / "reyn/mcp/desk.json"]
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        key, value = choose.choice(f"{KEYS} {MORE}".split()), choose.choice(VALUES)
        if path.suffix == ".md" and path.exists():
            head = yaml.safe_load(path.read_text().split("---")[1])
            content = b"---\n" + written(head | {key: value}) + b"---\nWork.\n"
        else:
            content = choose.choice([*BROKEN, written({key: value}), json.dumps({key: str(value)}).encode()])
        path.write_bytes(content)
        for command in choose.sample(LOOKS, 2):
            found = reyn(*command)
            assert "RYN900" not in found.err + found.out, (path.name, content[:300], command)
        shutil.rmtree(here / "reyn")
        shutil.copytree(saved, here, dirs_exist_ok=True)
