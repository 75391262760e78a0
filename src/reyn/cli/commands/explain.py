"""`reyn explain`."""

from __future__ import annotations

import inspect
from typing import Any

import click

from reyn.cli.examples import EXAMPLES
from reyn.cli.hints import COMMANDS, full_hint
from reyn.cli.output import json_option, print_json, print_table
from reyn.errors import FINDINGS, ReynError, UsageError, all_errors


@click.command(epilog="Example: reyn explain RYN201")
@click.argument("code", required=False)
@json_option
def command(code: str | None, as_json: bool) -> None:
    """Explain the error or lint finding CODE, or list all codes."""
    errors = {cls.code: cls for cls in all_errors() if cls is not ReynError}
    codes = sorted({*errors, *FINDINGS})
    if code is None:
        rows = [_entry(known, errors.get(known)) for known in codes]
        if as_json:
            print_json(rows)
        else:
            print_table(("CODE", "MEANING"), [(row["code"], row["meaning"].split("\n\n")[0]) for row in rows])
        return
    wanted = code.upper() if code.upper().startswith("RYN") else f"RYN{code}"
    if wanted not in codes:
        raise UsageError(f"no error code `{code}`", hint="`reyn explain` lists all codes.")
    entry = _entry(wanted, errors.get(wanted))
    if as_json:
        print_json(entry)
        return
    click.echo(f"{entry['code']} {entry['name']} (exit code {entry['exit_code']})".replace("  ", " "))
    for line in entry["meaning"].split("\n"):
        click.echo(f"  {line}".rstrip())
    if entry["finding"]:
        click.echo(f"  as a finding: {entry['finding']}")
    click.echo(f"  fix: {entry['hint']}")
    for number, line in enumerate(entry["examples"]):
        click.echo(f"  {'example:' if number == 0 else '        '} {line}")


def _entry(code: str, cls: type[ReynError] | None) -> dict[str, Any]:
    """Describe a code: an error class, a lint finding, or both. `name` is the exception class in `reyn.errors`."""
    finding, examples = FINDINGS.get(code), EXAMPLES.get(code, ())
    if cls is None:
        assert finding is not None
        entry = {"name": "finding", "exit_code": 1, "meaning": finding.meaning, "finding": ""}
        hint = f"{finding.fix} {COMMANDS.get(code, '`reyn lint SKILL` shows the line.')}"
        return {"code": code, **entry, "hint": hint, "examples": examples}
    meaning, _, _ = inspect.cleandoc(cls.__doc__ or "").partition("\n\nAttributes:")
    entry = {"name": cls.__name__, "exit_code": cls.exit_code, "meaning": meaning}
    entry["finding"] = finding.meaning if finding is not None else ""
    return {"code": code, **entry, "hint": full_hint(code, cls.hint), "examples": examples}
