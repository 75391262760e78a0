"""The trust class of each key in the files of a project, declared in the struct of its keys.

A struct that `check_keys` checks has a class variable `TRUST` with a class for each of its fields. A new key without
one is an error when the struct is first used. `reyn.permissions.grants` lists what needs trust from these classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

TrustClass = Literal[
    "plain",
    "section",
    "entry",
    "request",
    "sandboxed",
    "right",
    "limit",
    "zone",
    "rules",
    "code",
    "model",
    "server",
    "secret",
]
"""What a key can do, and so what it needs.

Without trust in the project:
    plain: A text, a number, or a name that is looked up in the project; it has no effect outside.
    section: A mapping whose keys have classes of their own.
    entry: A mapping that is used or ignored as a whole, by the classes of its keys.
    request: Asks for something that only a rule or an option of the operator grants.
    sandboxed: Names code of the skill, which runs in a sandbox only.

With trust:
    right: Any value but the default.
    limit: A value above the default.
    zone: Path patterns that cover more than the default.
    rules: Permission rules that allow something, or that name a path outside of the project.
    code: A program or Python code.
    model: A model that loads code or a file, reads a path outside the project, or uses credentials of the environment.
    server: A server that requests are sent to, or the journal.
    secret: A secret that is sent to a server or passed to a program.
"""
TrustClasses = dict[str, TrustClass]


def trust_classes(**names: str) -> TrustClasses:
    """Return the class of each key: `trust_classes(right="backend", plain="seconds output")`."""
    classes: TrustClasses = {}
    for kind, keys in names.items():
        for key in keys.split():
            if kind not in get_args(TrustClass) or key in classes:
                raise TypeError(f"`{key}`: no trust class `{kind}`, or a second one")
            classes[key] = kind  # type: ignore[assignment]  # checked above
    return classes


def classes_of(shape: type) -> Mapping[str, TrustClass]:
    """Return the declared class of each key of a struct, with those of the structs that it extends."""
    found: TrustClasses = {}
    for base in reversed(shape.__mro__):
        found |= vars(base).get("TRUST", {})
    return found


def struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct in a type: of a mapping, a list or an alternative; `None` if there is none."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((found for part in get_args(kind) if (found := struct_in(part))), None)
