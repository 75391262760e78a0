"""`@llm_function`: a Python function that a model executes. Each call is a run of a skill with one phase.

Reyn builds the skill from the signature and the docstring; it never executes the body. It rejects an answer that does
not match the return type and calls the model again. A call returns the typed value, and its run can be read, resumed
and replayed like any other.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from reyn.errors import CallImpossible, CallStopped, FunctionInvalid, ReturnInvalid
from reyn.functions import ambient
from reyn.functions.definition import (
    MAX_SKILLS,
    CallOptions,
    Decorated,
    Decoration,
    Definition,
    enclosing,
)
from reyn.functions.images import has_image, name_images, take_images
from reyn.functions.signatures import ReturnValue, Signature
from reyn.functions.types import ConversionError
from reyn.kernel.world.run_scope import RunScope, current_scope
from reyn.models import Image, Model, ModelFunction
from reyn.runtime import OSRuntime, RunResult, SyncRuntime
from reyn.runtime.sync_form import run_on
from reyn.skills.values import DEFAULT_ACT_TURNS, ArtifactType

if TYPE_CHECKING:
    from reyn.config.models import Effort
    from reyn.journal.kinds import Usage
    from reyn.kernel.world.hooks import Hook
    from reyn.kernel.world.services import Listener
    from reyn.kernel.world.watchers import OnDelta
    from reyn.ops import Op
    from reyn.skills import Skill

P = ParamSpec("P")
R = TypeVar("R")

_logger = logging.getLogger("reyn.functions")
_ARGUMENTS = "arguments"
_ANYTHING = {"description", "default"}
"""The keys of a schema that accepts any value."""


@dataclass(frozen=True)
class CallResult(Generic[R]):
    """The value of a call, and the run that produced it.

    Attributes:
        value: The value, of the function's return type.
        run_id: The id of the run.
        usage: Token counts of the run's model calls.
        warnings: The warnings of the run.
    """

    value: R
    run_id: str
    usage: Usage
    warnings: tuple[str, ...] = ()


class FunctionDefinition(Definition):
    """What a function with `@llm_function` is made of."""

    decorator = "llm_function"
    noun = "function"
    settings: ClassVar[dict[str, Any]] = {"strict": True}

    def __init__(self, function: Callable[..., Any], decoration: Decoration, local_names: Mapping[str, Any]) -> None:
        self.is_async = inspect.iscoroutinefunction(function)
        super().__init__(function, decoration)
        self._local_names = dict(local_names)
        self._skill_of = lru_cache(MAX_SKILLS)(self._build_skill)
        with suppress(NameError):  # an annotation names something that the module defines later
            _ = self._types

    @cached_property
    def _types(self) -> tuple[Signature, ReturnValue]:
        signature = Signature(self.function, self._local_names, self.what)
        if signature.returns is inspect.Parameter.empty:
            raise FunctionInvalid(f"{self.what} has no return type", hint="Annotate it, for example with `-> str`.")
        returns = ReturnValue.of(signature.returns, f"{self.what}, return type")
        self._local_names = {}
        return signature, returns

    def _read(self) -> tuple[Signature, ReturnValue]:
        try:
            return self._types
        except NameError as error:
            raise FunctionInvalid(
                f"{self.what}: an annotation cannot be resolved: {error}", hint="Define the type in the same module."
            ) from error

    @property
    def signature(self) -> Signature:
        return self._read()[0]

    @property
    def returns(self) -> ReturnValue:
        return self._read()[1]

    def skill(self, template_params: Mapping[str, Any]) -> Skill:
        """Return the skill for the values of the template parameters: one phase, from the arguments to the result."""
        return self._skill_of(self.instructions(template_params))

    def _build_skill(self, instructions: str) -> Skill:
        signature, returns = self._read()
        return self.one_phase_skill(
            ArtifactType(_ARGUMENTS, name_images(signature.schema())),
            instructions,
            ArtifactType("result", returns.schema),
            signature.summary,
            final_output_description="Return the result.",
            checks_output=returns.type.needs_check,
        )

    def to_result(self, result: RunResult, runtime: Any) -> CallResult[Any]:
        """Return the typed result of a finished run.

        Raises:
            CallStopped: The run did not finish.
            ReturnInvalid: Its result cannot be converted.
        """
        if result.artifact is None:
            action = runtime.runs.next_action(runtime.runs.find(result.run_id))
            message = f"{self.what}: run `{result.run_id}` is {result.status}: {result.reason}"
            raise CallStopped(
                message, run_id=result.run_id, status=result.status, hint=result.hint or None, action=action
            )
        try:
            value = self.returns.decode(result.artifact["data"])
        except ConversionError as error:
            raise ReturnInvalid(
                f"{self.what}: the result of run `{result.run_id}` does not fit the return type: {error.path}: {error}"
            ) from error
        for warning in result.warnings:
            _logger.warning("%s: %s", self.name, warning)
        return CallResult(value, result.run_id, result.usage, result.warnings)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], list[Image]]:
        """Return the input of a run, and its images, from the arguments of a call.

        Raises:
            ImageInvalid: An image has neither content nor an address.
        """
        signature, images = self.signature, list[Image]()
        data = signature.bind(args, kwargs)
        if self._image_parameters:
            values = signature.by_name(args, kwargs)
            for name, is_typed in self._image_parameters.items():
                if is_typed or has_image(values[name]):
                    data[name] = take_images(data[name], images)
        return {"type": _ARGUMENTS, "data": data}, images

    @cached_property
    def _image_parameters(self) -> dict[str, bool]:
        """The parameters that can have images; true for those whose types have them, false for those of any type."""
        schemas = {name: one.schema for name, one in self.signature.parameters.items()}
        typed = {name: name_images(schema) != schema for name, schema in schemas.items()}
        return {name: typed[name] for name in typed if typed[name] or schemas[name].keys() <= _ANYTHING}


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
    ) -> Self:
        """Return a copy of the function with options for its calls.

        Args:
            run_id: The id of the run. If this run exists, the call continues it, or returns its value.
            template_params: Values of the template parameters in the docstring.
            listener: A callback that receives every event of the run after it is durable.
            on_delta: A callback that receives the pieces of a model's answer as they arrive.
        """
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

    def _execute(
        self, scope: RunScope | None, work: Callable[[OSRuntime], Coroutine[Any, Any, CallResult[R]]]
    ) -> CallResult[R]:
        runtime = self._definition.decoration.runtime
        if runtime is None and scope is not None:
            if ambient.is_loop_running():
                raise CallImpossible(f"{self._definition.what} is a plain function and is called by an async tool")
            return run_on(scope.loop, work(OSRuntime(scope.services)))
        runtime = runtime or ambient.runtime_in_use()
        if isinstance(runtime, OSRuntime):
            raise CallImpossible(f"{self._definition.what} is a plain function; its runtime must be a `SyncRuntime`")
        return ambient.call_on_project(work) if runtime is None else runtime.wait(work(runtime.async_form))


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
    decoration = Decoration(**options)
    names = sys._getframe(1).f_locals  # noqa: SLF001 - annotations may name local classes of the caller

    def decorate(function: Callable[..., Any]) -> Any:
        definition = FunctionDefinition(function, decoration, names)
        return AsyncLLMFunction(definition) if definition.is_async else LLMFunction(definition)

    return decorate if function is None else decorate(function)


__all__ = ["AsyncLLMFunction", "CallResult", "LLMFunction", "llm_function"]
