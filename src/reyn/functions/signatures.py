"""Read the signature of a Python function: its parameters and return type as JSON, its docstring as texts.

Annotations are resolved when the decorator is applied, with the local names of the caller; a name that is defined later
in the module is resolved on first use.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from reyn.errors import FunctionInvalid, InputInvalid
from reyn.functions.option_names import arguments_error
from reyn.functions.types import ConversionError, JsonType, join_schemas, json_type, to_json

_MISSING = inspect.Parameter.empty
_PLAIN = (str, int, bool, type(None))
VALUE = "value"
"""The field of the result that holds a return value that is not an object."""


class Parameter(NamedTuple):
    """A parameter of a function.

    Attributes:
        type: Its type as JSON.
        is_required: Whether it has no default.
        schema: The schema of its value, with the description of the docstring and the default.
    """

    type: JsonType
    is_required: bool
    schema: dict[str, Any]


class Signature:
    """The signature of one function, with every type as JSON."""

    def __init__(self, function: Callable[..., Any], local_names: Mapping[str, Any], what: str) -> None:
        """Read a function.

        Args:
            function: The function.
            local_names: Names that its annotations may use besides those of its module.
            what: What it is, for messages: "function `add`".

        Raises:
            FunctionInvalid: A parameter or a type has no JSON form.
            NameError: An annotation names something that is not defined yet.
        """
        self.name = function_name(function)
        self._what = what
        self._bound = _free_signature(function)
        doc = doc_of(function)
        self.summary = " ".join(doc.partition("\n\n")[0].split())
        try:
            hints = typing.get_type_hints(underlying(function), localns=dict(local_names), include_extras=True)
        except (TypeError, SyntaxError) as error:
            raise FunctionInvalid(f"{what}: its annotations cannot be read: {error}") from error
        described = _parameter_descriptions(doc)
        self.parameters = {
            name: self._parameter(parameter, hints.get(name, Any), described.get(name))
            for name, parameter in self._bound.parameters.items()
        }
        self.returns: Any = hints.get("return", _MISSING)
        kinds = {one.kind for one in self._bound.parameters.values()}
        self._positional = None if inspect.Parameter.KEYWORD_ONLY in kinds else tuple(self._bound.parameters)
        """The names of the parameters, if all of them can be passed by position."""

    def _parameter(self, parameter: inspect.Parameter, annotation: Any, description: str | None) -> Parameter:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise FunctionInvalid(
                f"{self._what}: `*{parameter.name}` takes any number of arguments",
                hint="Declare each argument, or a list or dict of them.",
            )
        kind = json_type(annotation, f"{self._what}, parameter `{parameter.name}`")
        schema = dict(kind.schema)
        if description:
            schema.setdefault("description", description)
        if parameter.default is not _MISSING:
            try:
                schema["default"] = to_json(parameter.default)
            except TypeError as error:
                raise FunctionInvalid(
                    f"{self._what}: the default of `{parameter.name}` has no JSON form: {error}"
                ) from error
        return Parameter(kind, parameter.default is _MISSING, schema)

    def schema(self) -> dict[str, Any]:
        """Return the closed schema of an object with all arguments."""
        required = [name for name, one in self.parameters.items() if one.is_required]
        return _object_schema({name: one.schema for name, one in self.parameters.items()}, required)

    def properties(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the schemas of the parameters, and the definitions that they refer to."""
        return join_schemas({name: one.schema for name, one in self.parameters.items()})

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call as JSON, with defaults.

        Raises:
            ArgumentsInvalid: The arguments do not fit the signature.
            InputInvalid: An argument has no JSON form.
        """
        values = {}
        for name, value in self.by_name(args, kwargs).items():
            try:
                values[name] = value if type(value) in _PLAIN else to_json(value)
            except TypeError as error:
                raise InputInvalid(
                    f"{self._what}: the argument `{name}` has no JSON form: {error}",
                    hint="Pass text, numbers, lists, dicts, dataclasses or models.",
                ) from error
        return values

    def by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, with defaults, in the order of the parameters."""
        names = self._positional
        if names is not None and len(args) == len(names) and not kwargs:  # `inspect` needs ten times as long
            return dict(zip(names, args, strict=True))
        try:
            bound = self._bound.bind(*args, **kwargs)
        except TypeError as error:
            raise arguments_error(self._what, error, kwargs, self._bound.parameters) from error
        bound.apply_defaults()
        return bound.arguments

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the typed arguments of a call from JSON. A parameter that is missing has its default.

        Raises:
            ConversionError: An argument cannot become a value of its type.
        """
        values = {}
        for name, value in arguments.items():
            try:
                values[name] = self.parameters[name].type.decode(value)
            except ConversionError as error:
                raise ConversionError(f"`{name}`{error.path[1:]}: {error}") from error
        return values

    def call(self, function: Callable[..., Any], values: dict[str, Any]) -> Any:
        """Call a function with converted arguments by name, also those that are positional only."""
        positional = [
            values.pop(name)
            for name, one in self._bound.parameters.items()
            if one.kind is inspect.Parameter.POSITIONAL_ONLY and name in values
        ]
        return function(*positional, **values)


class ReturnValue(NamedTuple):
    """The return type of a function, and whether the result of its run holds the value in a field."""

    type: JsonType
    is_wrapped: bool

    @classmethod
    def of(cls, annotation: Any, what: str) -> ReturnValue:
        kind = json_type(annotation, what)
        return cls(kind, not kind.is_object)

    @property
    def schema(self) -> dict[str, Any]:
        """The schema of the result of a run."""
        if not self.is_wrapped:
            return self.type.schema
        return _object_schema({VALUE: self.type.schema}, [VALUE])

    def decode(self, data: Any) -> Any:
        """Return the typed value from the data of a result. Raises `ConversionError`."""
        if not self.is_wrapped:
            return self.type.decode(data)
        try:
            return self.type.decode(data[VALUE])
        except ConversionError as error:
            raise ConversionError(str(error), f"$.{VALUE}{error.path[1:]}") from error
        except (KeyError, TypeError) as error:
            raise ConversionError(f"`{VALUE}` is missing") from error

    def check(self, data: Any) -> tuple[str, str]:
        """Return the path and the message of an error in the data of a result; both are empty if it is valid."""
        try:
            self.decode(data)
        except ConversionError as error:
            return error.path, str(error) or "it is invalid"
        except Exception as error:  # noqa: BLE001 - validators are the user's code
            return "$", f"{type(error).__name__}: {error}"
        return "", ""


def _object_schema(fields: Mapping[str, dict[str, Any]], required: list[str]) -> dict[str, Any]:
    properties, definitions = join_schemas(fields)
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return schema | ({"$defs": definitions} if definitions else {})


def function_name(function: Any) -> str:
    """Return the name of a function; of an object with `__call__`, that of its class in lower case."""
    function = without_partial(function)
    if inspect.isroutine(function):
        return function.__name__
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(function).__name__).lower()


def doc_of(function: Any) -> str:
    """Return the docstring of a function; of an object with `__call__`, that of the method or of its class."""
    function = without_partial(function)
    if inspect.isroutine(function):
        return inspect.getdoc(function) or ""
    return inspect.cleandoc(type(function).__call__.__doc__ or type(function).__doc__ or "")


def _free_signature(function: Any) -> inspect.Signature:
    """Return the parameters that a caller can pass: without those that a partial binds by name."""
    found, bound = inspect.signature(function), set[str]()
    while isinstance(function, partial):
        bound |= function.keywords.keys()
        function = function.func
    return found.replace(parameters=[one for name, one in found.parameters.items() if name not in bound])


_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Return|Raises|Yields|Examples?|Notes?):\s*$")
_ENTRY = re.compile(r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


def _parameter_descriptions(text: str) -> dict[str, str]:
    """Return the descriptions of parameters in the section `Args:` of a docstring in Google style."""
    parameters: dict[str, str] = {}
    name, indent, inside = "", 0, False
    for line in text.splitlines():
        if section := _SECTION.match(line):
            inside, name = section[1] in ("Args", "Arguments", "Parameters"), ""
            continue
        if not inside or not line.strip():
            continue
        if not line[0].isspace():
            inside = False
            continue
        depth = len(line) - len(line.lstrip())
        if (entry := _ENTRY.match(line)) and (not name or depth <= indent):
            name, indent = entry[1], depth
            parameters[name] = entry[2].strip()
        elif name:
            parameters[name] = f"{parameters[name]} {line.strip()}".strip()
    return parameters


# -- what can be decorated ------------------------------------------------------------------------------------


def check_function(function: object, decorator: str) -> None:
    """Check that a decorator is applied to a function.

    Raises:
        FunctionInvalid: It is something else, or a method.
    """
    _check_no_descriptor(function, decorator)
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise FunctionInvalid(f"`@{decorator}` decorates functions, not a {type(function).__name__}")
    _check_no_method(function, decorator)


def check_tool_function(function: object) -> None:
    """Check that a tool is something that can be called and returns one value.

    Raises:
        FunctionInvalid: It is not.
    """
    _check_no_descriptor(function, "tool")
    if isinstance(function, type) or not callable(function):
        raise FunctionInvalid(f"`@tool` decorates functions, not {kind_of_value(function)}")
    inner = underlying(function)
    if inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        raise FunctionInvalid(
            f"`@tool`: `{getattr(inner, '__name__', 'the function')}` is a generator, but a tool returns one value",
            hint="Collect the values and return a list.",
        )
    _check_no_method(function, "tool")


def without_partial(function: Any) -> Any:
    """Return the function of a partial, else the function itself."""
    while isinstance(function, partial):
        function = function.func
    return function


def underlying(function: Any) -> Any:
    """Return the function that has the annotations: of a partial its function, of an object its `__call__`."""
    function = without_partial(function)
    return function if inspect.isroutine(function) else type(function).__call__


def _check_no_descriptor(function: object, decorator: str) -> None:
    if isinstance(function, staticmethod | classmethod):
        kind = type(function).__name__
        raise FunctionInvalid(
            f"`@{decorator}` is applied to a {kind}",
            hint=f"Write `@{kind}` above `@{decorator}`." if kind == "staticmethod" else "Use a function of a module.",
        )


def _check_no_method(function: Callable[..., Any], decorator: str) -> None:
    """Check that a function is not a method in the body of its class, where there is no object to bind it to."""
    name = getattr(function, "__qualname__", "")
    owner = name.rpartition(".")[0]
    if not owner or owner.endswith("<locals>") or inspect.ismethod(function):
        return
    first = next(iter(inspect.signature(function).parameters), "")
    if first in ("self", "cls"):
        raise FunctionInvalid(
            f"`@{decorator}` cannot decorate the method `{name}`: a model cannot pass `{first}`",
            hint="Decorate a function of a module. A tool may be a bound method: `tool(thing.method)`.",
        )


def kind_of_value(value: object) -> str:
    """Return what a value is, for messages."""
    return f"the class `{value.__name__}`" if isinstance(value, type) else f"a {type(value).__name__}"
