"""Find and open the project, ask whether to trust it, and interpret arguments: skills, models and inputs.

A project that a command opens is closed when the command ends.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reyn.cli.hints import NO_PROJECT
from reyn.cli.options import chosen_settings
from reyn.cli.output import now, reyn_command
from reyn.cli.writer import out
from reyn.errors import InputInvalid, ProjectNotFound

if TYPE_CHECKING:
    from reyn.config import Config
    from reyn.config.budgets import DayBudgets
    from reyn.journal import Journal
    from reyn.ops import OpTable
    from reyn.permissions.trust import LoadedProject
    from reyn.runs.reading import RecordedRuns
    from reyn.runtime import OSRuntime, SyncRuntime
    from reyn.runtime.project import JournalReport

_CONFIG = "reyn.yaml"


def project_root() -> Path:
    """Return the folder of `--project`, else the nearest parent with a `reyn.yaml`, else the current folder."""
    from reyn.private_files import nearest_project

    flags = click.get_current_context().obj
    flags["uses_project"] = True
    argument = flags["project"]
    if argument is not None:
        with suppress(OSError):
            if Path(argument).is_dir():
                return Path(argument)
        raise ProjectNotFound(f"no folder `{argument[:200]}`")
    return nearest_project("If you trust that user, name the folder with `--project`.")


def has_project() -> bool:
    """Return whether the folder of the project has a configuration, skills or runs."""
    from reyn.folders import DEFINITIONS
    from reyn.journal.port import STATE

    root = project_root()
    return (root / _CONFIG).is_file() or (root / DEFINITIONS).is_dir() or (root / STATE).is_dir()


def print_missing_project() -> None:
    """Print that a folder has no project, if the command looked for something of one."""
    if click.get_current_context().obj.get("uses_project") and not has_project():
        out.note(NO_PROJECT)


def print_assumed_project() -> None:
    """Print which folder is the project if neither `--project` nor a `reyn.yaml` says so."""
    if click.get_current_context().obj["project"] is None and not ((root := project_root()) / _CONFIG).is_file():
        out.note(f"no {_CONFIG} found; using {root} as the project")


def open_project(**settings: Any) -> SyncRuntime:
    """Open the project; a run creates its state folder."""
    return _opened(settings, creates_journal=True)


def open_existing_project(**settings: Any) -> SyncRuntime:
    """Open the project for commands about existing runs: create no state folder."""
    return _opened(settings, creates_journal=False)


def open_runs(config: Config | None = None) -> RecordedRuns:
    """Open the runs of the project for commands that only look: without the kernel, and no state folder is created.

    Args:
        config: The configuration to use instead of the project's, which may be invalid.
    """
    from reyn.runs.reading import RecordedRuns

    journal = open_journal()
    return RecordedRuns(lambda: journal, lambda: _day_budgets(config), now)


def _day_budgets(config: Config | None) -> DayBudgets:
    """Return the budgets of a configuration, by default the project's: most commands that look need none."""
    from reyn.config.budgets import DayBudgets
    from reyn.permissions.trust import load_project

    return DayBudgets((config or load_project(project_root().resolve()).config).budgets)


def open_journal() -> Journal:
    """Open the journal of the project, without the kernel; no state folder is created."""
    from reyn.journal.opening import JournalPlace

    journal = JournalPlace.of(project_root().resolve(), _journal_address()).open(create=False)
    click.get_current_context().call_on_close(journal.close)
    return journal


def _opened(settings: dict[str, Any], *, creates_journal: bool) -> SyncRuntime:
    from reyn.runtime import OSRuntime

    flags = click.get_current_context().obj
    switches = {name: flags.get(name, False) for name in ("allow_shell", "allow_unsafe_python")}
    runtime = OSRuntime.open(project_root(), **switches, **chosen_settings(settings))
    runtime.services.creates_journal = creates_journal
    return click.get_current_context().with_resource(_in_main_thread(runtime))


@contextmanager
def _in_main_thread(runtime: OSRuntime) -> Iterator[SyncRuntime]:
    """Use a runtime with an event loop in this thread, where signals arrive and the terminal is read."""
    import asyncio

    from reyn.runtime import SyncRuntime

    with asyncio.Runner() as runner, SyncRuntime(runtime, runner) as opened:
        yield opened


def _journal_address() -> str:
    """Return the address of the journal; empty if it is in the state folder.

    Raises:
        ConfigError: The configuration is invalid, and may name a journal that is somewhere else.
    """
    if not _may_name_journal(project_root()):
        return ""
    from reyn.permissions.trust import load_project

    return load_project(project_root().resolve()).config.journal


def _may_name_journal(root: Path) -> bool:
    """Return whether the configuration could have the key `journal`: parsing it takes longer than listing runs."""
    if os.environ.get("REYN_JOURNAL"):
        return True
    for name in (_CONFIG, "reyn.local.yaml"):
        try:
            if not stat.S_ISREG(os.lstat(root / name).st_mode):
                return True
            content = (root / name).read_bytes()
        except FileNotFoundError:
            continue
        except OSError:
            return True
        if b"journal" in content or b"\\" in content:  # an escape may spell it
            return True
    return False


