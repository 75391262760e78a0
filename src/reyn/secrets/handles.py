"""What a secret is called, how it is referred to, and what it may be. Knows no store.

No message here quotes what it was given: where a name or a handle is expected, a value may have been pasted.
"""

from __future__ import annotations

import re

from reyn.errors import SecretNameInvalid, SecretValueInvalid

SCHEME = "secret://"
_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_FEWEST_CHARACTERS = 6
_MOST_CHARACTERS = 8_192


def is_handle(text: str) -> bool:
    return text.startswith(SCHEME) and is_name(text.removeprefix(SCHEME))


def name_of(handle: str) -> str:
    """The name that a handle refers to."""
    if not handle.startswith(SCHEME):
        raise SecretNameInvalid("this is no handle of a secret", hint="Write `secret://NAME`, never the value itself.")
    return checked_name(handle.removeprefix(SCHEME))


def handle_of(name: str) -> str:
    return f"{SCHEME}{checked_name(name)}"


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def checked_name(name: str) -> str:
    if not is_name(name):
        raise SecretNameInvalid("a secret cannot be called that")
    return name


def checked_value(name: str, value: str) -> str:
    """The value, if it can be found again in a text without hiding what is no secret."""
    fault = _fault(name, value)
    if fault:
        raise SecretValueInvalid(f"the value of `{name}` {fault}")
    return value


def _fault(name: str, value: str) -> str:
    if not value.strip():
        return "is empty"
    if len(value) < _FEWEST_CHARACTERS:
        return f"has fewer than {_FEWEST_CHARACTERS} characters, too few to be told from other text"
    if len(value) > _MOST_CHARACTERS:
        return f"has more than {_MOST_CHARACTERS} characters"
    if value in f"{SCHEME}{name}":
        return "is a part of its own handle, which is shown everywhere"
    if is_handle(value):
        return "is the handle of another secret"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "is not text"
    return ""
