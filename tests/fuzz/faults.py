"""System-call errors under the changes of files, and two processes that edit one file.

An op that reports `ok` is in the file. An op that reports anything else has left the file as it was, or the change is
recorded. Afterwards `undo` restores every file.
"""

from __future__ import annotations

import errno
import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import reyn.workspace.changes
import reyn.workspace.files
from reyn import SyncRuntime
from reyn.permissions import gate
from tests.fuzz.harness import Case
from tests.fuzz.oracles import STATUSES, changed, tree
from tests.fuzz.project import Overheard
from tests.support import act, file, finish, go, write_skill

ERRORS = [errno.EIO, errno.ENOSPC, errno.EACCES, errno.EMFILE]
CHANGING = ("open", "write", "fchmod", "fsync", "rename", "unlink", "mkdir", "rmdir", "close")
LOOKING = ("open", "read", "stat", "fstat", "scandir", "close")
FOLDER = getattr(gate, "WRITABLE", "output")
"""The folder of the project that may be written to. `SPEC.md` says `output`."""
TEMPORARY = ".reyn-tmp-"


class FaultySystem:
    """`os`, some of whose calls fail: those at the given places in the sequence of calls."""

    def __init__(self, names: tuple[str, ...], failing: dict[int, int]) -> None:
        self._names = names
        self._failing = failing
        self.calls = 0
        self.failed: list[str] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in self._names:
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            number = self._failing.get(self.calls)
            if number is None:
                return real(*args, **kwargs)
            self.failed.append(f"{name} {errno.errorcode[number]}")
            if name == "close":  # the descriptor is closed all the same
                real(*args, **kwargs)
            raise OSError(number, os.strerror(number))

        return call


@contextmanager
def system_calls_through(system: Any, *modules: Any) -> Iterator[None]:
    """Let modules of `reyn.workspace` reach the system through something that looks like `os`."""
    before = [(vars(module), vars(module)["os"]) for module in modules]
    for names, _ in before:
        names["os"] = system
    try:
        yield
    finally:
        for names, real in before:
            names["os"] = real


def target(case: Case) -> None:
    make = case.random.choices([failing_calls, failing_undo, two_editors], [6, 2, 2])[0]
    case.label(make.__name__)
    root = case.folder / "project"
    write_skill(
        root,
        "s",
        {"plan": ["build"], "build": ["end"]},
        ops={"plan": "file"},
        phase_keys={"plan": "max_act_turns: 100\n"},
    )
    (root / FOLDER).mkdir(exist_ok=True)
    (root / FOLDER / "old.txt").write_text("old END\n")
    (root / FOLDER / "gone.txt").write_text("to be deleted\n")
    (root / FOLDER / "old.txt").chmod(0o640)
    make(case, root)


# -- errors -------------------------------------------------------------------------------------------


def failing_calls(case: Case, root: Path) -> None:
    """Some calls fail while a run writes, edits and deletes."""
    chance = case.random
    names, modules = chance.choice(
        [
            (CHANGING, (reyn.workspace.changes,)),
            (CHANGING, (reyn.workspace.changes,)),
            (LOOKING, (reyn.workspace.files,)),
        ]
    )
    system = FaultySystem(names, _failures(chance, 60))
    original = _project(root)
    watch = Watch(case, root)
    with SyncRuntime.open(root, model=Overheard(case, _script(chance))) as rt:
        with case.guarded("run"), system_calls_through(system, *modules):
            result = rt.run("s", {"text": "in"}, run_id="k", listener=watch.take(rt))
            if result.status not in STATUSES:
                case.found("status", result.status)
        _check_undo(case, rt, root, original, system)


def failing_undo(case: Case, root: Path) -> None:
    """Some calls fail during the undo; a second one restores what is left."""
    chance = case.random
    original = _project(root)
    system = FaultySystem(CHANGING, _failures(chance, 25))
    with SyncRuntime.open(root, model=Overheard(case, _script(chance))) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
        with case.guarded("undo"), system_calls_through(system, reyn.workspace.changes):
            rt.runs.undo("k")
        _check_undo(case, rt, root, original, system)


def _failures(chance: random.Random, calls: int) -> dict[int, int]:
    number = chance.choice(ERRORS)
    if chance.random() < 0.7:
        return {chance.randint(1, calls): number}
    return {chance.randint(1, calls): chance.choice(ERRORS) for _ in range(chance.randint(2, 5))}


def _script(chance: random.Random) -> list[Any]:
    """Writes, edits that double, and deletes; each edit again after it, as a model repeats an op after an error."""
    old, new = f"{FOLDER}/old.txt", f"{FOLDER}/deep/er/new.txt"
    ops = [
        file("write", new, content="new END\n"),
        file("edit", old, old_string="END", new_string="one END"),
        file("edit", new, old_string="END", new_string="two END"),
        file("write", "workspace:a.txt", content="a END"),
        file("edit", "workspace:a.txt", old_string="END", new_string="three END"),
        file("delete", f"{FOLDER}/gone.txt"),
        file("delete", new),
        file("write", old, content="whole END\n"),
    ]
    chance.shuffle(ops)
    answers = [act(op) for op in ops for _ in range(chance.randint(1, 2))]
    return [json.dumps(answer) for answer in [*answers, go("build"), finish()]]


