"""What must hold whatever happens: which files changed, what was disclosed, what a terminal receives."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from reyn.context.budget_log import BUDGET_LOG
from tests.fuzz.harness import MEGABYTE, STATE_BYTES, Case

STATUSES = {"running", "finished", "failed", "limited", "waiting", "aborted", "cancelled", "blocked"}
"""The states of `SPEC.md` §6."""
OUTPUT = "output"
"""The folder of the project that a run may write to without a grant."""

_EXECUTED_NAMES = {"makefile", "conftest.py", "dockerfile", "package.json", "pyproject.toml", "setup.cfg", "hooks"}
_EXECUTED_SUFFIXES = (".py", ".pth", ".sh", ".so", ".pyc", ".service", ".desktop")
_STEERING = re.compile(
    "\x1b[^\\[]|[\x00-\x08\x0b\x0c\x0e-\x1a\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\U000e0000-\U000e0066]"
)
"""What only hostile text contains: controls, bidirectional and invisible characters. Colours are Reyn's."""


def is_executable_place(parts: tuple[str, ...]) -> bool:
    """Whether another program executes or imports a file because of where it is. Not the rule of `reyn.permissions`."""
    folded = [part.casefold() for part in parts]
    return any(
        part.startswith(".") or part in _EXECUTED_NAMES or part.endswith(_EXECUTED_SUFFIXES) for part in folded
    ) or folded in (["reyn.yaml"], ["reyn.local.yaml"])


def tree(folder: Path) -> dict[str, str]:
    """Every path below a folder with its content, link target or mode; folders, too."""
    found: dict[str, str] = {}
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        for entry in os.scandir(here):
            path = Path(entry.path)
            name = str(path.relative_to(folder))
            if entry.is_symlink():
                found[name] = f"link {os.readlink(path)}"  # noqa: PTH115 - as text
            elif entry.is_dir():
                found[name] = "folder"
                waiting.append(path)
            elif entry.is_file():
                mode = path.stat().st_mode & 0o777
                found[name] = f"{mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
            else:
                found[name] = "other"
    return found


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The outermost paths that were added, removed or changed."""
    paths = sorted({name for name, _ in before.items() ^ after.items()})
    return [path for path in paths if after.get(path) != "folder" or path not in before]


class World:
    """The files of a project and around it, before anything happened.

    Args:
        around: The folder to watch.
        root: The project in it. Its `.reyn` is not watched.
    """

    def __init__(self, around: Path, root: Path) -> None:
        self._around = around
        self._root = root
        self._before = self._seen()

    def _seen(self) -> dict[str, str]:
        state = f"{self._root.relative_to(self._around)}/.reyn"
        return {
            path: what
            for path, what in tree(self._around).items()
            if path != state and not path.startswith(f"{state}/")
        }

    def changes(self) -> Iterator[tuple[str, str]]:
        """The changes since the last call, each with its class. Files in `output/` may change."""
        now = self._seen()
        before, self._before = self._before, now
        project = self._root.relative_to(self._around).parts
        for path in changed(before, now):
            parts = Path(path).parts
            if parts[: len(project)] != project:
                yield "writes-outside-project", path
                continue
            inside = parts[len(project) :]
            if now.get(path) == "folder" and any(other.startswith(f"{path}/") for other in now):
                continue  # its files are reported
            if "/".join(inside) == BUDGET_LOG:
                continue
            if is_executable_place(inside):
                yield "writes-executable-place", path
            elif inside[0] == "reyn":
                yield "writes-skills-folder", path
            elif inside[0] != OUTPUT:
                yield "writes-outside-zones", path


def check_files(case: Case, world: World, doing: str = "") -> None:
    for what, path in world.changes():
        case.found(f"{doing}-{what}" if doing else what, path)


def check_state_size(case: Case, state: Path) -> None:
    size = sum(path.stat().st_size for path in state.rglob("*") if path.is_file()) if state.is_dir() else 0
    if size > STATE_BYTES:
        case.found("disk", f"the state directory has {size // MEGABYTE} MB")


def check_disclosure(case: Case, canaries: dict[str, str], texts: Iterable[tuple[str, bytes]]) -> None:
    """No canary is in any of the texts. `canaries` names the class of each."""
    found: set[str] = set()
    for where, text in texts:
        for what, canary in canaries.items():
            if what not in found and canary.encode() in text:
                found.add(what)
                case.found(what, f"in {where}")


def recorded(state: Path) -> Iterator[tuple[str, bytes]]:
    """Everything that the journal holds: events, and each content."""
    import sqlite3

    if not (state / "journal.db").exists():
        return
    base = sqlite3.connect(f"file:{state / 'journal.db'}?mode=ro", uri=True)
    try:
        tables = [row[0] for row in base.execute("select name from sqlite_master where type = 'table'")]
        for table in tables:
            for row in base.execute(f'select * from "{table}"'):
                for value in row:
                    if isinstance(value, bytes | str):
                        yield (
                            f"journal table {table}",
                            value if isinstance(value, bytes) else value.encode("utf-8", "replace"),
                        )
    finally:
        base.close()


FORGED = "# FORGED"
"""What hostile texts put at the start of a line, to pass for a section of the prompt."""
_OWN_HEADING = re.compile(r"# (?:Earlier [\w.-]+|Rejected|Results|Notes|Answer)")
"""The headings of a turn. The static message has none, except in the author's instructions."""


def check_prompt(case: Case, role: str, text: str) -> None:
    """No line of a prompt that untrusted text caused looks like a heading, whatever a reader takes for a line end."""
    if role == "assistant":
        return
    headings = [line for line in text.splitlines() if line.startswith("#")]
    for line in headings:
        if line.startswith(FORGED) or (role == "user" and not _OWN_HEADING.fullmatch(line)):
            at = text.index(line)
            case.found("forged-heading", repr(text[max(0, at - 60) : at + 30]))
    if role == "user" and len(set(headings)) < len(headings):
        case.found("repeated-heading", repr(headings))


def check_terminal(case: Case, command: str, text: str) -> None:
    """Nothing that is printed steers a terminal."""
    found = _STEERING.search(text)
    if found:
        case.found(
            "terminal-escape", f"`reyn {command}` prints {text[max(0, found.start() - 40) : found.end() + 40]!r}"
        )


_FAULT = re.compile(r"RYN900[^:]*: (?:an internal fault: )?(\w*)")


def check_command(case: Case, command: str, code: int, printed: str) -> None:
    """A command reports documented errors only, and nothing that it prints steers a terminal."""
    check_terminal(case, command, printed)
    fault = _FAULT.search(printed)
    if fault and fault[1] == "MemoryError":
        case.found("memory", f"`reyn {command}`: MemoryError")
    elif fault:
        case.found(f"internal-error({fault[1]} in reyn {command.split()[0]})", f"exit {code}: {printed[-300:]}")
