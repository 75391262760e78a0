"""The common part of `@llm_function` and `@llm_chat`: the definition of a decorated function, and its runtime.

A definition is checked when the decorator is applied. `reyn.functions.function` and `reyn.functions.chat` build the
skill of a call and convert its result.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from reyn.errors import CallImpossible, FunctionInvalid, HookFailed
from reyn.functions import ambient
from reyn.functions.options import (
    check_callback,
    check_count,
    check_flag,
    check_function,
    check_model,
    check_params,
    check_run_id,
    check_toolkit,
    check_values,
)
from reyn.functions.skill import Template, instructions_of, permission_requests, skill_name
from reyn.kernel.world.hooks import check_hooks
from reyn.runtime import SyncRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reyn.kernel.world.hooks import Hook
    from reyn.kernel.world.live import Listener, OnDelta
    from reyn.kernel.world.sub_runs import RunScope
    from reyn.models import Model
    from reyn.ops import Op
    from reyn.runtime import OSRuntime

DEFAULT_ACT_TURNS = 10
_MAX_VIEWS = 8


@dataclass(frozen=True)
class Decoration:
    """The arguments of a decorator; see `llm_function` and `llm_chat`."""

    llm_interface: Model | str | None = None
    toolkit: Sequence[Op] = ()
    runtime: OSRuntime | SyncRuntime | None = None
    template_params: Mapping[str, Any] | Sequence[str] | None = None
    max_act_turns: int = DEFAULT_ACT_TURNS
    max_retries: int | None = None
    hooks: Sequence[Hook] = ()
    include_must_principles: bool = False


@dataclass(frozen=True)
class CallOptions:
    """The options of calls that all decorated functions have; see `LLMFunction.options`."""

    run_id: str | None = None
    template_params: tuple[tuple[str, Any], ...] = ()
    listener: Listener | None = None
    on_delta: OnDelta | None = None

    def changed(self, what: str, template_params: object = None, **changes: Any) -> Any:
        """Return the options with those that are not `None` replaced.

        Raises:
            CallImpossible: An option is of another type.
        """
        check_run_id(changes.get("run_id"), what)
        check_callback(changes.get("listener"), "listener", what)
        check_callback(changes.get("on_delta"), "on_delta", what)
        params = dict(self.template_params) | check_values(template_params, what)
        named = {name: value for name, value in changes.items() if value is not None}
        return replace(self, template_params=tuple(params.items()), **named)


class Definition:
    """What a decorated function is made of, shared by all of its calls."""

    decorator: ClassVar[str]
    noun: ClassVar[str]
    settings: ClassVar[dict[str, Any]] = {}
    """Settings of the runtime that its calls need."""

    def __init__(self, function: Callable[..., Any], decoration: Decoration) -> None:
        """Check a function and the arguments of its decorator.

        Raises:
            FunctionInvalid: The function cannot become a skill, or an argument is of another type.
            TemplateInvalid: The docstring does not use a declared template parameter.
        """
        check_function(function, self.decorator)
        self.function = function
        self.name = function.__name__
        self.what = f"{self.noun} `{self.name}`"
        self.skill_name = skill_name(self.name)
        text = inspect.getdoc(function) or ""
        if not text.strip():
            raise FunctionInvalid(f"{self.what} has no docstring", hint="Write the instructions for the model in it.")
        params = decoration.template_params
        check_params(params, self.what)
        params = (params,) if isinstance(params, str) else params
        check_count(decoration.max_act_turns, "max_act_turns", 0, self.what)
        check_count(decoration.max_retries, "max_retries", 0, self.what)
        check_model(decoration.llm_interface, self.what)
        check_flag(decoration.include_must_principles, "include_must_principles", self.what)
        try:
            check_hooks(decoration.hooks)
        except HookFailed as error:
            raise FunctionInvalid(f"{self.what}: {error.message}", hint=error.own_hint) from error
        self.template = Template(text, params, self.what)
        self.decoration = replace(decoration, toolkit=check_toolkit(decoration.toolkit, self.what))
        self._views: list[tuple[Any, Any]] = []

    def instructions(self, values: Mapping[str, Any], system: str | None = None) -> str:
        """Return the instructions of a call: the docstring with its parameters, then what the tools advise.

        Args:
            values: The values of the template parameters.
            system: A text that takes the place of the docstring.
        """
        if not values and system is None:
            return self._own_instructions
        return self._compiled(values, system)

    @cached_property
    def _own_instructions(self) -> str:
        return self._compiled({}, None)

    def _compiled(self, values: Mapping[str, Any], system: str | None) -> str:
        decoration = self.decoration
        config = self.template.config(values, decoration.toolkit, principles=decoration.include_must_principles)
        if system is not None:
            config = msgspec.structs.replace(config, base_system_prompt=system, template_params=None)
        return instructions_of(config)

    @cached_property
    def place(self) -> str:
        """The function as `module:name`, under which another program would import it."""
        return f"{_module_name(self.function)}:{self.function.__qualname__}"

    # -- runtimes -------------------------------------------------------------------------------------

    def view(self, runtime: Any) -> Any:
        """Return the runtime with the function's tools, model and settings; `OSRuntime` or `SyncRuntime` alike."""
        for base, view in self._views:
            if base is runtime:
                return view
        view = self.derive(runtime, self.decoration.llm_interface)
        self._views = [*self._views, (runtime, view)][-_MAX_VIEWS:]
        return view

    def derive(self, runtime: Any, model: Model | str | None) -> Any:
        """Return a runtime with the function's tools and settings that calls a model."""
        decoration = self.decoration
        # The program passes these tools on purpose. A rule of the operator that denies them, or asks, still wins.
        grants = {
            permission: [{"allow": kind, "skill": self.skill_name} for kind in kinds]
            for permission, kinds in permission_requests(decoration.toolkit).items()
        }
        settings = dict(self.settings)
        if decoration.max_retries is not None:
            settings["max_phase_retries"] = decoration.max_retries
        return runtime.derive(
            ops=decoration.toolkit, model=model, permissions=grants, hooks=decoration.hooks, **settings
        )

    async def async_runtime(self, scope: RunScope | None) -> OSRuntime:
        """Return the runtime of an `async` call: the decorator's, the calling op's, the one in use, or the project's.

        Raises:
            CallImpossible: It is a `SyncRuntime`.
        """
        runtime = self.decoration.runtime
        if runtime is None:
            runtime = scope.owner if scope is not None else ambient.runtime_in_use()
        if isinstance(runtime, SyncRuntime):
            raise CallImpossible(f"{self.what} is `async`; its runtime must be an `OSRuntime`")
        return runtime if runtime is not None else await ambient.project_runtime()


class Decorated:
    """A decorated function: it looks like the function that it replaces."""

    def __init__(self, definition: Definition) -> None:
        function = definition.function
        self.__name__ = definition.name
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__qualname__ = function.__qualname__
        self.__wrapped__ = function
        self._decorator = definition.decorator

    def __repr__(self) -> str:
        return f"<{self._decorator} {self.__module__}:{self.__qualname__}>"


def enclosing(scope: RunScope | None, runtime: OSRuntime, run_id: str | None) -> RunScope | None:
    """Return the op whose code makes a call, if the call is a sub-run: same journal, no id of its own."""
    return scope if scope is not None and run_id is None and scope.owner.journal is runtime.journal else None


def _module_name(function: Callable[..., Any]) -> str:
    """Return the module of a function; for `__main__`, the name under which other modules import it."""
    name: str = getattr(function, "__module__", None) or ""
    if name != "__main__":
        return name
    main = sys.modules[name]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return str(spec.name) if spec is not None else Path(file).stem if file else name
