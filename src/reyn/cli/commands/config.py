"""`reyn config`."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from reyn.cli.groups import CommandGroup
from reyn.cli.output import clean, json_option, print_json
from reyn.cli.project import model_name, project_root
from reyn.cli.settings import setting_options
from reyn.errors import ModelUnknown


@click.group(
    cls=CommandGroup, for_names="explain", invoke_without_command=True, epilog="Example: reyn config explain limits"
)
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Show every setting with its value and origin."""
    if context.invoked_subcommand is None:
        _explain(None, {}, as_json=as_json)


@command.command("explain", epilog="Example: reyn config explain limits.tokens")
@click.argument("key", required=False)
@setting_options
@json_option
def explain(key: str | None, as_json: bool, **settings: Any) -> None:
    """Show value and origin of KEY, or of every setting.

    The origin is an option, a variable `REYN_<KEY>`, a line of reyn.local.yaml, reyn.yaml or the user configuration, or
    the default. A setting that is ignored because the project is not trusted is listed as such. KEY may be a
    section: `limits`. With options of `reyn run`, show the settings that such a run would have.
    """
    settings["model"] = model_name(settings["model"])
    parent = click.get_current_context().parent
    _explain(key, settings, as_json=as_json or (parent is not None and parent.params["as_json"]))


def _explain(key: str | None, options: dict[str, Any], *, as_json: bool) -> None:
    from reyn.config.load import select_settings
    from reyn.permissions.trust import load_project
    from reyn.runtime import OSRuntime
    from reyn.runtime.project import Project

    root = project_root().resolve()
    loaded = load_project(root, options)
    try:
        OSRuntime(Project(root, loaded.config, trust=loaded.trust)).project.check_config()
    except ModelUnknown as error:  # the settings show where it is named
        click.echo(f"warning: {clean(error.message)}", err=True)
    settings = loaded.settings()
    if key is not None:
        settings = select_settings(settings, key)
    if as_json:
        print_json(settings)
        return
    values = [clean(msgspec.json.encode(setting.value).decode()) for setting in settings]
    key_width, value_width = max(len(setting.key) for setting in settings), min(40, max(map(len, values)))
    for setting, value in zip(settings, values, strict=True):
        click.echo(clean(f"{setting.key:<{key_width}}  {value:<{value_width}}  {setting.origin}"))
        for text in setting.ignored:
            click.echo(f"{'':<{key_width}}  ignored, the project is not trusted: {clean(text)}")
