"""Names, handles and values of secrets: syntax and validation, without access to any store.

Errors raised here do not quote their input: users paste values where a name or a handle belongs.
"""

from __future__ import annotations

import re

from reyn.errors import SecretNameInvalid, SecretValueInvalid

SCHEME = "secret://"
VARIABLE_SCHEME = "env://"
_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MIN_LENGTH = 6
_MAX_LENGTH = 8_192


def is_handle(text: str) -> bool:
    """Return whether a text is `secret://NAME` or `env://VARIABLE`."""
    return (text.startswith(SCHEME) and is_name(text.removeprefix(SCHEME))) or is_variable_handle(text)


def is_variable_handle(text: str) -> bool:
    """Return whether a text is `env://VARIABLE`."""
    return text.startswith(VARIABLE_SCHEME) and _VARIABLE.fullmatch(text.removeprefix(VARIABLE_SCHEME)) is not None


def name_of(handle: str) -> str:
    """Return the name in a `secret://NAME` handle.

    Raises:
        SecretNameInvalid: If it is not such a handle.
    """
    if not handle.startswith(SCHEME):
        raise SecretNameInvalid("not a secret handle", hint="Write `secret://NAME`, never the value itself.")
    return validate_name(handle.removeprefix(SCHEME))


def variable_of_handle(handle: str) -> str:
    """Return the variable in an `env://VARIABLE` handle."""
    return handle.removeprefix(VARIABLE_SCHEME)


def handle_of(name: str) -> str:
    """Return the `secret://NAME` handle of a stored secret."""
    return f"{SCHEME}{validate_name(name)}"


def is_name(text: str) -> bool:
    """Return whether a text is a valid name of a secret."""
    return _NAME.fullmatch(text) is not None


def validate_name(name: str) -> str:
    """Return the name; raise `SecretNameInvalid` if it is not valid."""
    if not is_name(name):
        raise SecretNameInvalid("invalid name of a secret")
    return name


def validate_value(handle: str, value: str) -> str:
    """Return the value; raise `SecretValueInvalid` if it cannot be scrubbed without hiding ordinary text."""
    fault = _fault(handle, value)
    if fault:
        raise SecretValueInvalid(f"the value of `{handle}` {fault}")
    return value


def _fault(handle: str, value: str) -> str:
    if not value.strip():
        return "is empty"
    if len(value) < _MIN_LENGTH:
        return f"has fewer than {_MIN_LENGTH} characters and could not be distinguished from ordinary text"
    if len(value) > _MAX_LENGTH:
        return f"has more than {_MAX_LENGTH} characters"
    if value in handle:
        return "is part of its own handle"
    if is_handle(value):
        return "is the handle of another secret"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "is not valid Unicode text"
    return ""
