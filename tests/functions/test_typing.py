"""Type checkers infer what decorated functions take and return."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = '''
from dataclasses import dataclass
from typing import reveal_type

from reyn import llm_chat, llm_function, tool
from reyn.chat import Reply
from reyn.functions import CallResult, ChatReply, LLMChat


@dataclass
class City:
    name: str


@llm_function
def plain(text: str, count: int = 1) -> City:
    """Do."""
    raise NotImplementedError


@llm_function(max_retries=1)
def with_arguments(text: str) -> list[City] | None:
    """Do."""
    raise NotImplementedError


@llm_function
async def awaited(text: str) -> dict[str, int]:
    """Do."""
    raise NotImplementedError


@tool(effect="pure")
def helper(number: int) -> str:
    """Help."""
    return str(number)


@tool
async def slow_helper(number: int) -> str:
    """Help."""
    return str(number)


@llm_function(toolkit=[helper, slow_helper], template_params=["tone"])
async def armed(text: str) -> bool:
    """Do it in a {tone} tone."""
    raise NotImplementedError


@llm_chat
async def talk(message: str, history: list[dict[str, str]]) -> None:
    """Talk."""


@llm_chat(toolkit=[helper], memory=False)
async def keyed(message: str) -> None:
    """Talk."""


async def main() -> None:
    reveal_type(plain("a"))  # City
    reveal_type(with_arguments("a"))  # list[City] | None
    reveal_type(await awaited("a"))  # dict[str, int]
    reveal_type(await armed.options(template_params={"tone": "dry"})("a"))  # bool
    reveal_type(plain.run("a").value)  # City
    reveal_type((await awaited.resume("run")).value)  # dict[str, int]
    reveal_type(helper(1))  # str
    reveal_type(await slow_helper(1))  # str
    reveal_type(await talk("a", []))  # ChatReply
    reveal_type((await keyed.options(key="k")("a")).text)  # str
    reveal_type(keyed.options(key="k").conversation)  # str | None
    async for item in keyed("a"):
        match item:
            case Reply():
                reveal_type(item)  # Reply
    reveal_type(keyed.resume())  # ChatStream
    async for partial in awaited.stream("a"):
        reveal_type(partial.value)  # dict[str, int] | None
    for one in plain.options(run_id="r").stream("a"):
        reveal_type(one)  # Partial[City]


plain(1)  # error
plain("a", "b")  # error
plain()  # error
helper("a")  # error
llm_function(toolkit=[len])  # error
talk(1, [])  # error
talk("a")  # error
keyed.options(key=5)  # error
plain.stream(1)  # error
llm_chat(max_tokens="many")  # error
'''
EXPECTED = re.findall(r"reveal_type\(.*\)  # (.*)", PROGRAM)
ERRORS = [number for number, line in enumerate(PROGRAM.splitlines(), start=1) if line.endswith("# error")]


def normal(text: str) -> str:
    """A type as both checkers and the program write it."""
    text = re.sub(r"\b(builtins|program|reyn\.(functions|chat)\.\w+)\.", "", text)
    union = re.fullmatch(r"Union\[(.*)\]", text)
    return union[1].replace(", ", " | ") if union else text


def check(command: list[str], folder: Path) -> str:
    (folder / "program.py").write_text(PROGRAM)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout


def test_mypy_infers_return_types_and_checks_arguments(tmp_path: Path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    source = Path(importlib.util.find_spec("reyn").origin).parent.parent
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = true\nmypy_path = {source}\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "program.py"]
    output = check(command, tmp_path)
    revealed = re.findall(r'Revealed type is "(.*)"', output)
    assert [normal(one) for one in revealed] == EXPECTED, output
    assert sorted({int(line) for line in re.findall(r"program\.py:(\d+): error", output)}) == ERRORS, output


def test_pyright_infers_return_types_and_checks_arguments(tmp_path: Path):
    found = shutil.which("pyright") or shutil.which("basedpyright")
    if found is None:
        pytest.skip("pyright is not installed")
    source = Path(importlib.util.find_spec("reyn").origin).parent.parent
    (tmp_path / "pyrightconfig.json").write_text(
        f'{{"extraPaths": ["{source}"], "typeCheckingMode": "standard", "pythonPath": "{sys.executable}"}}'
    )
    output = check([found, "program.py"], tmp_path)
    revealed = re.findall(r'Type of ".*" is "(.*)"', output)
    assert [normal(one) for one in revealed] == EXPECTED, output
    assert sorted({int(line) for line in re.findall(r"program\.py:(\d+):\d+ - error", output)}) == ERRORS, output
