"""The specification of an op and of a permission key, and the table of permission keys."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, Literal

import msgspec

EffectClass = Literal["pure", "idempotent", "reconcilable", "unsafe"]
"""How an op is recovered after a crash between its intent and its outcome: a `pure` or `idempotent` op runs again, a
`reconcilable` one first checks whether it took effect, and an `unsafe` one asks a person."""

_CLAUSE = re.compile(r"[:;,.](?=\s|$)")

EFFECT_ORDER: tuple[EffectClass, ...] = ("pure", "idempotent", "reconcilable", "unsafe")
"""From the least to the most severe."""


def form_name(kind: str, op: str | None) -> str:
    """Return the name of a form of an op, as `must` and `fill` write it: `file.write`, or the kind if it has one."""
    return f"{kind}.{op}" if op else kind


class OpForm(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """One form of an op: its arguments, its result, and its effect class."""

    op: str | None
    """`read`, `write`, …; `None` for a kind with a single form."""
    summary: str
    arguments: dict[str, Any]
    """The closed JSON Schema of the whole op object."""
    effect: EffectClass
    result: dict[str, Any]
    """The JSON Schema of the result, for every status."""
    example: dict[str, Any]
    unsafe_fields: tuple[str, ...] = ()
    """Fields that make an unsafe form unsafe: the op ensures that a call without them has no lasting effect."""

    shown: dict[str, Any] = {}
    """Schemas of arguments as the model sees them, by name, where they differ: those of a foreign tool are bounded."""

    reveals: bool = False
    """Whether the result depends on the file or folder that the call names: such a form needs the verdict to read."""

    def effect_of(self, args: dict[str, Any]) -> EffectClass:
        """Return the effect class of a call with these arguments."""
        if self.unsafe_fields and not any(args.get(name) for name in self.unsafe_fields):
            return "idempotent"
        return self.effect

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        fields = self.arguments["properties"].items()
        return {name: schema["default"] for name, schema in fields if "default" in schema}

    def complete(self, args: dict[str, Any]) -> dict[str, Any]:
        """Return valid arguments with the defaults of those that are missing.

        JSON Schema accepts `3.0` as an integer; it becomes `3`.
        """
        complete = self._defaults | args
        if float not in map(type, complete.values()):
            return complete
        schemas = self.arguments["properties"]
        return {
            name: int(value) if type(value) is float and schemas[name].get("type") == "integer" else value
            for name, value in complete.items()
        }

    @property
    def offered(self) -> dict[str, Any]:
        """The JSON Schema of the whole op object, as the model sees it: without arguments that are only accepted."""
        schema = _with_properties(self.arguments, self.shown) if self.shown else self.arguments
        if not self._hidden:
            return schema
        fields = {name: field for name, field in schema["properties"].items() if name not in self._hidden}
        return schema | {"properties": fields}

    @cached_property
    def _hidden(self) -> frozenset[str]:
        """The arguments of older forms of the op, which JSON Schema calls `deprecated`."""
        fields = self.arguments["properties"].items()
        return frozenset(name for name, field in fields if field.get("deprecated"))

    @property
    def fields(self) -> str:
        """The fields besides `kind` and `op`, as the model sees them: `path, offset?, limit?`."""
        parameters = self.parameters
        needed = parameters["required"]
        return ", ".join(name if name in needed else f"{name}?" for name in parameters["properties"])

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the fields besides `kind` and `op`, as the model sees them."""
        first, *others = self.arguments.get("anyOf", [{"required": []}])
        # Where one of several fields is enough, the model sees only the first.
        hidden = {"kind", "op"}.union(*(other["required"] for other in others))
        properties = {name: schema for name, schema in self.offered["properties"].items() if name not in hidden}
        needed = {*self.arguments["required"], *first["required"]}
        rest = {key: value for key, value in self.arguments.items() if key not in ("anyOf", "properties", "required")}
        return rest | {"properties": properties, "required": [name for name in properties if name in needed]}


class OpTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that an op can act on, such as a skill that it can run.

    Attributes:
        name: The value by which a call names it.
        text: When to choose it.
        arguments: JSON Schemas of further arguments of a call with this target, by name.
        hints: Words by which it is found.
    """

    name: str
    text: str
    arguments: dict[str, Any] = {}
    hints: tuple[str, ...] = ()


class OpSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The specification of an op kind. A run records the specifications that it was offered."""

    kind: str
    """The name; a reserved kind that ends in `*` stands for every name with that prefix."""
    summary: str
    effect: EffectClass
    """The most severe effect of its forms."""
    permission: str | None = None
    """The permission key that a skill must request; `None` if the default zones suffice."""
    forms: tuple[OpForm, ...] = ()
    """Empty for a kind that is reserved for a later version, or stands for others."""
    advice: str = ""
    """Further instructions for the model; for a kind without forms, what to write instead."""
    when_truncated: tuple[OpForm, ...] = ()
    """Forms that are offered in every phase while the frame shows truncated content, so that the model can read it.
    Each takes `path`, `start` and `length`, in characters; the marker of truncated content fills them in."""
    optional_permissions: tuple[str, ...] = ()
    """Permission keys that extend what the op may do."""
    is_step: bool = True
    """Whether a `run_op` step may use it."""
    skill_field: str | None = None
    """The field that names another skill, which is then loaded and pinned with the calling skill."""
    is_offered: bool = True
    """Whether a phase may allow it, so that the model is offered it. Other kinds belong to a step of that name."""
    takes_time: bool = False
    """Whether it may take long: it is then abandoned when the run is cancelled."""
    concurrent: bool = False
    """Whether native tool calls of it may be performed at the same time as others, although it is not `pure`."""
    is_for_conversations: bool = False
    """Whether only phases with `conversation` may use it."""
    has_overview: bool = False
    """Whether the prompt of a conversation lists what the op can act on, such as the skills that it can run."""
    target_field: str | None = None
    """The field that names a target. Where a prompt lists targets, it accepts these and no others."""
    targets_of: str = ""
    """The op kind that lists the targets; empty for the op itself."""
    targets: tuple[OpTarget, ...] = ()
    """The targets that calls can name; empty if they are not limited."""
    gate_field: str | None = None
    """The field that names what the op checks. Its result has `passed`, which is a verdict in the phase's handoff."""
    errors: tuple[str, ...] = ()
    """The names of its errors, besides `timeout`, `denied` and `failed`; `*` if it may name others."""

    @property
    def error_names(self) -> tuple[str, ...]:
        """The names of its errors, by which `nodes` of skill.md handles them."""
        own = (*self.errors, *(("timeout",) if self.takes_time else ()))
        return (*dict.fromkeys(own), "denied", "failed")

    def may_overlap(self, args: dict[str, Any]) -> bool:
        """Return whether a native call with these arguments may be performed at the same time as others."""
        form = self.form(args.get("op")) if self.takes_time else None
        return self.concurrent or (form is not None and form.effect_of(args) == "pure")

    @property
    def is_available(self) -> bool:
        """Whether this version can execute it."""
        return bool(self.forms)

    @property
    def why_unavailable(self) -> str:
        """Why this version cannot execute it; empty if it can."""
        return "" if self.forms else "no op itself" if self.advice else "reserved for a later version"

    def matches(self, kind: str) -> bool:
        """Return whether this is the specification of a kind."""
        return kind.startswith(self.kind[:-1]) if self.kind.endswith("*") else kind == self.kind

    def form(self, op: str | None) -> OpForm | None:
        """Return the form with a name, or the only form of a kind whose calls name none; `None` if there is none."""
        for form in self.forms:
            if form.op is None or form.op == op:
                return form
        return None

    def complete(self, args: dict[str, Any]) -> dict[str, Any]:
        """Return the valid arguments of a call with the defaults of those that are missing."""
        form = self.form(args.get("op"))
        assert form is not None
        return form.complete(args)

    def summary_of(self, form: OpForm) -> str:
        """Return on one line when to choose a form; of several, what distinguishes it: the first clause."""
        text = " ".join((form.summary or self.summary).split())
        return text if len(self.forms) == 1 else _CLAUSE.split(text, maxsplit=1)[0]

    @property
    def schema(self) -> dict[str, Any]:
        """One schema for every op of this kind; a reserved kind accepts nothing."""
        match self.forms:
            case ():
                return {"not": {}}
            case (form,):
                return form.arguments
        return {"anyOf": [form.arguments for form in self.forms]}

    def limited_to(self, targets: tuple[OpTarget, ...]) -> OpSpec:
        """Return the specification of an op whose calls can name these targets only."""
        assert self.target_field is not None
        names = {self.target_field: {"enum": [target.name for target in targets]}}
        forms = tuple(
            msgspec.structs.replace(form, arguments=_with_properties(form.arguments, names)) for form in self.forms
        )
        return msgspec.structs.replace(self, forms=forms, targets=targets)

    def shown_with(self, schemas: dict[str, Any]) -> OpSpec:
        """Return the specification of an op of which the model sees these schemas of arguments."""
        forms = tuple(msgspec.structs.replace(form, shown=schemas) for form in self.forms)
        return msgspec.structs.replace(self, forms=forms)

    @property
    def alternatives(self) -> list[dict[str, Any]]:
        """The schemas of all calls: one for each form, or one for each form and target, if there are not too many."""
        schemas = [form.offered for form in self.forms]
        if self.target_field is None or not 0 < len(self.targets) <= MAX_ALTERNATIVES:
            return schemas
        return [
            _with_properties(schema, {self.target_field: {"const": target.name}} | target.arguments)
            for schema in schemas
            for target in self.targets
        ]

    def offered(self) -> dict[str, Any]:
        """The entry of `available_control_ops`. Every visit pays for these tokens, so it is short."""
        match self.forms:
            case ():
                forms, example = "", {"kind": self.kind}
            case (form,) if form.op is None:
                forms, example = f"Fields: {form.fields}." if form.fields else "", form.example
            case (form, *_):
                forms = "op: " + "; ".join(f"{form.op}({form.fields})" for form in self.forms) + "."
                example = form.example
        description = " ".join(part for part in (self.summary, self.advice, forms) if part)
        return {"kind": self.kind, "description": description, "example": example}


