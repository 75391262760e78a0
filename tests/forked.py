"""Commands and programs in processes that have imported Reyn already: the import is most of what a start costs.

They are forks of a process that imports Reyn and does nothing else, so nothing of a test is in them. What a start
itself does (the script `reyn`, the imports) is tested with `subprocess`.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
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


def run_command(
    words: Sequence[str], folder: Path, environ: Mapping[str, str], *, together: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run `reyn` with arguments, like `subprocess.run`. The test is marked with `sockets`.

    Args:
        words: The arguments.
        folder: The current folder.
        environ: The environment.
        together: Whether what is printed to stderr is in `stdout`, where it was printed.
    """
    return _run(_command, words, folder, environ, together=together)


def run_program(text: str, folder: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the text of a Python program, like `subprocess.run`. The test is marked with `sockets`."""
    return _run(_program, text, folder, environ)


def _run(
    work: Callable[[Any], object], value: object, folder: Path, environ: Mapping[str, str], *, together: bool = False
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as streams:
        out, err = Path(streams, "out"), Path(streams, "out" if together else "err")
        process = _FORKS.Process(target=_work, args=(work, value, str(folder), dict(environ), str(out), str(err)))
        process.start()
        process.join()
        code = process.exitcode
        process.close()
        assert code is not None
        return subprocess.CompletedProcess([], code, out.read_text("utf-8"), "" if together else err.read_text("utf-8"))


def _work(
    work: Callable[[Any], object], value: object, folder: str, environ: dict[str, str], out: str, err: str
) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
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