def configured_project() -> LoadedProject | None:
    """Return the configuration of the project; `None` if it is invalid."""
    from reyn.errors import ConfigError
    from reyn.permissions.trust import load_project

    try:
        return load_project(project_root().resolve())
    except ConfigError:
        return None


def project_ops() -> OpTable:
    """Return the ops of the project: built in, of installed packages and MCP servers, and its tools, if it is trusted.

    Without a valid configuration there are none of its own; the commands that use it report its errors.
    """
    return ops_of(configured_project())


def ops_of(loaded: LoadedProject | None) -> OpTable:
    """Return the ops of a project whose configuration is loaded, as `project_ops` does."""
    from reyn.ops import standard_ops

    if loaded is None or not (loaded.config.tools or loaded.config.mcp.servers):
        return standard_ops()
    from reyn.runtime import OSRuntime

    return OSRuntime.open(project_root()).services.ops


def skill_name(argument: str) -> str:
    """Return a skill's name, or its absolute path if the argument is a path."""
    from reyn.skills.resolve import is_path

    # `Path.expanduser` fails without a home directory.
    return os.path.abspath(os.path.expanduser(argument)) if is_path(argument) else argument  # noqa: PTH100, PTH111 - text in, text out


def model_name(argument: str | None) -> str | None:
    """Return a model's name; the path of an existing script becomes relative to the project."""
    adapter, _, path = (argument or "").partition(":")
    if adapter != "scripted" or not path or not Path(path).is_file():
        return argument
    return f"scripted:{os.path.relpath(path, project_root())}"


def text_argument(argument: str) -> str:
    """Return text as it is; `-` reads standard input, `@FILE` a file."""
    from reyn.documents import read_error

    if argument == "-":
        return _read_stdin()
    if not argument.startswith("@"):
        return argument
    try:
        return Path(argument[1:]).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputInvalid(
            f"cannot read the file `{argument[1:]}`: {read_error(error)}", hint="Pass the path of a text or JSON file."
        ) from error


def parse_input(argument: str | None) -> Any:
    """Return text as it is and a JSON object decoded; `-` reads standard input, `@FILE` a file."""
    from reyn.documents import JsonError, decode_json

    if argument is None:
        return None
    text = text_argument(argument)
    source = "standard input" if argument == "-" else f"`{argument[1:]}`" if argument.startswith("@") else "the input"
    if not text.lstrip().startswith("{"):
        return text
    try:
        return decode_json(text)
    except JsonError as error:
        raise InputInvalid(
            f"{source} starts with a brace but is not valid JSON: {error}",
            hint='Fix the JSON. To pass literal text, use {"text": "…"}.',
        ) from error


def _read_stdin() -> str:
    from reyn.documents import read_error

    if sys.stdin is None:
        raise InputInvalid("standard input is closed")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputInvalid(f"cannot read standard input: {read_error(error)}") from error


# -- trust ------------------------------------------------------------------------------------------


def ask_for_trust() -> None:
    """Ask once, at the terminal, about a project whose settings need trust. The decision is stored either way.

    It also asks about a journal that another user created, which is read-only until it is trusted.
    """
    from reyn.permissions.trust import load_project
    from reyn.runtime.project import inspect_journal

    loaded = load_project(project_root().resolve())
    journal = inspect_journal(Path(loaded.trust.root))
    if loaded.trust.state != "not trusted" and journal.is_own:
        return
    print_wants(loaded, journal)
    is_trusted = out.confirm("Trust this project?")
    decide(loaded, is_trusted=is_trusted)


def print_wants(loaded: LoadedProject, journal: JournalReport, *, err: bool = True) -> None:
    out.line(f"settings of {loaded.trust.root} that need trust:", err=err)
    for grant in loaded.trust.grants:
        out.line(f"  {grant.text}  ({grant.place})", err=err)
    if not journal.is_own:
        out.line(f"  {journal.text}  (not created by you)", err=err)


def decide(loaded: LoadedProject, *, is_trusted: bool, err: bool = True) -> None:
    """Store a decision and print it."""
    from reyn.permissions.trust import store_decision
    from reyn.runtime.project import inspect_journal

    if is_trusted:  # first: a damaged journal is an error, and nothing is stored
        inspect_journal(Path(loaded.trust.root), adopt=True)
    refused = store_decision(loaded, is_trusted=is_trusted) if loaded.trust.grants else []
    if is_trusted:
        out.line(f"trusted {loaded.trust.root}", err=err)
    else:
        ignored = "these settings are ignored" if loaded.trust.grants else "its runs can be read only"
        out.line(f"not trusted; {ignored}. Change your mind with: {reyn_command('trust')}", err=err)
    for handle, origin in refused:
        command = reyn_command("secret", "allow", handle.removeprefix("secret://"), origin)
        out.line(f"{handle} is bound to other origins and is not sent to {origin}; allow it with: {command}", err=err)
