"""Run command lines of Reyn in forks of one process, so that a tracer follows them all and each starts in milliseconds.

A request is one line of JSON on standard input; the answer is the exit status of the command. Nothing of a command is
left in this process. Modules of Reyn are loaded before; what it loads only when needed is loaded in the fork, as in a
process of its own.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys

SECONDS = 120
"""A command that has not ended by then waits for something that never comes, on a machine of any speed."""
CPU_SECONDS = 20
MEMORY = 3 << 30
FILE = 64 << 20

sys.path[0] = os.path.dirname(sys.executable)  # noqa: PTH120 - as for the script `reyn`


def load() -> None:
    import pkgutil
    from importlib import import_module

    import reyn

    for module in pkgutil.walk_packages(reyn.__path__, "reyn."):
        if not module.name.endswith("__main__"):
            import_module(module.name)


def redirect(path: str, flags: int, descriptor: int) -> None:
    opened = os.open(path, flags, 0o600)
    os.dup2(opened, descriptor)
    os.close(opened)


def serve(request: dict[str, object]) -> int:
    """Run one command in a fork and return its status: an exit code, or a negative signal."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 97
    try:
        os.setsid()
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
        redirect(str(request["input"]), os.O_RDONLY, 0)
        redirect(str(request["output"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 1)
        os.dup2(1, 2)
        os.environ.clear()
        os.environ.update(request["environ"])
        os.chdir(str(request["folder"]))
        words = [str(word) for word in request["words"]]
        if words[0] == "python":  # what the tracer is tested with
            exec(words[1], {})
            code = 0
        else:
            from reyn.cli.app import run_app

            sys.argv = ["reyn", *words]
            code = run_app(words)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def main(kind: str, audit: str = "") -> None:
    """Serve requests.

    Args:
        kind: `reyn` to load Reyn first, `python` for programs that do not use it.
        audit: The folder for reports of an audit hook; without one, a tracer watches from outside.
    """
    if kind == "reyn":
        load()
    if audit:
        from clone_audit import watch

        watch(audit)
    gc.freeze()  # a collection in a fork would copy every page
    print("ready", flush=True)
    for line in sys.stdin:
        print(serve(json.loads(line)), flush=True)


main(*sys.argv[1:])
