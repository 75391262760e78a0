"""The tables themselves."""

from __future__ import annotations

from typing import Any

import msgspec

from reyn.vocabulary.file_forms import FILE_FORMS
from reyn.vocabulary.forms import Effect, OpForm
from reyn.vocabulary.kernel_forms import ASK_USER_FORM, RUN_SKILL_FORM


class OpSpec(msgspec.Struct, frozen=True):
    """A kind of op: how a crash between its intent and its outcome is dealt with, what it needs and looks like."""

    kind: str
    summary: str
    effect: Effect
    """The worst of its forms' effects."""
    permission: str | None = None
    """The permission key a skill must request; `None` where the default zones suffice."""
    forms: tuple[OpForm, ...] = ()
    """Empty for a kind that is declared but not performed yet."""
    advice: str = ""
    """What a model must know beside the forms."""

    @property
    def is_performed(self) -> bool:
        return bool(self.forms)

    def form(self, op: str | None) -> OpForm | None:
        return next((form for form in self.forms if form.op == op), None)

    @property
    def schema(self) -> dict[str, Any]:
        """One schema for any op of this kind; nothing fits a kind that is not performed."""
        match self.forms:
            case ():
                return {"not": {}}
            case (form,):
                return form.arguments
        return {"anyOf": [form.arguments for form in self.forms]}

    def offered(self) -> dict[str, Any]:
        """What a model is shown of it. Every visit pays for these words: few of them."""
        match self.forms:
            case ():
                forms, example = "", {"kind": self.kind}
            case (form,) if form.op is None:
                forms, example = f"Fields: {form.fields}.", form.shape
            case (form, *_):
                forms = "op: " + "; ".join(f"{form.op}({form.fields})" for form in self.forms) + "."
                example = form.shape
        description = " ".join(part for part in (self.summary, self.advice, forms) if part)
        return {"kind": self.kind, "description": description, "example": example}


class StepSpec(msgspec.Struct, frozen=True):
    """A kind of deterministic step before the model or after the finish."""

    kind: str
    summary: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return self.required + self.optional


class PermissionKey(msgspec.Struct, frozen=True):
    """A capability that a skill may request and an operator may grant."""

    key: str
    summary: str


class Vocabulary(msgspec.Struct, frozen=True):
    """All the words one runtime knows."""

    ops: tuple[OpSpec, ...]
    steps: tuple[StepSpec, ...]
    permissions: tuple[PermissionKey, ...]

    def op(self, kind: str) -> OpSpec | None:
        return next((spec for spec in self.ops if spec.kind == kind), None)

    def form_of(self, args: dict[str, Any]) -> OpForm | None:
        """The form of an op that a model or an author wrote."""
        spec = self.op(str(args.get("kind")))
        return spec.form(args.get("op")) or spec.form(None) if spec else None

    @property
    def op_kinds(self) -> frozenset[str]:
        return frozenset(spec.kind for spec in self.ops)

    @property
    def step_kinds(self) -> frozenset[str]:
        return frozenset(spec.kind for spec in self.steps)

    @property
    def permission_keys(self) -> frozenset[str]:
        return frozenset(entry.key for entry in self.permissions)

    def with_ops(self, *specs: OpSpec) -> Vocabulary:
        """A copy that knows more; a kind that is already known is an error."""
        twice = {spec.kind for spec in specs} & self.op_kinds
        if twice:
            raise ValueError(f"op kinds already known: {sorted(twice)}")
        return msgspec.structs.replace(self, ops=self.ops + specs)


STANDARD = Vocabulary(
    ops=(
        OpSpec(
            "file",
            "Read, write, edit, delete, find and search files.",
            "reconcilable",
            forms=FILE_FORMS,
            advice="Paths are relative to the project; workspace:<path> is your own. Write to reyn/ or workspace:.",
        ),
        OpSpec("ask_user", ASK_USER_FORM.summary, "idempotent", forms=(ASK_USER_FORM,)),
        OpSpec("run_skill", RUN_SKILL_FORM.summary, "idempotent", forms=(RUN_SKILL_FORM,)),
        OpSpec("lint", "Check a skill's folder and return the findings.", "pure"),
        OpSpec("skill_resolve", "Find where a skill of a given name lives.", "pure"),
        OpSpec("sandboxed_exec", "Run a program inside the sandbox.", "unsafe", "exec"),
        OpSpec("shell", "Run a shell command.", "unsafe", "shell"),
        OpSpec("web_fetch", "Fetch a page and return its text.", "idempotent", "web"),
        OpSpec("judge_output", "Score a text against a rubric with a model.", "idempotent"),
    ),
    steps=(
        StepSpec("run_skill", "Run another skill.", ("skill",), ("input", "into", "on_error")),
        StepSpec("run_op", "Perform one op.", ("op",), ("args_from", "into", "on_error")),
        StepSpec("iterate", "Perform a step for every item of a list.", ("over", "apply"), ("into", "on_error")),
        StepSpec("validate", "Check a value against a schema.", ("schema",), ("target", "into", "on_error")),
        StepSpec("lint_plan", "Check the structure of a plan.", (), ("over", "into", "on_error")),
        StepSpec(
            "python",
            "Call a function of the skill's own module.",
            ("module", "function"),
            ("mode", "output_schema", "into", "on_error"),
        ),
    ),
    permissions=(
        PermissionKey("file.read", "Read files outside the default zone."),
        PermissionKey("file.write", "Write files outside the default zone."),
        PermissionKey("shell", "Run shell commands."),
        PermissionKey("exec", "Run programs in the sandbox."),
        PermissionKey("mcp", "Call tools of MCP servers."),
        PermissionKey("python", "Run the skill's own Python functions."),
        PermissionKey("tool", "Call tools that the runtime was given."),
        PermissionKey("web", "Fetch from the web."),
    ),
)
