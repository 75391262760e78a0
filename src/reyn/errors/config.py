"""Errors of the configuration, secrets, installed ops and the command line (RYN7xx)."""

from __future__ import annotations

from reyn.errors.base import FindingsError, ReynError


class ConfigError(ReynError):
    """The project, its configuration, its secrets or an installed op is invalid."""

    exit_code = 2


class ConfigInvalid(ConfigError, FindingsError):
    """`reyn.yaml`, `reyn.local.yaml`, a `REYN_*` variable or a flag contains an unknown key or an invalid value."""

    code = "RYN701"
    hint = "Fix the lines or variables that the message names."


class ProjectNotFound(ConfigError):
    """The project's folder does not exist, or cannot be written."""

    code = "RYN702"
    hint = "Use an existing folder that you can write to."


class FileExists(ConfigError):
    """A file that would be written exists already."""

    code = "RYN703"
    hint = "Use a different name, or move or delete the existing file. Reyn never overwrites it."


class SecretMissing(ConfigError):
    """A secret is neither stored nor set in the environment."""

    code = "RYN704"
    hint = "Store the secret, or set the environment variable `REYN_SECRET_<NAME>`."


class SecretStoreUnavailable(ConfigError):
    """The secret store cannot be accessed, or other users can read or change it."""

    code = "RYN705"
    hint = "Fix the problem that the message names, or set the environment variable `REYN_SECRET_<NAME>` instead."


class SecretNameInvalid(ConfigError):
    """The name of a secret is invalid, or a handle is not of the form `secret://NAME`. The input is not shown."""

    code = "RYN706"
    hint = "Use at most 64 capital letters, digits and `_`, starting with a letter: `OPENAI_API_KEY`."


class SecretValueInvalid(ConfigError):
    """The value of a secret cannot be scrubbed from text: it is empty, too short, too long, or a handle."""

    code = "RYN707"
    hint = "Use the value as it was issued: UTF-8 text of 6 to 8192 characters."


class OpInvalid(ConfigError):
    """An op cannot be registered: its kind is taken, or its specification is invalid."""

    code = "RYN708"
    hint = "Change the op's kind or specification."


class OpUnknown(ConfigError):
    """No op kind of that name is built in or installed."""

    code = "RYN709"
    hint = "Use an op kind that is built in or installed."


class UsageError(ConfigError):
    """The command line is invalid: an unknown command or option, a missing argument, or a value out of range."""

    code = "RYN710"
    hint = "Correct the command line."

    def __init__(self, message: str, *, usage: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.usage = usage

    def as_json(self) -> dict[str, object]:
        return super().as_json() | {"usage": self.usage}


class UserConfigUnavailable(ConfigError):
    """The user configuration cannot be read or written, or other users can change it."""

    code = "RYN711"
    hint = "Fix the problem that the message names. `XDG_CONFIG_HOME` selects a different folder."


class OriginInvalid(ConfigError):
    """The text is not an origin: the scheme, host and port of a server."""

    code = "RYN712"
    hint = "Write the scheme, the host and, if it is not the default, the port: `https://api.example.com:8443`."


class SettingUnknown(ConfigError):
    """The configuration has no key of that name."""

    code = "RYN719"
    hint = "Use a key of the configuration, or the name of a section such as `limits`."


class CounterUnavailable(ConfigError):
    """The exact token counter that the configuration asks for is not installed, or cannot count."""

    code = "RYN720"
    hint = "Run `pip install 'reyn[tokens]'`, or set `context.counter` to `auto`."


class ModuleUnloadable(ConfigError):
    """A Python module cannot be imported: from `tools` in the configuration, or a `module:function` argument."""

    code = "RYN730"
    hint = "Fix the error in the module, or its name. Reyn looks in the installed packages and the project's folder."


class McpDefinitionsInvalid(ConfigError):
    """The accepted definitions of an MCP server's tools cannot be read."""

    code = "RYN735"
    hint = "Connect to the server and accept its tools again."


class McpServerUnknown(ConfigError):
    """The configuration has no MCP server of that name."""

    code = "RYN736"
    hint = "Add the server under `mcp.servers` in reyn.yaml."


class McpServerFailed(ConfigError):
    """An MCP server cannot be reached, or does not answer."""

    code = "RYN737"
    hint = (
        "Run the server's `command` in a terminal, or open its `url`, to see whether it starts. Then correct "
        "`mcp.servers` in reyn.yaml."
    )
