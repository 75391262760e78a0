"""RYN7xx: configuration, secrets and installed ops."""

from __future__ import annotations

from reyn.errors.base import FindingsError, ReynError


class ConfigError(ReynError, exit_code=2):
    """The project, its configuration, its secrets or an installed op is invalid."""


class ConfigInvalid(ConfigError, FindingsError, code="RYN701"):
    """`reyn.yaml`, `reyn.local.yaml`, a `REYN_*` variable or a flag contains an unknown key or an invalid value."""

    hint = "Fix the lines or variables that the message names."


class ProjectNotFound(ConfigError, code="RYN702"):
    """The project's folder does not exist, or cannot be written."""

    hint = "Use an existing folder that you can write to."


class FileExists(ConfigError, code="RYN703"):
    """A file that would be written exists already."""

    hint = "Use a different name, or move or delete the existing file. Reyn never overwrites it."


class SecretMissing(ConfigError, code="RYN704"):
    """A secret is neither stored nor set in the environment."""

    hint = "Store the secret, or set the environment variable `REYN_SECRET_<NAME>`."


class SecretStoreUnavailable(ConfigError, code="RYN705"):
    """The secret store cannot be accessed, or other users can read or change it."""

    hint = "Fix the problem that the message names, or set the environment variable `REYN_SECRET_<NAME>` instead."


class SecretNameInvalid(ConfigError, code="RYN706"):
    """The name of a secret is invalid, or a handle is not of the form `secret://NAME`. The input is not shown."""

    hint = "Use at most 64 capital letters, digits and `_`, starting with a letter: `OPENAI_API_KEY`."


class SecretValueInvalid(ConfigError, code="RYN707"):
    """The value of a secret cannot be scrubbed from text: it is empty, too short, too long, or a handle."""

    hint = "Use the value as it was issued: UTF-8 text of 6 to 8192 characters."


class OpInvalid(ConfigError, code="RYN708"):
    """An op cannot be registered: its kind is taken, or its specification is invalid."""

    hint = "Change the op's kind or specification."


class OpUnknown(ConfigError, code="RYN709"):
    """No op kind of that name is built in or installed."""

    hint = "Use an op kind that is built in or installed."


class UsageError(ConfigError, code="RYN710"):
    """The command line is invalid: an unknown command or option, a missing argument, or a value out of range."""

    hint = "Correct the command line."

    def __init__(self, message: str, *, usage: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.usage = usage

    def as_json(self) -> dict[str, object]:
        return super().as_json() | {"usage": self.usage}


class UserConfigUnavailable(ConfigError, code="RYN711"):
    """The user configuration cannot be read or written, or other users can change it."""

    hint = "Fix the problem that the message names. `XDG_CONFIG_HOME` selects a different folder."


class OriginInvalid(ConfigError, code="RYN712"):
    """The text is not an origin: the scheme, host and port of a server."""

    hint = "Write the scheme, the host and, if it is not the default, the port: `https://api.example.com:8443`."


class SettingUnknown(ConfigError, code="RYN719"):
    """The configuration has no key of that name."""

    hint = "Use a key of the configuration, or the name of a section such as `limits`."


class CounterUnavailable(ConfigError, code="RYN720"):
    """The exact token counter that the configuration asks for is not installed, or cannot count."""

    hint = "Run `pip install 'reyn[tokens]'`, or set `context.counter` to `auto`."


class ModuleUnloadable(ConfigError, code="RYN730"):
    """A Python module cannot be imported: from `tools` in the configuration, or a `module:function` argument."""

    hint = "Fix the error in the module, or its name. Reyn looks in the installed packages and the project's folder."


class McpDefinitionsInvalid(ConfigError, code="RYN735"):
    """The accepted definitions of an MCP server's tools cannot be read."""

    hint = "Connect to the server and accept its tools again."


class McpServerUnknown(ConfigError, code="RYN736"):
    """The configuration has no MCP server of that name."""

    hint = "Add the server under `mcp.servers` in reyn.yaml."


class McpServerFailed(ConfigError, code="RYN737"):
    """An MCP server cannot be reached, or does not answer."""

    hint = (
        "Run the server's `command` in a terminal, or open its `url`, to see whether it starts. Then correct "
        "`mcp.servers` in reyn.yaml."
    )


class RequirementsInvalid(ConfigError, code="RYN740"):
    """The requirements of an environment cannot be used: a package without a hash, a path, an address, an option."""

    hint = "List packages of the index, each with its version and its SHA-256 hashes."


class EnvironmentNotMade(ConfigError, code="RYN741"):
    """The packages of an environment could not be found or installed. An environment that exists stays as it is."""

    hint = "Correct the requirements, or the configuration of pip, and make the environment again."


class EnvironmentUnknown(ConfigError, code="RYN742"):
    """The configuration has no environment of that name."""

    hint = "Add the environment under `environments` in reyn.yaml: `{requirements: FILE}` or `{path: FOLDER}`."
