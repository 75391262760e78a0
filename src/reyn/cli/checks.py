"""The checks of `reyn doctor`, of the machine and of the project."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Literal

import msgspec

from reyn.cli.hints import full_hint
from reyn.config.user import journal_key
from reyn.errors import (
    ConfigError,
    ConfigInvalid,
    Finding,
    JournalError,
    ModelError,
    ModelUntrusted,
    ReynError,
    SandboxStartFailed,
    StoreUnavailable,
    UserConfigUnavailable,
)
from reyn.journal.database import DATABASE_FILES, DATABASE_FORMAT
from reyn.journal.opening import JournalPlace
from reyn.journal.port import DATABASE, STATE, open_reservations
from reyn.journal.state_folder import file_status, open_state
from reyn.kernel.world.services import Services
from reyn.permissions.trust import load_project
from reyn.runtime.project import Project
from reyn.runtime.run_warnings import budget_warnings
from reyn.texts import counted

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.sandbox.process import Backend

Health = Literal["ok", "warning", "broken"]

_PYTHON = (3, 11)
_SQLITE = (3, 51, 3)
"""Older versions can damage a WAL that two connections reset at once. Reyn serialises checkpoints; other programs do
not."""
_LOW_DISK = 1_000_000_000
_FULL_DISK = 10_000_000
_MAX_LISTED = 5


class Check(msgspec.Struct, frozen=True):
    """The result of one check.

    Attributes:
        name: What was checked.
        health: The verdict.
        text: The finding, such as a version.
        hint: What to do about it.
    """

    name: str
    health: Health
    text: str
    hint: str = ""


def run_checks(root: Path) -> list[Check]:
    """Run every check for a project."""
    checks = [check_python(sys.version_info[:3]), check_sqlite(sqlite3.sqlite_version_info), check_state(root)]
    return [
        *checks,
        check_disk(shutil.disk_usage(root).free),
        check_sandbox(),
        check_models(),
        check_config(root),
        check_trust(root),
        check_journal(root),
        check_engine(root),
        check_budgets(root),
    ]


def check_python(version: tuple[int, ...]) -> Check:
    text = f"{platform.python_implementation()} {_dotted(version)}"
    if version < _PYTHON:
        return Check("python", "broken", text, f"Reyn requires {_dotted(_PYTHON)} or newer.")
    return Check("python", "ok", text)


def check_sqlite(version: tuple[int, ...]) -> Check:
    if version < _SQLITE:
        hint = f"Before {_dotted(_SQLITE)}, programs other than Reyn can damage the journal if they write to it."
        return Check("sqlite", "warning", _dotted(version), hint)
    return Check("sqlite", "ok", _dotted(version))


def check_state(root: Path) -> Check:
    folder = root / STATE
    try:
        opened = open_state(folder)
        if not os.access(root if opened is None else folder, os.W_OK | os.X_OK):
            return Check("state", "broken", f"`{folder}` is not writable", "Runs can be read, but not executed.")
        if opened is None:
            return Check("state", "ok", f"{folder} (created by the first run)")
        with opened as handle:
            files = {name: file_status(handle, name, opened.path) for name in DATABASE_FILES}
            statuses = {folder: os.fstat(handle)} | {folder / name: one for name, one in files.items() if one}
    except JournalError as error:
        return Check("state", "broken", error.message, full_hint(error.code, error.hint))
    if loose := [path for path, status in statuses.items() if status.st_mode & 0o077]:
        hint = f"Run: chmod -R go= {shlex.quote(str(folder))}"
        return Check("state", "warning", f"other users can access `{loose[0]}`", hint)
    return Check("state", "ok", str(folder))


def check_disk(free: int) -> Check:
    health: Health = "broken" if free < _FULL_DISK else "warning" if free < _LOW_DISK else "ok"
    return Check("disk", health, f"{free / 1e9:.1f} GB free", "" if health == "ok" else "Free some disk space.")


def check_sandbox() -> Check:
    from reyn.sandbox import monty
    from reyn.sandbox.backends import BACKENDS

    problems = {"monty": monty.monty_problem()} | {backend.name: _problem(backend) for backend in BACKENDS}
    usable = [name for name, problem in problems.items() if not problem]
    missing = "; ".join(f"{name}: {problem}" for name, problem in problems.items() if problem)
    if any(backend.name in usable for backend in BACKENDS):
        return Check("sandbox", "ok", ", ".join(usable) + (f" ({missing})" if missing else ""))
    hint = "Install bubblewrap, or use Linux 6.12 or newer, to run programs and all python steps."
    return Check("sandbox", "warning", f"{', '.join(usable) or 'none'}; {missing}", hint)


def _problem(backend: Backend) -> str:
    try:
        return backend.problem
    except SandboxStartFailed as error:
        return error.message


def check_models() -> Check:
    from reyn.models.catalog import adapter_versions

    versions = adapter_versions()
    usable = [f"{name} ({version})" for name, version in versions.items() if version]
    missing = [name for name, version in versions.items() if not version]
    text = ", ".join(usable) or "no adapters"
    return Check("models", "ok", f"{text}; not installed: {', '.join(missing)}" if missing else text)


def check_config(root: Path) -> Check:
    try:
        loaded = load_project(root)
        services = Services(root=root, config=loaded.config, trust=loaded.trust)
        Project(services).check_config()
    except ConfigInvalid as error:
        return Check("config", "broken", "; ".join(map(_one_line, error.findings)), full_hint(error.code, error.hint))
    except ModelUntrusted as error:
        return Check("config", "warning", error.message, full_hint(error.code, error.hint))
    except (ConfigError, ModelError) as error:
        return Check("config", "broken", error.message, full_hint(error.code, error.hint))
    if warnings := list(budget_warnings(services)):
        return Check("config", "warning", "; ".join(warnings), "Fix the name; the budget applies to no run.")
    model = loaded.config.model
    if not model:
        return Check("config", "ok", "valid, no default model", "Set `model:` in reyn.yaml, or pass --model.")
    return Check("config", "ok", f"valid, model {model}")


def check_trust(root: Path) -> Check:
    try:
        trust = load_project(root).trust
    except ConfigError:  # the check of the configuration reports it
        return Check("trust", "ok", "unknown, the configuration is invalid")
    if not trust.ignored:
        return Check("trust", "ok", "nothing needs trust" if trust.state == "not needed" else trust.state)
    ignored = "; ".join(f"{grant.text} ({grant.place})" for grant in trust.ignored)
    return Check("trust", "warning", f"{trust.state}; ignored: {ignored}", "Review and trust: reyn trust")


def check_journal(root: Path) -> Check:
    if (place := _journal_place(root)).address:
        return _check_remote(place)
    try:
        if not place.has_journal:
            return _check_absent(root / STATE)
        with closing(place.open_file()) as journal:
            count, is_own = len(journal.runs()), journal.is_own()
    except (JournalError, UserConfigUnavailable) as error:
        return Check("journal", "broken", error.message, full_hint(error.code, error.hint))
    if not is_own:
        hint = full_hint(StoreUnavailable.code, StoreUnavailable.foreign_hint)
        return Check("journal", "warning", f"not created by you: {journal.path}", hint)
    if not place.is_read_only and journal_key().new_mark() is None:
        hint = "Make the user configuration folder writable, so that Reyn can recognize journals of other users."
        return Check("journal", "warning", "its origin is not checked: the user's key cannot be stored", hint)
    mode = "read-only" if place.is_read_only else f"format {DATABASE_FORMAT}"
    return Check("journal", "ok", f"{mode}, {counted(count, 'run')}, {journal.path}")


def _check_absent(folder: Path) -> Check:
    """Check that there was no journal before: Reyn creates the other files of the state folder together with it."""
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if not names:
        return Check("journal", "ok", "no runs yet")
    listed = ", ".join(f"`{name}`" for name in names[:_MAX_LISTED])
    hint = (
        "Restore it from a backup, or `reyn import` exported runs. To start without the earlier runs, delete `.reyn`."
    )
    return Check("journal", "warning", f"`{folder / DATABASE}` is gone or empty; only {listed} remain", hint)


def _journal_place(root: Path) -> JournalPlace:
    """Return where the journal is: in the state folder if the configuration is invalid."""
    try:
        return JournalPlace.of(root, load_project(root).config.journal)
    except ConfigError:
        return JournalPlace.of(root)


def _check_remote(place: JournalPlace) -> Check:
    try:
        with closing(place.open_remote()) as journal:
            found = journal.inspect()
    except ReynError as error:
        return Check("journal", "broken", error.message, full_hint(error.code, error.hint))
    text = f"{found.server}, format {found.format}, {found.runs} runs, {found.bytes:,} bytes, {journal.address}"
    text = f"{text}; {found.processes} processes hold {found.claims} claims, {found.wakes} wakes wait"
    if found.faults:
        return Check("journal", "warning", f"{text}; {'; '.join(found.faults)}", found.hint)
    return Check("journal", "ok", text)


def check_engine(root: Path) -> Check:
    """Check that the engine is reached, if the journal serves several machines or a file names one."""
    from reyn.engines import open_engine
    from reyn.journal import MemoryJournal

    place = _journal_place(root)
    try:
        loaded = load_project(root)
        config = loaded.config
        if not place.address and not config.engine:
            return Check("engine", "ok", "outbox, in the journal")
        secrets = Services(root=root, config=config, trust=loaded.trust).secrets
        with closing(place.open_remote() if place.address else MemoryJournal()) as journal:
            return Check("engine", "ok", open_engine(config.engine, journal, root.name, secrets.resolve).inspect())
    except ConfigError:  # the check of the configuration reports it
        return Check("engine", "ok", "unknown, the configuration is invalid")
    except ReynError as error:
        return Check("engine", "broken", error.message, full_hint(error.code, error.hint))


def _one_line(finding: Finding) -> str:
    return str(finding).replace("\n  ", ": ")


def check_budgets(root: Path) -> Check:
    """Check that no run was interrupted during a model call: its reservation counts against budgets in full."""
    try:
        with closing(_journal_place(root).open(create=False)) as journal:
            reservations = open_reservations(journal)
    except (JournalError, ConfigError):  # the check of the journal reports it
        return Check("budgets", "ok", "unknown, the journal cannot be read")
    lost = [one for one in reservations if not one.is_executing]
    if not lost:
        return Check(
            "budgets", "ok", f"{len(reservations)} calls in progress" if reservations else "nothing is reserved"
        )
    listed = ", ".join(f"`{one.run_id}` ({one.reserved.tokens:,} tokens)" for one in lost[:_MAX_LISTED])
    more = f" and {len(lost) - _MAX_LISTED} more" if len(lost) > _MAX_LISTED else ""
    text = f"interrupted during a model call, which counts against budgets in full: {listed}{more}"
    return Check("budgets", "warning", text, "Continue or end each: reyn resume RUN, or reyn cancel RUN")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