class Watch:
    """Compares the files with what each op reported, at the moment it is durable."""

    def __init__(self, case: Case, root: Path) -> None:
        self._case = case
        self._root = root
        self._known: dict[str, str | None] = {}
        self._expected: dict[str, tuple[str, str | None]] = {}

    def take(self, rt: SyncRuntime) -> Any:
        """The listener of a run."""

        def listen(event: Any) -> None:
            data = event.data
            if event.kind == "file_started":
                args = json.loads(rt.runs.content(data["args"]))
                before = self._text(args["path"])
                self._expected[data["call"]] = (args["path"], _result_of(args, before))
                self._known[args["path"]] = before
            elif event.kind == "file_completed":
                self._compare(data["call"], data["status"], data.get("changed", False))

        return listen

    def _compare(self, call: str, status: str, is_recorded: bool) -> None:
        path, expected = self._expected[call]
        now = self._text(path)
        if status == "ok" and now != expected:
            self._case.found("ok-but-not-in-file", f"{path}: {now!r} instead of {expected!r}")
        elif status != "ok" and now != self._known[path] and not is_recorded:
            self._case.found("error-but-changed", f"{path}: {self._known[path]!r} became {now!r}")

    def _text(self, path: str) -> str | None:
        inside = path.removeprefix("workspace:")
        place = self._root / ".reyn" / "workspace" / "k" / inside if inside != path else self._root / path
        return place.read_text() if place.exists() else None


def _result_of(args: dict[str, Any], before: str | None) -> str | None:
    match args["op"]:
        case "write":
            return str(args["content"])
        case "edit":
            return (before or "").replace(args["old_string"], args["new_string"], 1)
    return None


def _check_undo(case: Case, rt: SyncRuntime, root: Path, original: dict[str, str], system: FaultySystem) -> None:
    with case.guarded("undo"):
        rt.runs.undo("k")
    after = _project(root)
    stuck = [path for path in after if TEMPORARY in path]  # its folders cannot be removed, either
    left = [path for path in changed(original, after) if not any(one.startswith(path) for one in stuck)]
    if left and all(after.get(path) == "folder" and path not in original for path in left):
        case.found("undo-leaves-folders", f"{left} after {system.failed}")
    elif left:
        case.found("undo-does-not-restore", f"{left} after {system.failed}")
    # One that cannot be removed has to stay.
    if any(TEMPORARY in path for path in tree(root)) and not any(name.startswith("unlink") for name in system.failed):
        case.found("temporary-file-left", f"after {system.failed}")
    with case.holds("verify"):
        rt.runs.verify("k")
    with case.holds("replay"):
        rt.runs.replay("k")


def _project(root: Path) -> dict[str, str]:
    return {path: what for path, what in tree(root).items() if not path.startswith(".reyn")}


# -- two processes ------------------------------------------------------------------------------------

EDITS = 12


class SlowRename:
    """`os`, whose `rename` takes a moment: what another process does meanwhile must not be lost."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def rename(self, *args: Any, **kwargs: Any) -> None:
        time.sleep(self._chance.random() * 0.01)
        os.rename(*args, **kwargs)  # noqa: PTH104 - with descriptors

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def two_editors(case: Case, root: Path) -> None:
    """Two runs in two processes edit one file; every edit that reports `ok` is in it at the end."""
    path = root / FOLDER / "shared.txt"
    path.write_text("END")
    with SyncRuntime.open(root) as rt:
        rt.runs.all()  # the journal exists before both open it
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _edit(case, root, "b")
            status = 0
        finally:
            os._exit(status)
    _edit(case, root, "a")
    os.waitpid(child, 0)
    text = path.read_text()
    with SyncRuntime.open(root) as rt:
        for run in ("a", "b"):
            done = [event.data["status"] for event in rt.runs.events(run) if event.kind == "file_completed"]
            lost = [n for n, status in enumerate(done) if status == "ok" and f"<{run}{n}>" not in text]
            if lost:
                case.found("lost-update", f"run {run}: {len(lost)} of {done.count('ok')} edits that reported ok")


def _edit(case: Case, root: Path, run: str) -> None:
    path = f"{FOLDER}/shared.txt"
    edits = [act(file("edit", path, old_string="END", new_string=f"<{run}{n}> END")) for n in range(EDITS)]
    answers = [json.dumps(answer) for answer in [*edits, go("build"), finish()]]
    slow = SlowRename(random.Random(f"{case.seed}/{run}"))
    with (
        SyncRuntime.open(root, model=Overheard(case, answers)) as rt,
        case.guarded(f"run {run}"),
        system_calls_through(slow, reyn.workspace.changes),
    ):
        rt.run("s", {"text": "in"}, run_id=run)
