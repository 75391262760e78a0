"""What a function with `@llm_function` is made of: its skill, the input of a call, and the result of its run."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from reyn.errors import CallStopped, FunctionInvalid, ReturnInvalid
from reyn.functions.definition import MAX_SKILLS, Decoration, Definition
from reyn.functions.images import has_image, name_images, take_images
from reyn.functions.signatures import ReturnValue, Signature
from reyn.functions.types import ConversionError
from reyn.models import Image
from reyn.skills.values import ArtifactType

if TYPE_CHECKING:
    from reyn.journal.kinds import Usage
    from reyn.runtime import RunResult
    from reyn.skills import Skill

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
