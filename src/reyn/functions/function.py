"""`@llm_function`: a Python function that a model executes. Each call is a run of a skill with one phase.

Reyn builds the skill from the signature and the docstring; it never executes the body. It rejects an answer that does
not match the return type and calls the model again. A call returns the typed value, and its run can be read, resumed
and replayed like any other.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Never, ParamSpec, Protocol, Self, TypeVar, overload

from reyn.errors import CallImpossible
from reyn.functions import ambient
from reyn.functions.definition import (
    CallOptions,
    Decorated,
    Decoration,
    enclosing,
)
from reyn.functions.function_calls import CallResult, FunctionDefinition
from reyn.functions.option_names import check_option_names
from reyn.functions.partials import Partial, PartialReader, PartialStream, in_turn, partials
from reyn.kernel.world.run_scope import RunScope, current_scope
from reyn.models import Image, Model, ModelFunction
from reyn.runtime import OSRuntime, SyncRuntime
from reyn.runtime.sync_form import run_on
from reyn.skills.values import DEFAULT_ACT_TURNS

if TYPE_CHECKING:
    from reyn.config.models import Effort
    from reyn.kernel.world.hooks import Hook
    from reyn.kernel.world.services import Listener
    from reyn.kernel.world.watchers import OnDelta
    from reyn.ops import Op
    from reyn.skills import Skill

P = ParamSpec("P")
R = TypeVar("R")
DECORATION = tuple(one.name for one in fields(Decoration))
CALL_OPTIONS = tuple(one.name for one in fields(CallOptions))

_Arguments = tuple[dict[str, Any], list[Image]]
"""The input of a run, and its images."""
_Execute = Callable[[Callable[[OSRuntime], Coroutine[Any, Any, Any]]], Any]
"""Executes work on a runtime, and returns its result."""


class _Function(Decorated):
    """What plain and async functions share."""

    def __init__(self, definition: FunctionDefinition, options: CallOptions | None = None) -> None:
        super().__init__(definition)
        self._definition = definition
        self._options = options or CallOptions()

    @property
    def skill(self) -> Skill:
        """The skill that a call runs."""
        return self._definition.skill(dict(self._options.template_params))

    @property
    def definition(self) -> FunctionDefinition:
        """What the function is made of."""
        return self._definition

    def options(
        self,
        *,
        run_id: str | None = None,
        template_params: Mapping[str, Any] | None = None,
        listener: Listener | None = None,
        on_delta: OnDelta | None = None,
        **unknown: Never,
    ) -> Self:
        """Return a copy of the function with options for its calls.

        Args:
            run_id: The id of the run. If this run exists, the call continues it, or returns its value.
            template_params: Values of the template parameters in the docstring.
            listener: A callback that receives every event of the run after it is durable.
            on_delta: A callback that receives the pieces of a model's answer as they arrive.
        """
        check_option_names(unknown, CALL_OPTIONS, f"`options` of {self._definition.what}")
        options = {"run_id": run_id, "listener": listener, "on_delta": on_delta, "template_params": template_params}
        return type(self)(self._definition, self._options.changed(self._definition.what, **options))

    async def _call(
        self, runtime: OSRuntime, scope: RunScope | None, data: dict[str, Any], images: Sequence[Image]
    ) -> CallResult[Any]:
        """Execute a call on a runtime of the running event loop."""
        definition, options = self._definition, self._options
        skill = self.skill
        view = definition.view(runtime)
        result = await view.run(
            skill,
            data,
            run_id=options.run_id,
            listener=options.listener,
            on_delta=options.on_delta,
            check=definition.returns.check if skill.checks_output else None,
            within=enclosing(scope, view, options.run_id),
            images=images,
        )
        return definition.to_result(result, view)

    async def _partials(
        self, scope: RunScope | None, open_runtime: Callable[[], Awaitable[OSRuntime]], arguments: _Arguments
    ) -> AsyncGenerator[Partial[Any]]:
        """Execute a call; yield its partial values, then its result."""
        definition, options, runtime = self._definition, self._options, await open_runtime()

        def call(listener: Listener, on_delta: OnDelta) -> Coroutine[Any, Any, CallResult[Any]]:
            heard = replace(
                options,
                listener=in_turn(listener, options.listener),
                on_delta=in_turn(on_delta, options.on_delta),
            )
            return type(self)(definition, heard)._call(runtime, scope, *arguments)  # noqa: SLF001 - of this class

        async with aclosing(partials(partial(PartialReader, definition.returns), call)) as values:
            async for value in values:
                yield value

    async def _resume(self, runtime: OSRuntime, run_id: str, settings: dict[str, Any]) -> CallResult[Any]:
        definition, options = self._definition, self._options
        view = definition.view(runtime)
        check = definition.returns.check
        result = await view.resume(
            run_id, listener=options.listener, on_delta=options.on_delta, check=check, **settings
        )
        return definition.to_result(result, view)


class AsyncLLMFunction(_Function, Generic[P, R]):
    """An `async` function that a model executes: `value = await function(…)`."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the typed value of a call.

        Raises:
            CallStopped: The run of the call did not finish.
        """
        result: CallResult[R] = await self.run(*args, **kwargs)
        return result.value

    async def run(self, *args: P.args, **kwargs: P.kwargs) -> CallResult[R]:
        """Return the value of a call with its run id, usage and warnings."""
        arguments, scope = self._definition.arguments(args, kwargs), current_scope()
        return await self._call(await self._definition.async_runtime(scope), scope, *arguments)

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> PartialStream[R]:
        """Call the function; return a stream of its value while it arrives. The last one is the validated value.

            async for partial in function.stream(…):
                print(partial.value)

        The call begins with the first step of the loop. Leaving the loop early cancels it: `options(run_id=…)` with the
        id of its run continues it.

        Raises:
            CallStopped: The run of the call did not finish.
        """
        arguments, scope = self._definition.arguments(args, kwargs), current_scope()
        return PartialStream(self._partials(scope, lambda: self._definition.async_runtime(scope), arguments))

    async def resume(
        self, run_id: str, *, retry: bool = False, raise_limits: Mapping[str, int | None] | None = None
    ) -> CallResult[R]:
        """Continue a run of this function that was interrupted or stopped; return the result of one that finished."""
        runtime = await self._definition.async_runtime(current_scope())
        return await self._resume(runtime, run_id, {"retry": retry, "raise_limits": raise_limits})


class LLMFunction(_Function, Generic[P, R]):
    """A plain function that a model executes: `value = function(…)`. It can be called inside a running event loop."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the typed value of a call.

        Raises:
            CallStopped: The run of the call did not finish.
        """
        result: CallResult[R] = self.run(*args, **kwargs)
        return result.value

    def run(self, *args: P.args, **kwargs: P.kwargs) -> CallResult[R]:
        """Return the value of a call with its run id, usage and warnings."""
        arguments, scope = self._definition.arguments(args, kwargs), current_scope()
        return self._execute(scope, lambda runtime: self._call(runtime, scope, *arguments))

    def resume(
        self, run_id: str, *, retry: bool = False, raise_limits: Mapping[str, int | None] | None = None
    ) -> CallResult[R]:
        """Continue a run of this function that was interrupted or stopped; return the result of one that finished."""
        settings = {"retry": retry, "raise_limits": raise_limits}
        return self._execute(current_scope(), lambda runtime: self._resume(runtime, run_id, settings))

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[Partial[R]]:
        """Call the function; yield its value while it arrives. The last one is the validated value.

            for partial in function.stream(…):
                print(partial.value)

        The call begins with the first step of the loop. Leaving the loop early cancels it: `options(run_id=…)` with the
        id of its run continues it.

        Raises:
            CallStopped: The run of the call did not finish.
        """
        arguments, scope = self._definition.arguments(args, kwargs), current_scope()
        return self._steps(scope, self._executor(scope), arguments)

    def _steps(self, scope: RunScope | None, execute: _Execute, arguments: _Arguments) -> Iterator[Partial[R]]:
        stream: PartialStream[R] | None = None

        async def step(runtime: OSRuntime) -> Partial[R] | None:
            nonlocal stream
            if stream is None:
                stream = PartialStream(self._partials(scope, lambda: _done(runtime), arguments))
            return await anext(stream, None)

        try:
            while (value := execute(step)) is not None:
                yield value
        finally:
            if stream is not None:
                closing = stream.aclose
                execute(lambda _: closing())

    def _execute(
        self, scope: RunScope | None, work: Callable[[OSRuntime], Coroutine[Any, Any, CallResult[R]]]
    ) -> CallResult[R]:
        result: CallResult[R] = self._executor(scope)(work)
        return result

    def _executor(self, scope: RunScope | None) -> _Execute:
        """Return what executes work on the runtime of a call, on its event loop."""
        runtime = self._definition.decoration.runtime
        if runtime is None and scope is not None:
            if ambient.is_loop_running():
                raise CallImpossible(f"{self._definition.what} is a plain function and is called by an async tool")
            loop, own = scope.loop, OSRuntime(scope.services)
            return lambda work: run_on(loop, work(own))
        found = runtime or ambient.runtime_in_use()
        if isinstance(found, OSRuntime):
            raise CallImpossible(f"{self._definition.what} is a plain function; its runtime must be a `SyncRuntime`")
        if found is None:
            return ambient.call_on_project
        used = found
        return lambda work: used.wait(work(used.async_form))


async def _done(runtime: OSRuntime) -> OSRuntime:
    return runtime


class _FunctionDecorator(Protocol):
    """`@llm_function(…)` with arguments."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # the first signature that fits is taken
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> AsyncLLMFunction[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> LLMFunction[P, R]: ...


@overload
def llm_function(  # type: ignore[overload-overlap]  # the first signature that fits is taken
    function: Callable[P, Coroutine[Any, Any, R]], /
) -> AsyncLLMFunction[P, R]: ...


@overload
def llm_function(function: Callable[P, R], /) -> LLMFunction[P, R]: ...


@overload
def llm_function(
    *,
    llm_interface: Model | ModelFunction | str | None = None,
    toolkit: Sequence[Op] = (),
    runtime: OSRuntime | SyncRuntime | None = None,
    template_params: Mapping[str, Any] | Sequence[str] | None = None,
    max_act_turns: int = DEFAULT_ACT_TURNS,
    max_retries: int | None = None,
    hooks: Sequence[Hook] = (),
    include_must_principles: bool = False,
    effort: Effort | None = None,
) -> _FunctionDecorator: ...


def llm_function(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Let a model execute a Python function. The body of the function is never executed.

    The arguments of a call are the input of a run, the docstring contains the instructions, and the return type defines
    the valid answers. Use the decorator with or without arguments:

        @llm_function
        def title(text: str) -> str:
            \"\"\"Give the text a title of at most five words.\"\"\"
            raise NotImplementedError

    Args:
        function: The function, if the decorator is used without arguments.
        llm_interface: A model, a function that takes the request and returns the answer, or the name of a model;
            default: the `model` of the project.
        toolkit: Tools that the model may call. The function needs no further permission for them, but the operator's
            rules can still deny a tool or ask.
        runtime: The runtime that executes and records calls: a `SyncRuntime` for a plain function, an `OSRuntime` for
            an `async` function. Default: the project of the current folder.
        template_params: Names of parameters that the docstring contains as `{name}`, or a mapping of names to default
            values. Without this argument, braces in the docstring are plain text.
        max_act_turns: Maximum number of turns in which the model calls tools.
        max_retries: Maximum number of retries after rejected answers; default: `max_phase_retries` of the project.
        hooks: Functions that Reyn calls before each model call; they return mutations of the transcript.
        include_must_principles: Whether to add the rule that tools are called through the tool call interface only.
            Set it for models that write tool calls as text.
        effort: How much the model thinks before it answers: `none`, `low`, `medium`, `high` or a number of tokens;
            default: the `effort` of the model's settings.

    Returns:
        A function with the same parameters that returns the typed value (an `LLMFunction` or `AsyncLLMFunction`).

    Raises:
        FunctionInvalid: The signature, a type or the docstring cannot be converted to a skill.
        TemplateInvalid: The docstring does not contain a declared template parameter.
    """
    check_option_names(options, DECORATION, "`@llm_function`")
    decoration = Decoration(**options)
    names = sys._getframe(1).f_locals  # noqa: SLF001 - annotations may name local classes of the caller

    def decorate(function: Callable[..., Any]) -> Any:
        definition = FunctionDefinition(function, decoration, names)
        return AsyncLLMFunction(definition) if definition.is_async else LLMFunction(definition)

    return decorate if function is None else decorate(function)


__all__ = ["AsyncLLMFunction", "LLMFunction", "llm_function"]
