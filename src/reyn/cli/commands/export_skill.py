"""`reyn export-skill`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from reyn.cli.output import clean, json_option, print_json
from reyn.cli.project import project_ops, project_root, skill_name


@click.command("export-skill", epilog="Example: reyn export-skill summarize --to output")
@click.argument("skill")
@click.option("--to", "folder", default=".", metavar="DIR", help="Folder for the new one. Default: the current folder.")
@click.option("--name", help="Name of the Agent Skill. Default: that of the skill, with hyphens.")
@json_option
def command(skill: str, folder: str, name: str | None, as_json: bool) -> None:
    """Write SKILL as an Agent Skill (agentskills.io): the folder DIR/NAME with a SKILL.md.

    The phases become steps of the instructions. What the format cannot express is listed. An Agent Skill that was
    imported and not changed since is written as it was. An existing folder is not overwritten.
    """
    from reyn.cli.files import write_new_files
    from reyn.errors import AgentSkillInvalid, FileExists, SkillNotExportable
    from reyn.skills import Library, load_skill
    from reyn.skills.agentskills import from_reyn
    from reyn.skills.files import read_folder

    library = Library(project_root())
    found = library.find(skill_name(skill))
    loaded = load_skill(found, project_ops().vocabulary, library)
    try:
        files, left_out = read_folder(found)
    except AgentSkillInvalid as error:
        raise SkillNotExportable(error.message) from error
    conversion = from_reyn(loaded, files, name or "")
    target = Path(folder) / conversion.name
    if os.path.lexists(target):
        raise FileExists(f"`{target}` already exists; nothing was written", hint="Choose another folder with `--to`.")
    write_new_files(target, conversion.files)
    notes = [*conversion.unconverted, *left_out]
    if as_json:
        fields = {"name": conversion.name, "folder": str(target), "files": sorted(conversion.files)}
        print_json(fields | {"unconverted": notes})
        return
    click.echo(f"created {clean(str(target))} ({len(conversion.files)} files)")
    if notes:
        click.echo("not converted:")
    for note in notes:
        click.echo(f"  - {clean(note)}")
