"""Commands and programs in processes that have imported Reyn already: the import is most of what a start costs.

They are forks of a process that imports Reyn and does nothing else, so nothing of a test is in them. What a start
itself does (the script `reyn`, the imports) is tested with `subprocess`.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

_COMMANDS = ("access", "agents", "authoring", "checking", "execution", "journal", "recorded", "status", "system")
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["tests.forked", "reyn.functions", "reyn.lint", *(f"reyn.cli.commands.{name}" for name in _COMMANDS)]
)


def run_command(words: Sequence[str], folder: Path, environ: Mapping[str, str]) -> tuple[int, str]:
    """Run `reyn` with arguments; return the exit code and the output. The test is marked with `sockets`."""
    return _run(_command, words, folder, environ)


def run_program(text: str, folder: Path, environ: Mapping[str, str]) -> tuple[int, str]:
    """Run the text of a Python program; return the exit code and the output. The test is marked with `sockets`."""
    return _run(_program, text, folder, environ)


def _run(work: Callable[[Any], object], value: object, folder: Path, environ: Mapping[str, str]) -> tuple[int, str]:
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as output:
        process = _FORKS.Process(target=_work, args=(work, value, str(folder), dict(environ), output.name))
        process.start()
        process.join()
        code = process.exitcode
        process.close()
        assert code is not None
        return code, output.read()


def _work(work: Callable[[Any], object], value: object, folder: str, environ: dict[str, str], output: str) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    opened = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(opened, 1)
    os.dup2(opened, 2)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for the whole process
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    try:
        work(value)
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()


def _command(words: Sequence[str]) -> None:
    from reyn.cli import main

    sys.argv = ["reyn", *words]
    main()


def _program(text: str) -> None:
    warnings.simplefilter("error", SyntaxWarning)
    sys.path.insert(0, "")
    program = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(text, "<string>", "exec"), vars(program))
