"""`@tool`: a Python function as an op, with arguments and result from its type hints.

A tool is an op object like any other: the gate decides about it, the journal records it, and its effect class decides
how it is recovered. A tool never ends a run: what it raises, or returns that is not of its type, is an error result.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextvars
import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, get_args, overload

import msgspec

from reyn.errors import FunctionInvalid, OpInvalid
from reyn.functions.concurrency import Slots, run_in_thread
from reyn.functions.options import (
    check_choice,
    check_count,
    check_seconds,
    check_text,
    check_texts,
    check_tool_function,
)
from reyn.functions.signatures import Signature, doc_of, name_of, underlying
from reyn.functions.types import ConversionError, JsonType, json_type, to_json
from reyn.journal import check_json
from reyn.jsonschema import compile_schema
from reyn.jsonschema.examples import example_of
from reyn.models.protocol import Image
from reyn.ops import Call, Env, OpForm, OpSpec, Plan, Result
from reyn.ops.table import check_op
from reyn.vocabulary import PERMISSIONS, Effect
from reyn.vocabulary.schemas import arguments, result

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_TIMEOUT = 60.0
_RESERVED = ("kind", "op")
_IMAGES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "media_type": {"type": "string"},
            "bytes": {"type": "integer"},
            "content": {"type": "string"},
            "url": {"type": "string"},
        },
    },
}


class ToolCallInfo(msgspec.Struct, frozen=True):
    """The call that a tool is executing. `key` is unique among all runs and the same if the call is repeated."""

    tool: str
    key: str


_current: contextvars.ContextVar[ToolCallInfo] = contextvars.ContextVar("reyn_tool_call")


def current_call() -> ToolCallInfo:
    """Return the call that the current tool is executing; its key can serve as an idempotency key.

    Raises:
        LookupError: No tool is being executed here.
    """
    return _current.get()


class Tool(Generic[P, R]):
    """A Python function as an op. Calling it calls the function."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        effect: Effect = "unsafe",
        permission: str | None = "tool",
        timeout: float | None = DEFAULT_TIMEOUT,
        max_concurrency: int | None = None,
        example: Mapping[str, Any] | None = None,
        best_practices: str | Sequence[str] = (),
        local_names: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a tool; see `tool`."""
        check_tool_function(function)
        self.function = function
        own_name = name_of(function)
        check_text(name, "name", f"tool `{own_name}`")
        self.name = name or own_name
        self.timeout = timeout
        self.is_async = inspect.iscoroutinefunction(underlying(function))
        self.__doc__ = doc_of(function)
        self.__name__ = self.name
        self.__wrapped__ = function
        what = f"tool `{self.name}`"
        check_text(description, "description", what)
        check_seconds(timeout, "timeout", what)
        check_count(max_concurrency, "max_concurrency", 1, what)
        check_choice(effect, "effect", get_args(Effect), what)
        if permission is not None:
            check_choice(permission, "permission", [entry.key for entry in PERMISSIONS], what)
        if example is not None and not isinstance(example, Mapping):
            raise FunctionInvalid(f"{what}: `example` is {example!r:.100}; use the arguments of a call by name")
        self.best_practices = check_texts(best_practices, "best_practices", what)
        self._slots = Slots(max_concurrency) if max_concurrency else None
        try:
            self._signature = Signature(function, local_names or {}, what)
        except NameError as error:
            raise FunctionInvalid(f"{what}: {error}", hint="Define the type before the tool.") from error
        self._returns = self._return_type(what)
        self._validator = compile_schema(self._returns.schema)
        self.spec = self._spec(description, effect, permission, dict(example or {}), what)
        try:
            check_op(self)
        except OpInvalid as error:
            raise FunctionInvalid(f"{what}: {error.message}", hint="Pass another name with `name=`.") from error

    def _return_type(self, what: str) -> JsonType:
        annotation = self._signature.returns
        if annotation is inspect.Parameter.empty or _mentions_image(annotation):
            annotation = Any
        return json_type(annotation, f"{what}, return type")

    def _spec(
        self, description: str | None, effect: Effect, permission: str | None, example: dict[str, Any], what: str
    ) -> OpSpec:
        if reserved := [name for name in _RESERVED if name in self._signature.parameters]:
            raise FunctionInvalid(f"{what}: the parameter name `{reserved[0]}` is reserved", hint="Rename it.")
        summary = description or self._signature.doc.summary
        if not summary:
            raise FunctionInvalid(
                f"{what} has no description", hint="Write a docstring; the model decides by it when to use the tool."
            )
        properties, definitions = self._signature.properties()
        required = {name: properties[name] for name, one in self._signature.parameters.items() if one.is_required}
        optional = {name: part for name, part in properties.items() if name not in required}
        schema = arguments(self.name, None, required, optional)
        if definitions:
            # References are resolved within the tool's own schema, also where that is part of another one.
            schema |= {"$id": f"urn:reyn:tool:{self.name}", "$defs": definitions}
        complete = {"kind": self.name, **example} if example else example_of(schema)
        if complete is None or compile_schema(schema).first_error(complete) is not None:
            raise FunctionInvalid(
                f"{what}: its example is invalid" if example else f"{what}: no example fits its types",
                hint="Pass the arguments of a valid call with `example={…}`; the model sees them.",
            )
        form = OpForm(
            op=None,
            summary=summary,
            arguments=schema,
            effect=effect,
            result=self._result_schema(),
            example=complete,
        )
        return OpSpec(self.name, summary, effect, permission, forms=(form,), advice=self._advice())

    def _result_schema(self) -> dict[str, Any]:
        definitions = self._returns.schema.get("$defs")
        fields = {"result": {key: part for key, part in self._returns.schema.items() if key != "$defs"}}
        schema = result(self.name, None, fields | ({"images": _IMAGES} if self._may_return_images else {}))
        return schema | ({"$defs": definitions} if definitions else {})

    @property
    def _may_return_images(self) -> bool:
        returns = self._signature.returns
        return returns in (inspect.Parameter.empty, Any) or _mentions_image(returns)

    def _advice(self) -> str:
        """Return the descriptions of the parameters, which the short entry of a prompt would otherwise lack."""
        texts = {
            name: part["description"] for name, part in self._signature.properties()[0].items() if "description" in part
        }
        return "; ".join(f"{name}: {' '.join(text.split()).rstrip('.')}" for name, text in texts.items()) + (
            "." if texts else ""
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, without a run."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    # -- the op ---------------------------------------------------------------------------------------

    def plan(self, call: Call, env: Env) -> Plan:
        """Name the rule that allows the tool. What it will do is not known before."""
        permission = self.spec.permission
        if permission is None:
            return Plan("default: the tool needs no permission")
        return Plan(env.gate.capability(permission, call.kind).rule)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        """Call the function with typed arguments; return its result, or an error that the model sees."""
        arguments = {name: value for name, value in call.args.items() if name not in _RESERVED}
        try:
            values = self._signature.convert(arguments)
        except ConversionError as error:
            return call.error(f"invalid arguments: {error}")
        token = _current.set(ToolCallInfo(self.name, call.key))
        try:
            async with asyncio.timeout(self.timeout) as limit:
                value = await self._execute(values)
        except TimeoutError:
            if not limit.expired():
                raise  # of the tool itself
            return call.timeout(f"the tool did not return within {self.timeout:g} seconds")
        finally:
            _current.reset(token)
        return self._result(call, value, env)

    async def _execute(self, values: dict[str, Any]) -> Any:
        slots = self._slots
        if slots is not None:
            await slots.acquire()
        release = slots.release if slots is not None else _nothing
        if not self.is_async:
            # A function that is abandoned at its timeout still runs, so its slot is free only when it returns.
            return await run_in_thread(lambda: self._signature.call(self.function, values), release)
        try:
            return await self._signature.call(self.function, values)
        finally:
            release()

    def _result(self, call: Call, value: Any, env: Env) -> Result:
        value, images = _split_images(value) if self._may_return_images else (value, [])
        try:
            described = [self._attach(image, env) for image in images]
        except ValueError as error:
            return call.error(f"the tool returned an invalid image: {error}")
        try:
            data = to_json(value)
            check_json(data)
        except (TypeError, ValueError) as error:
            return call.error(f"the tool returned a value without a JSON form: {error}")
        wrong = self._validator.first_error(data) if not images else None
        if wrong is not None:
            return call.error(
                f"the tool returned a value of another type than it declares: {wrong.path('result')}: {wrong.message}"
            )
        fields: dict[str, Any] = {} if data is None and images else {"result": data}
        return call.ok(**fields, images=described) if described else call.ok(**fields)

    def _attach(self, image: Image, env: Env) -> dict[str, Any]:
        if image.url and not image.data:
            return {"url": image.url}
        try:
            content = base64.b64decode(image.data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"its data is not base64: {error}") from error
        if not content:
            raise ValueError("it has neither data nor a URL")
        hashed = env.attachments.add(content)
        return {"media_type": image.media_type or "image/png", "bytes": len(content), "content": hashed}


def _nothing() -> None:
    return None


def _mentions_image(annotation: Any) -> bool:
    return annotation is Image or any(_mentions_image(part) for part in get_args(annotation))


def _split_images(value: Any) -> tuple[Any, list[Image]]:
    """Return the value without its images, and the images: an image, a list of them, or text and images in a tuple."""
    if isinstance(value, Image):
        return None, [value]
    if not isinstance(value, list | tuple) or not any(isinstance(item, Image) for item in value):
        if isinstance(value, tuple) and any(
            isinstance(item, list) and item and isinstance(item[0], Image) for item in value
        ):
            value = [part for item in value for part in (item if isinstance(item, list) else [item])]
        else:
            return value, []
    images = [item for item in value if isinstance(item, Image)]
    rest = [item for item in value if not isinstance(item, Image)]
    return (rest[0] if len(rest) == 1 else rest or None), images


class _Decorator:
    """`@tool(…)` with arguments."""

    def __init__(self, options: dict[str, Any], local_names: Mapping[str, Any]) -> None:
        self._options = options
        self._local_names = local_names

    def __call__(self, function: Callable[P, R]) -> Tool[P, R]:
        return Tool(function, **self._options, local_names=self._local_names)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "unsafe",
    permission: str | None = "tool",
    timeout: float | None = DEFAULT_TIMEOUT,
    max_concurrency: int | None = None,
    example: Mapping[str, Any] | None = None,
    best_practices: str | Sequence[str] = (),
) -> _Decorator: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "unsafe",
    permission: str | None = "tool",
    timeout: float | None = DEFAULT_TIMEOUT,
    max_concurrency: int | None = None,
    example: Mapping[str, Any] | None = None,
    best_practices: str | Sequence[str] = (),
) -> Any:
    """Let models call a Python function, plain or `async`, as a tool.

    Reyn converts the arguments to the types of the signature. A plain function runs in a separate thread. A tool can
    return text, JSON values and images. `tool(…)` also accepts a bound method, a `functools.partial` or an object with
    `__call__`.

    Args:
        function: The function, if the decorator is used without arguments.
        name: The op kind; default: the name of the function.
        description: A description for the model; default: the first paragraph of the docstring.
        effect: The effect class. After a crash during a call, `pure` and `idempotent` tools are called again; for an
            `unsafe` tool, Reyn asks a person.
        permission: The permission that a skill must request and the operator must grant; `None` for none.
        timeout: The maximum number of seconds of a call; `None` for no limit.
        max_concurrency: The maximum number of concurrent calls in this process; `None` for no limit.
        example: The arguments of a valid call, for the prompt; by default generated from the types.
        best_practices: Advice on the use of the tool, added to the docstring of every function that has it.

    Raises:
        FunctionInvalid: The function cannot be a tool.
    """
    options = {
        "name": name,
        "description": description,
        "effect": effect,
        "permission": permission,
        "timeout": timeout,
        "max_concurrency": max_concurrency,
        "example": example,
        "best_practices": best_practices,
    }
    names = sys._getframe(1).f_locals  # noqa: SLF001 - annotations may name local classes of the caller
    decorator = _Decorator(options, names)
    return decorator if function is None else decorator(function)


__all__ = ["Tool", "ToolCallInfo", "current_call", "tool"]
