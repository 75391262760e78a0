"""Build the skill of a function: one phase whose input is the arguments and whose output is the return value.

The docstring is the instruction. With `template_params`, `{name}` in it stands for a parameter; every other brace is
text. The skill is a value: each run stores its own copy, so it can be read and replayed without the module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from reyn.context import CompileSource, DataFromAgentConfig
from reyn.context.compile import compile_source
from reyn.errors import FunctionInvalid, TemplateInvalid
from reyn.functions.types import ConversionError, json_type
from reyn.skills import Skill
from reyn.skills.names import is_reserved_phase_name, is_valid_name
from reyn.skills.values import END, ArtifactType, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reyn.functions.signatures import Signature
    from reyn.functions.types import JsonType
    from reyn.ops import Op

ARGUMENTS = "arguments"
RESULT = "result"
VALUE = "value"
"""The field of the result that holds a value that is not an object."""
_OUTPUT = "Return the result."


class Template:
    """A docstring with parameters."""

    def __init__(self, text: str, params: Mapping[str, Any] | Sequence[str] | None, what: str) -> None:
        """Read a template.

        Args:
            text: The docstring.
            params: The names of the parameters, or their default values by name; `None` if the text is no template.
            what: The function, for messages.

        Raises:
            TemplateInvalid: The text does not use a declared parameter.
        """
        self._text = text
        self._what = what
        self._names = tuple(params or ())
        self._defaults = dict(params) if params is not None and hasattr(params, "keys") else {}
        for name in self._names:
            if f"{{{name}}}" not in text:
                raise TemplateInvalid(f"{what}: its docstring does not contain `{{{name}}}`")

    def config(self, values: Mapping[str, Any], toolkit: Sequence[Op], *, principles: bool) -> DataFromAgentConfig:
        """Return what the prompt is compiled from: the text, the values of its parameters, the advice of the tools.

        Raises:
            TemplateInvalid: A value is missing, or has no parameter.
        """
        if unknown := sorted(values.keys() - set(self._names)):
            declared = ", ".join(f"`{name}`" for name in self._names) or "none"
            raise TemplateInvalid(f"{self._what} has no template parameter `{unknown[0]}`; declared: {declared}")
        known = self._defaults | dict(values)
        if missing := [name for name in self._names if name not in known]:
            raise TemplateInvalid(f"{self._what}: the template parameter `{missing[0]}` has no value")
        return DataFromAgentConfig(self._text, known, tool_prompt_specs(toolkit), principles)


def tool_prompt_specs(toolkit: Sequence[Op]) -> tuple[dict[str, Any], ...]:
    """Return the advice that tools bring along for the prompt."""
    return tuple(
        {"name": op.spec.kind, "best_practices": op.best_practices}
        for op in toolkit
        if isinstance(op, BringsAdvice) and op.best_practices
    )


@runtime_checkable
class BringsAdvice(Protocol):
    """A tool with advice on its use, which follows the instructions."""

    @property
    def best_practices(self) -> tuple[str, ...]:
        """Return the advice, a sentence each."""
        ...


def instructions_of(config: DataFromAgentConfig) -> str:
    """Return the instructions of a phase as the compile pipeline makes them of the configuration of a function."""
    prompt = compile_source(CompileSource(config)).system_prompt
    assert isinstance(prompt, str)
    return prompt


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
        inner = {key: part for key, part in self.type.schema.items() if key != "$defs"}
        definitions = self.type.schema.get("$defs")
        return {
            "type": "object",
            "properties": {VALUE: inner},
            "required": [VALUE],
            "additionalProperties": False,
            **({"$defs": definitions} if definitions else {}),
        }

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


def skill_name(name: str) -> str:
    """Return the name of the skill of a function.

    Raises:
        FunctionInvalid: No skill can have the name.
    """
    base = name.strip("_")
    if is_reserved_phase_name(base) or not is_valid_name(base):
        base = f"{base}_function"
    if not is_valid_name(base):
        raise FunctionInvalid(f"no skill can have the name of the function `{name}`", hint="Rename the function.")
    return base


def permission_requests(toolkit: Sequence[Op]) -> dict[str, list[str]]:
    """Return the permissions that tools need, with the kinds of the tools."""
    requests: dict[str, list[str]] = {}
    for op in toolkit:
        if op.spec.permission:
            requests.setdefault(op.spec.permission, []).append(op.spec.kind)
    return requests


def build_skill(
    signature: Signature,
    returns: ReturnValue,
    instructions: str,
    toolkit: Sequence[Op],
    *,
    function: str,
    max_act_turns: int,
) -> Skill:
    """Return the skill of a function.

    Args:
        signature: Its parameters.
        returns: Its return value.
        instructions: Its docstring.
        toolkit: The ops that the model may use.
        function: The function, as `module:name`.
        max_act_turns: In how many turns the model may use ops.
    """
    name = skill_name(signature.name)
    phase = Phase(
        name,
        (ArtifactType(ARGUMENTS, signature.schema()),),
        instructions,
        can_finish=True,
        allowed_ops=tuple(op.spec.kind for op in toolkit),
        max_act_turns=max_act_turns if toolkit else 0,
    )
    return Skill(
        name,
        name,
        {name: phase},
        {name: (END,)},
        ArtifactType(RESULT, returns.schema),
        description=signature.doc.summary,
        final_output_description=_OUTPUT,
        permissions=permission_requests(toolkit),
        function=function,
        checks_output=returns.type.needs_check,
    )
