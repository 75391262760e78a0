"""The common part of `@llm_function` and `@llm_chat`: the definition of a decorated function, and its runtime.

A definition is checked when the decorator is applied. The docstring is the instruction; with `template_params`,
`{name}` in it stands for a parameter, and every other brace is text. `reyn.functions.function` and
`reyn.functions.chat` build the skill of a call and convert its result.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import msgspec

from reyn.config.models import EFFORTS, Effort
from reyn.context import CompileSource, DataFromAgentConfig
from reyn.context.compile import compile_source
from reyn.context.copying import copy_nested
from reyn.errors import AdapterInvalid, CallImpossible, FunctionInvalid, HookFailed, TemplateInvalid, surrogate_fault
from reyn.functions import ambient
from reyn.functions.signatures import check_function
from reyn.journal.port import MAX_ROOT_RUN_ID, is_run_id
from reyn.kernel.world.hooks import Hook, check_hooks
from reyn.models.answers import as_model
from reyn.ops import Op
from reyn.runtime import OSRuntime, SyncRuntime
from reyn.runtime.function_tools import register_function
from reyn.skills import Skill
from reyn.skills.names import is_reserved_phase_name, is_valid_name
from reyn.skills.values import DEFAULT_ACT_TURNS, END, ArtifactType, ConversationSettings, Phase

if TYPE_CHECKING:
    from reyn.kernel.world.run_scope import RunScope
    from reyn.kernel.world.services import Listener, Services
    from reyn.kernel.world.watchers import OnDelta
    from reyn.models import Model, ModelFunction

MAX_SKILLS = 64
"""How many skills of one function are cached, one for each text of its instructions."""
_MAX_VIEWS = 8
_MAX_COUNT = 2**53 - 1
"""The largest whole number that every JSON reader reads exactly."""


@dataclass(frozen=True)
class Decoration:
    """The arguments of a decorator; see `llm_function` and `llm_chat`."""

    llm_interface: Model | ModelFunction | str | None = None
    toolkit: Sequence[Op] = ()
    runtime: OSRuntime | SyncRuntime | None = None
    template_params: Mapping[str, Any] | Sequence[str] | None = None
    max_act_turns: int = DEFAULT_ACT_TURNS
    max_retries: int | None = None
    hooks: Sequence[Hook] = ()
    include_must_principles: bool = False
    effort: Effort | None = None


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
        run_id = changes.get("run_id")
        if run_id is not None and not (isinstance(run_id, str) and is_run_id(run_id, MAX_ROOT_RUN_ID)):
            hint = "Use a text of letters, digits, `-`, `_` and `.`, or leave it out."
            raise CallImpossible(f"{what}: `run_id` is {run_id!r:.100}", hint=hint)
        for name in ("listener", "on_delta"):
            if not callable(value := changes.get(name)) and value is not None:
                message = f"{what}: `{name}` is a {type(value).__name__}, not a function"
                raise CallImpossible(message, hint="Pass a function.")
        if template_params is not None and not isinstance(template_params, Mapping):
            hint = "Pass values by name: `{'tone': 'dry'}`."
            raise CallImpossible(f"{what}: `template_params` is {template_params!r:.100}", hint=hint)
        params = dict(self.template_params) | copy_nested(dict(template_params or {}))
        named = {name: value for name, value in changes.items() if value is not None}
        return replace(self, template_params=tuple(params.items()), **named)


@runtime_checkable
class BringsAdvice(Protocol):
    """A tool with advice on its use, which follows the instructions."""

    @property
    def best_practices(self) -> tuple[str, ...]:
        """Return the advice, a sentence each."""
        ...


class Definition:
    """What a decorated function is made of, shared by all of its calls."""

    decorator: ClassVar[str]
    noun: ClassVar[str]
    is_async: bool
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
        self.skill_name = _skill_name(self.name)
        self._text = inspect.getdoc(function) or ""
        if not self._text.strip():
            raise FunctionInvalid(f"{self.what} has no docstring", hint="Write the instructions for the model in it.")
        if fault := surrogate_fault(self._text):
            raise FunctionInvalid(f"{self.what} has a docstring with {fault}")
        wanted, other = (OSRuntime, SyncRuntime) if self.is_async else (SyncRuntime, OSRuntime)
        if decoration.runtime is not None and not isinstance(decoration.runtime, wanted):
            name = (other if isinstance(decoration.runtime, other) else type(decoration.runtime)).__name__
            hint = "Async functions and chats use an `OSRuntime`, plain functions a `SyncRuntime`."
            raise FunctionInvalid(f"{self.what}: `runtime` is a {name}", hint=hint)
        check_count(decoration.max_act_turns, "max_act_turns", 0, self.what)
        check_count(decoration.max_retries, "max_retries", 0, self.what, has_default=True)
        check_model(decoration.llm_interface, self.what)
        check_flag(decoration.include_must_principles, "include_must_principles", self.what)
        check_effort(decoration.effort, self.what)
        try:
            hooks = check_hooks(decoration.hooks)
        except HookFailed as error:
            raise FunctionInvalid(f"{self.what}: {error.message}", hint=error.own_hint) from error
        self._defaults = self._template_defaults(decoration.template_params)
        self.is_template = bool(self._defaults)
        self.decoration = replace(decoration, toolkit=check_toolkit(decoration.toolkit, self.what), hooks=hooks)
        self._views = lru_cache(_MAX_VIEWS)(self._derive_own)
        register_function(self.place, self)

    def _template_defaults(self, params: Any) -> dict[str, Any]:
        """Return the default values of the template parameters, `...` for those without one."""
        params = (params,) if isinstance(params, str) else () if params is None else params
        is_valid = isinstance(params, Mapping | list | tuple | set | frozenset)
        expected = "names, or default values by name"
        check_option(params, "template_params", self.what, is_valid=is_valid, expected=expected)
        for name in params:
            if not isinstance(name, str) or not name.isidentifier():
                raise FunctionInvalid(f"{self.what}: `template_params` has {name!r:.100}, which is not a name")
            if f"{{{name}}}" not in self._text:
                raise TemplateInvalid(f"{self.what}: its docstring does not contain `{{{name}}}`")
        return copy_nested(dict(params)) if isinstance(params, Mapping) else dict.fromkeys(params, ...)

    def instructions(self, values: Mapping[str, Any], system: str | None = None) -> str:
        """Return the instructions of a call: the docstring with its parameters.

        Args:
            values: The values of the template parameters.
            system: A text that takes the place of the docstring.

        Raises:
            TemplateInvalid: A value is missing, or has no parameter.
        """
        return self._compile(values, system) if values or system is not None else self._default_instructions

    @cached_property
    def _default_instructions(self) -> str:
        return self._compile({}, None)

    def _compile(self, values: Mapping[str, Any], system: str | None) -> str:
        params = self._defaults | dict(values)
        if unknown := sorted(params.keys() - self._defaults.keys()):
            declared = ", ".join(f"`{name}`" for name in self._defaults) or "none"
            raise TemplateInvalid(f"{self.what} has no template parameter `{unknown[0]}`; declared: {declared}")
        if missing := [name for name, value in params.items() if value is ...]:
            raise TemplateInvalid(f"{self.what}: the template parameter `{missing[0]}` has no value")
        texts = {name: str(value) for name, value in params.items()}
        for name, text in texts.items():
            if fault := surrogate_fault(text):
                raise TemplateInvalid(f"{self.what}: the value of `{name}` has {fault}", hint="Pass valid Unicode.")
        text, filled = (self._text, texts) if system is None else (system, None)
        return _prompt(DataFromAgentConfig(text, filled))

    @cached_property
    def advice(self) -> str:
        """The advice of the tools, and the rule about the tool call interface."""
        decoration = self.decoration
        specs = tuple(
            {"name": op.spec.kind, "best_practices": op.best_practices}
            for op in decoration.toolkit
            if isinstance(op, BringsAdvice) and op.best_practices
        )
        text = _prompt(DataFromAgentConfig("", None, specs, decoration.include_must_principles))
        return f"\n{text}" if text else ""

    def one_phase_skill(
        self,
        arguments: ArtifactType,
        instructions: str,
        output: ArtifactType,
        description: str,
        *,
        more_ops: tuple[str, ...] = (),
        conversation: ConversationSettings | None = None,
        is_endless: bool = False,
        **fields: Any,
    ) -> Skill:
        """Return a skill with one phase, which may use the tools. Each run stores its own copy of the skill.

        Args:
            arguments: The input.
            instructions: The instructions of the phase.
            output: The output.
            description: The description of the skill.
            more_ops: Kinds of ops that the phase may use besides the tools.
            conversation: The settings of a phase that is a conversation.
            is_endless: Whether the phase follows itself, instead of the end.
            **fields: Further fields of the skill.
        """
        name, decoration = self.skill_name, self.decoration
        ops = (*(op.spec.kind for op in decoration.toolkit), *more_ops)
        phase = Phase(
            name,
            (arguments,),
            instructions,
            can_finish=not is_endless,
            allowed_ops=ops,
            max_act_turns=decoration.max_act_turns if ops else 0,
            conversation=conversation,
            advice=self.advice,
            effort=decoration.effort,
        )
        permissions = _permission_requests(decoration.toolkit)
        fields |= {"description": description, "permissions": permissions, "function": self.place}
        return Skill(name, name, {name: phase}, {name: (name if is_endless else END,)}, output, **fields)

    @cached_property
    def place(self) -> str:
        """The function as `module:name`, under which another program would import it."""
        return f"{_module_name(self.function)}:{self.function.__qualname__}"

    # -- runtimes -------------------------------------------------------------------------------------

    def view(self, runtime: OSRuntime) -> OSRuntime:
        """Return a runtime with the function's tools, settings and model."""
        return self._views(runtime.services)

    def equip(self, services: Services) -> Services:
        """Return services with the function's tools, settings and model."""
        return self._views(services).services

    def _derive_own(self, services: Services) -> OSRuntime:
        derived: OSRuntime = self.derive(OSRuntime(services), self.decoration.llm_interface)
        return derived

    def derive(self, runtime: Any, model: Model | ModelFunction | str | None) -> Any:
        """Return a runtime with the function's tools and settings that calls a model."""
        decoration = self.decoration
        # The program passes these tools on purpose. A rule of the operator that denies them, or asks, still wins.
        grants = {
            permission: [{"allow": kind, "skill": self.skill_name} for kind in kinds]
            for permission, kinds in _permission_requests(decoration.toolkit).items()
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
            runtime = OSRuntime(scope.services) if scope is not None else ambient.runtime_in_use()
        if isinstance(runtime, SyncRuntime):
            raise CallImpossible(f"{self.what} is `async`; its runtime must be an `OSRuntime`")
        return runtime if runtime is not None else await ambient.project_runtime()


def _prompt(config: DataFromAgentConfig) -> str:
    prompt = compile_source(CompileSource(config)).system_prompt
    assert isinstance(prompt, str)
    return prompt


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
    return (
        scope if scope is not None and run_id is None and scope.services.journal is runtime.services.journal else None
    )


def _permission_requests(toolkit: Sequence[Op]) -> dict[str, list[str]]:
    """Return the permissions that tools need, with the kinds of the tools."""
    requests: dict[str, list[str]] = {}
    for op in toolkit:
        if op.spec.permission:
            requests.setdefault(op.spec.permission, []).append(op.spec.kind)
    return requests


def _skill_name(name: str) -> str:
    """Return the name of the skill of a function."""
    base = name.strip("_")
    if is_reserved_phase_name(base) or not is_valid_name(base):
        base = f"{base}_function"
    if not is_valid_name(base):
        raise FunctionInvalid(f"no skill can have the name of the function `{name}`", hint="Rename the function.")
    return base


def _module_name(function: Callable[..., Any]) -> str:
    """Return the module of a function; for `__main__`, the name under which other modules import it."""
    name: str = getattr(function, "__module__", None) or ""
    if name != "__main__":
        return name
    main = sys.modules[name]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return str(spec.name) if spec is not None else Path(file).stem if file else name


# -- arguments of decorators ----------------------------------------------------------------------------------


def is_text(value: object) -> bool:
    """Return whether a value is a text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def check_toolkit(toolkit: object, what: str) -> tuple[Op, ...]:
    """Return the tools of a function.

    Raises:
        FunctionInvalid: The toolkit is no list, has something that is no tool, or two tools of one name.
    """
    if not isinstance(toolkit, list | tuple | set | frozenset):
        message = f"{what}: `toolkit` is a {type(toolkit).__name__}, not a list of tools"
        raise FunctionInvalid(message, hint="Pass `toolkit=[…]`.")
    names: set[str] = set()
    for op in toolkit:
        if not isinstance(op, Op):
            message = f"{what}: `toolkit` has a {type(op).__name__}, which is no tool"
            raise FunctionInvalid(message, hint="Decorate it with `@tool`.")
        if op.spec.kind in names:
            raise FunctionInvalid(f"{what}: `toolkit` has two tools with the name `{op.spec.kind}`")
        names.add(op.spec.kind)
    return tuple(toolkit)


def check_model(model: object, what: str) -> None:
    """Check a model that is passed from Python: an object, a function, or the name of a configured model.

    Raises:
        FunctionInvalid: It is neither.
    """
    if model is None or is_text(model):
        return
    if isinstance(model, str):
        raise FunctionInvalid(f"{what}: `llm_interface` is {model!r}; name a model, for example `openai:gpt-4.1-mini`")
    try:
        as_model(model)
    except AdapterInvalid as error:
        what_it_is = error.message.replace("the model is", "`llm_interface` is", 1)
        raise FunctionInvalid(f"{what}: {what_it_is}", hint=error.own_hint) from error


def check_option(value: object, name: str, what: str, *, is_valid: bool, expected: str) -> None:
    """Check an argument of a decorator.

    Raises:
        FunctionInvalid: It is not valid; the message names the expected values.
    """
    if not is_valid:
        raise FunctionInvalid(f"{what}: `{name}` is {value!r:.100}; use {expected}")


def check_count(value: object, name: str, least: int, what: str, *, has_default: bool = False) -> None:
    """Check an option that is a whole number; `has_default` tells whether `None` stands for a default."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MAX_COUNT
    expected = f"a whole number of at least {least}, and at most {_MAX_COUNT}"
    check_option(value, name, what, is_valid=is_count or (value is None and has_default), expected=expected)


def check_effort(value: object, what: str) -> None:
    """Check how much the model is to think; `None` leaves it to the settings of the model."""
    try:
        msgspec.convert(value, Effort | None)
        is_valid = True
    except msgspec.ValidationError:
        is_valid = False
    check_option(value, "effort", what, is_valid=is_valid, expected=EFFORTS)


def check_flag(value: object, name: str, what: str) -> None:
    """Check an option that is true or false."""
    check_option(value, name, what, is_valid=isinstance(value, bool), expected="True or False")
