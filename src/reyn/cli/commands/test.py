"""`reyn test`."""

from __future__ import annotations

import click

from reyn.cli.output import clean, json_option, print_json
from reyn.cli.project import open_existing_project, skill_name


@click.command(epilog="Example: reyn test summarize --json")
@click.argument("skills", nargs=-1, metavar="[SKILL]...")
@json_option
def command(skills: tuple[str, ...], as_json: bool) -> int:
    """Run the cases of SKILL, or of every skill of the project, and compare the results.

    A case is a folder below `cases/` of the skill, with an input, the answers of a model and the expected result. No
    model is called and nothing is recorded. Files go to a temporary folder; programs, the web, MCP servers and ops of
    other packages are denied. The exit code is 1 if a case fails.
    """
    from reyn.errors import CaseInvalid

    with open_existing_project() as rt:
        names = [skill_name(name) for name in skills] or [
            name for name, shelf, _ in rt.project.library if shelf != "stdlib"
        ]
        reports = {name: rt.project.try_cases(name) for name in names}
    for name, report in reports.items() if skills else ():
        if not report.cases:
            raise CaseInvalid(f"the skill `{name}` has no cases")
    if as_json:
        print_json(
            [
                {"skill": name, "case": case.name, "passed": case.passed, "problems": list(case.problems)}
                for name, report in reports.items()
                for case in report.cases
            ]
        )
    else:
        for name, report in reports.items():
            click.echo(clean(f"{name}: {report.summary}"))
            for problem in report.failures:
                click.echo(clean(f"  {problem}"))
        if not reports:
            click.echo("no skills in this project; `reyn test NAME` tests one of the standard library")
    return 0 if all(report.passed for report in reports.values()) else 1
