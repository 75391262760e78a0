"""`reyn ops`."""

from __future__ import annotations

import click
import msgspec

from reyn.cli.output import clean, json_option, print_json
from reyn.cli.project import project_ops
from reyn.errors import OpUnknown


@click.command(epilog="Example: reyn ops file")
@click.argument("kind", required=False)
@json_option
def command(kind: str | None, as_json: bool) -> None:
    """List the available ops, or document KIND. Includes the ops of installed packages and the project's tools."""
    from reyn.documents import nearest_hint
    from reyn.ops.docs import op_page

    table = project_ops()
    vocabulary = table.vocabulary
    for problem in table.problems:
        click.echo(f"warning: {clean(problem)}", err=True)
    if kind is None:
        if as_json:
            print_json([msgspec.to_builtins(spec) for spec in vocabulary.ops])
            return
        width = max(len(spec.kind) for spec in vocabulary.ops)
        for spec in vocabulary.ops:
            note = "" if spec.is_available else " (reserved for a later version)"
            click.echo(f"{spec.kind:<{width}}  {spec.effect:<12}  {clean(spec.summary)}{note}")
        return
    spec_of_kind = vocabulary.op(kind)
    if spec_of_kind is None:
        raise OpUnknown(f"no op kind `{kind}`", hint=nearest_hint(kind, vocabulary.op_kinds) or None)
    if as_json:
        print_json(spec_of_kind)
        return
    click.echo(op_page(spec_of_kind, "#"), nl=False)
