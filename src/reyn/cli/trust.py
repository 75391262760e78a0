"""List the settings of a project that grant access, and ask whether to trust the project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reyn.cli.output import reyn_command
from reyn.cli.project import project_root
from reyn.cli.writer import out

if TYPE_CHECKING:
    from reyn.permissions.trust import LoadedProject
    from reyn.runtime.project import JournalReport


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
