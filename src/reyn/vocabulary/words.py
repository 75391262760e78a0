"""The tables themselves."""

from __future__ import annotations

from typing import Literal

import msgspec

Effect = Literal["pure", "idempotent", "reconcilable", "unsafe"]


class OpSpec(msgspec.Struct, frozen=True):
    """A kind of op: how a crash between its intent and its outcome is dealt with, and what it needs."""

    kind: str
    summary: str
    effect: Effect
    permission: str | None = None
    """The permission key a skill must request; `None` where the default zones suffice."""


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
        OpSpec("file", "Read, write, edit, delete, find and search files.", "reconcilable"),
        OpSpec("ask_user", "Put a question to a person and wait for the answer.", "idempotent"),
        OpSpec("run_skill", "Run another skill and take its final artifact.", "idempotent"),
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
