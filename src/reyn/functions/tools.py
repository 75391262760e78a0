"""`@tool`: a Python function as an op, with arguments and result from its type hints.

A tool is an op object like any other: the gate decides about it, the journal records it, and its effect class decides
how it is recovered. A tool never ends a run: what it raises, or returns that is not of its type, is an error result.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, get_args, overload

import msgspec

from reyn.errors import FunctionInvalid, ImageInvalid, OpInvalid
from reyn.functions.definition import check_count, check_flag, check_option, is_text
from reyn.functions.images import IMAGES, attach_image, mentions_image, split_images
from reyn.functions.option_names import check_option_names
from reyn.functions.signatures import Signature, check_tool_function, doc_of, function_name, underlying
from reyn.functions.types import ConversionError, join_schemas, json_type, to_json
from reyn.journal import check_json
from reyn.jsonschema import compile_schema
from reyn.jsonschema.words import example_of
from reyn.ops import Call, Env, OpForm, OpSpec, Plan, Result
from reyn.ops.budget import EffectUnknown
from reyn.ops.table import check_op
from reyn.vocabulary import PERMISSIONS, EffectClass
from reyn.vocabulary.error_names import ANY_ERROR, is_error_name
from reyn.vocabulary.schemas import arguments, result

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_TIMEOUT = 60.0
_RESERVED = ("kind", "op")
_EFFECTS, _PERMISSIONS = get_args(EffectClass), [entry.key for entry in PERMISSIONS]


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
        effect: EffectClass = "unsafe",
        permission: str | None = "tool",
        timeout: float | None = DEFAULT_TIMEOUT,
        concurrent: bool = False,
        max_concurrency: int | None = None,
        example: Mapping[str, Any] | None = None,
        best_practices: str | Sequence[str] = (),
        errors: Sequence[str] = (),
        local_names: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a tool; see `tool`."""
        check_tool_function(function)
        own_name = function_name(function)
        is_valid = name is None or is_text(name)
        check_option(name, "name", f"tool `{own_name}`", is_valid=is_valid, expected="a text")
        self.name = name or own_name
        what = f"tool `{self.name}`"
        check_flag(concurrent, "concurrent", what)
        check_count(max_concurrency, "max_concurrency", 1, what, has_default=True)
        is_time = isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout > 0
        texts = (best_practices,) if isinstance(best_practices, str) else best_practices
        are_texts = isinstance(texts, list | tuple) and all(is_text(text) for text in texts)
        are_names = isinstance(errors, list | tuple) and all(map(is_error_name, errors))
        options: dict[str, tuple[Any, bool, str]] = {
            "description": (description, description is None or is_text(description), "a text"),
            "timeout": (timeout, timeout is None or is_time, "seconds above 0, or `None` for no limit"),
            "effect": (effect, effect in _EFFECTS, f"one of {', '.join(_EFFECTS)}"),
            "permission": (permission, permission in (None, *_PERMISSIONS), f"one of {', '.join(_PERMISSIONS)}"),
            "example": (example, example is None or isinstance(example, Mapping), "the arguments of a call by name"),
            "best_practices": (best_practices, are_texts, "a text, or a list of texts"),
            "errors": (errors, are_names, "names such as `payment_declined`: lower-case letters, digits and `_`"),
        }
        for option, (value, is_valid, expected) in options.items():
            check_option(value, option, what, is_valid=is_valid, expected=expected)
        self.function = function
        self.timeout = timeout
        self.best_practices = tuple(texts)
        self.is_async = inspect.iscoroutinefunction(underlying(function))
        self.__doc__ = doc_of(function)
        self.__name__ = self.name
        self.__wrapped__ = function
        self._slots = _Slots(max_concurrency or math.inf)
        try:
            self._signature = Signature(function, local_names or {}, what)
        except NameError as error:
            raise FunctionInvalid(f"{what}: {error}", hint="Define the type before the tool.") from error
        returns = self._signature.returns
        self._may_return_images = returns in (inspect.Parameter.empty, Any) or mentions_image(returns)
        self._returns = json_type(Any if self._may_return_images else returns, f"{what}, return type")
        self._validator = compile_schema(self._returns.schema)
        spec = self._spec(description, effect, permission, dict(example or {}), what)
        names = tuple(errors) or (ANY_ERROR,)
        self.spec = msgspec.structs.replace(spec, takes_time=True, concurrent=concurrent, errors=names)
        self._check(what)

    def _check(self, what: str) -> None:
        try:
            check_op(self)
        except OpInvalid as error:
            raise FunctionInvalid(f"{what}: {error.message}", hint="Pass another name with `name=`.") from error

    def _spec(
        self, description: str | None, effect: EffectClass, permission: str | None, example: dict[str, Any], what: str
    ) -> OpSpec:
        if reserved := [name for name in _RESERVED if name in self._signature.parameters]:
            raise FunctionInvalid(f"{what}: the parameter name `{reserved[0]}` is reserved", hint="Rename it.")
        summary = description or self._signature.summary
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
            op=None, summary=summary, arguments=schema, effect=effect, result=self._result_schema(), example=complete
        )
        return OpSpec(self.name, summary, effect, permission, forms=(form,), advice=self._advice())

    def _result_schema(self) -> dict[str, Any]:
        images = {"images": IMAGES} if self._may_return_images else {}
        fields, definitions = join_schemas({"result": self._returns.schema, **images})
        return result(self.name, None, fields) | ({"$defs": definitions} if definitions else {})

    def _advice(self) -> str:
        """Return the descriptions of the parameters, which the short entry of a prompt would otherwise lack."""
        texts = {name: one.schema.get("description", "") for name, one in self._signature.parameters.items()}
        advice = "; ".join(f"{name}: {' '.join(text.split()).rstrip('.')}" for name, text in texts.items() if text)
        return advice and f"{advice}."

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, without a run."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    # -- the op ---------------------------------------------------------------------------------------

    def plan(self, call: Call, env: Env) -> Plan:
        """Return an empty plan. What the tool will do is not known before."""
        return Plan("default: the tool needs no permission" if self.spec.permission is None else "")

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        """Call the function with typed arguments; return its result, or an error that the model sees."""
        arguments = {name: value for name, value in call.args.items() if name not in _RESERVED}
        try:
            values = self._signature.convert(arguments)
        except ConversionError as error:
            return call.error(f"invalid arguments: {error}")
        token = _current.set(ToolCallInfo(self.name, call.key))
        try:
            # Each call before this one returns in time, or is abandoned and keeps its slot.
            async with asyncio.timeout(self.timeout and self.timeout * (1 + self._slots.waiting)) as limit:
                await self._slots.acquire()
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
        release = self._slots.release
        if not self.is_async:
            # A function that is abandoned at its timeout still runs, so its slot is free only when it returns.
            return await _run_in_thread(lambda: self._signature.call(self.function, values), release)
        try:
            return await self._signature.call(self.function, values)
        finally:
            release()

    def _result(self, call: Call, value: Any, env: Env) -> Result:
        value, images = split_images(value) if self._may_return_images else (value, [])
        try:
            described = [attach_image(image, env) for image in images]
        except ImageInvalid as error:
            raise EffectUnknown(f"the tool returned an invalid image: {error.message}") from error
        try:
            data = to_json(value)
            check_json(data)
        except (TypeError, ValueError) as error:
            raise EffectUnknown(f"the tool returned a value without a JSON form: {error}") from error
        wrong = self._validator.first_error(data) if not images else None
        if wrong is not None:
            raise EffectUnknown(
                f"the tool returned a value of another type than it declares: {wrong.path('result')}: {wrong.message}"
            )
        fields: dict[str, Any] = {} if data is None and images else {"result": data}
        return call.ok(**fields, images=described) if described else call.ok(**fields)