MAX_ALTERNATIVES = 32
"""Maximum number of targets for which a schema describes the calls one by one."""


def _with_properties(schema: dict[str, Any], properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with other schemas for some of its properties, in their order."""
    return schema | {"properties": schema["properties"] | properties}


class PermissionKey(msgspec.Struct, frozen=True):
    """A capability that a skill may request and an operator may grant.

    A request that no rule of the operator covers is denied; `is_asked` means that a person decides about each new
    target instead. `is_open` means that no request and no grant is necessary, because the action gains nothing: the
    operator can deny it, or ask. `binds_arguments` means that a standing approval covers only the arguments that the
    person saw: those of a program decide what it does.
    """

    key: str
    summary: str
    is_asked: bool = False
    is_open: bool = False
    binds_arguments: bool = False


PERMISSIONS = (
    PermissionKey("file.read", "Read files outside the default zone."),
    PermissionKey("file.write", "Write files outside the default zone."),
    PermissionKey("shell", "Run shell commands.", binds_arguments=True),
    PermissionKey("exec", "Run programs in the sandbox.", binds_arguments=True),
    PermissionKey("agent", "Ask other agents, which have rights of their own.", is_asked=True),
    PermissionKey("ask_user", "Ask a person a question.", is_open=True),
    PermissionKey("index_drop", "Remove a search index.", is_asked=True),
    PermissionKey("judge_output", "Let a model score an output.", is_open=True),
    PermissionKey("memory", "Remember in files, beyond a conversation.", is_asked=True),
    PermissionKey("mcp", "Call tools of MCP servers.", is_asked=True),
    PermissionKey("python", "Run the skill's own Python functions."),
    PermissionKey("run_skill", "Run another skill, with the rights of both.", is_open=True),
    PermissionKey("skill.write", "Write skills below `reyn/local/`.", is_asked=True),
    PermissionKey("start_skill", "Start another skill in the background, with the rights of both.", is_open=True),
    PermissionKey("tool", "Use ops that a package or the calling program adds."),
    PermissionKey("web", "Fetch from the web.", is_asked=True),
)


class Vocabulary(msgspec.Struct, frozen=True, dict=True):
    """Every op and permission key that one runtime, or one run, knows."""

    ops: tuple[OpSpec, ...]
    permissions: tuple[PermissionKey, ...] = PERMISSIONS

    @cached_property
    def _by_kind(self) -> dict[str, OpSpec]:
        return {spec.kind: spec for spec in reversed(self.ops)}

    @cached_property
    def _forms(self) -> dict[tuple[str, str | None], OpForm]:
        """The form of each call, by the values of `kind` and `op`."""
        return {(spec.kind, form.op): form for spec in reversed(self.ops) for form in spec.forms}

    def op(self, kind: str) -> OpSpec | None:
        """Return the specification of an op kind, or `None` if it is unknown."""
        if (spec := self._by_kind.get(kind)) is not None:
            return spec
        return next((spec for spec in self.ops if spec.matches(kind)), None)

    @cached_property
    def gates(self) -> dict[str, str]:
        """The op kinds that check something, each with the field that names what it checks."""
        return {spec.kind: spec.gate_field for spec in self.ops if spec.gate_field is not None}

    @property
    def truncation_reader(self) -> OpForm | None:
        """The form that reads truncated content, or `None` if no op does."""
        forms = (form for spec in self.ops for form in spec.when_truncated)
        return next(forms, None)

    def is_reserved(self, kind: str) -> bool:
        """Return whether an op kind is known but cannot be executed by this version."""
        spec = self.op(kind)
        return spec is not None and not spec.is_available

    def is_offered(self, kind: str) -> bool:
        """Return whether a phase may allow an op kind."""
        spec = self.op(kind)
        return spec is None or spec.is_offered

    def form_of(self, args: dict[str, Any]) -> OpForm | None:
        """Return the form that an op's arguments belong to, or `None`."""
        kind, op = str(args.get("kind")), args.get("op")
        form = self._forms.get((kind, op)) if isinstance(op, str) else None
        return form or self._forms.get((kind, None))

    def name_of(self, args: dict[str, Any]) -> str:
        """Return the name of the form that an op's arguments belong to, such as `file.write`."""
        form = self.form_of(args)
        return form_name(str(args.get("kind")), form.op if form is not None else None)

    def forms_of(self, name: str) -> dict[str, OpForm]:
        """Return the forms that a name stands for, by their names: `file` is every form of the kind, `file.write` one.

        A name that is unknown, or reserved for a later version, stands for none.
        """
        if (spec := self._by_kind.get(name)) is not None:
            return {form_name(name, form.op): form for form in spec.forms}
        kind, _, op = name.rpartition(".")
        return {name: self._forms[kind, op]} if (kind, op) in self._forms else {}

    @property
    def op_kinds(self) -> frozenset[str]:
        return frozenset(spec.kind for spec in self.ops)

    @property
    def permission_keys(self) -> frozenset[str]:
        return frozenset(entry.key for entry in self.permissions)