class _Slots:
    """A semaphore for all event loops of the process: at most `count` holders at a time, in order of arrival."""

    def __init__(self, count: float) -> None:
        self._free = count
        self._lock = threading.Lock()
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return len(self._waiting)

    async def acquire(self) -> None:
        """Wait for a slot."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            turn: Future[None] = Future()
            self._waiting.append((asyncio.get_running_loop(), turn))
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            if not turn.cancel():  # the slot was passed to this waiter at the same moment
                self.release()
            raise

    def release(self) -> None:
        """Return a slot, from any thread."""
        with self._lock:
            while self._waiting:
                loop, turn = self._waiting.popleft()
                if not loop.is_closed() and turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self._free += 1


async def _run_in_thread(work: Callable[[], Any], on_end: Callable[[], None]) -> Any:
    """Run a plain function in a new thread, with the context variables of the caller.

    The thread is a daemon, so a function that never returns does not delay the end of the event loop or the process.

    Args:
        work: The function.
        on_end: Called in the thread when the function has returned, also if nothing waits for it any more.
    """
    outcome: Future[tuple[Any, BaseException | None]] = Future()
    context = contextvars.copy_context()

    def execute() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = context.run(work)
        except KeyboardInterrupt as raised:
            # Ctrl-C interrupts only the main thread; raised in the event loop, this one would end it.
            error = RuntimeError(f"the tool raised KeyboardInterrupt: {raised}".rstrip(": "))
        except BaseException as raised:  # noqa: BLE001 - raised again in the event loop
            error = raised
        on_end()
        if outcome.set_running_or_notify_cancel():
            # As a value: an exception such as `StopIteration` or `SystemExit` must not be set on a future.
            outcome.set_result((result, error))

    threading.Thread(target=execute, name="reyn-tool", daemon=True).start()
    result, error = await asyncio.wrap_future(outcome)
    if error is not None:
        raise error
    return result


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: EffectClass = "unsafe",
    permission: str | None = "tool",
    timeout: float | None = DEFAULT_TIMEOUT,
    concurrent: bool = False,
    max_concurrency: int | None = None,
    example: Mapping[str, Any] | None = None,
    best_practices: str | Sequence[str] = (),
    errors: Sequence[str] = (),
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
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
        timeout: The maximum number of seconds of a call; `None` for no limit. Waiting for a slot does not count.
        concurrent: Whether native calls of one answer may be performed at the same time as others, although the tool
            is not `pure`. Calls of `pure` tools always may.
        max_concurrency: The maximum number of concurrent calls in this process; `None` for no limit.
        example: The arguments of a valid call, for the prompt; by default generated from the types.
        best_practices: Advice on the use of the tool, added to the docstring of every function that has it.
        errors: The names of its errors, by which nodes of a skill handle them; default: any name.

    Raises:
        FunctionInvalid: The function cannot be a tool.
    """
    check_option_names(options, _OPTIONS, "`@tool`")
    options["local_names"] = sys._getframe(1).f_locals  # noqa: SLF001 - annotations may name classes of the caller
    return partial(Tool, **options) if function is None else Tool(function, **options)


_OPTIONS = tuple(inspect.signature(Tool).parameters)[1:-1]
"""The options of a tool, without the function and the names that annotations may use."""

__all__ = ["Tool", "ToolCallInfo", "current_call", "tool"]
