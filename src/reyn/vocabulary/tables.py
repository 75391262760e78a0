"""The step kinds and permission keys of the language."""

from __future__ import annotations

from reyn.vocabulary.specs import PermissionKey, StepSpec

STEPS = (
    StepSpec("run_skill", "Run another skill.", ("skill",), ("input", "into", "on_error")),
    StepSpec("run_op", "Execute one op.", ("op",), ("args_from", "into", "on_error")),
    StepSpec(
        "iterate", "Apply a step to every item of a list.", ("over", "apply"), ("concurrency", "into", "on_error")
    ),
    StepSpec("validate", "Validate a value against a schema.", ("schema",), ("target", "into", "on_error")),
    StepSpec("lint_plan", "Check the structure of a plan.", (), ("over", "into", "on_error")),
    StepSpec(
        "python",
        "Call a function of the skill's own module.",
        ("module", "function"),
        ("mode", "output_schema", "into", "on_error"),
    ),
    StepSpec(
        "ask_user",
        "Ask a person and bind the reply.",
        ("question",),
        ("suggestions", "required", "schema", "show", "into", "on_error"),
    ),
)

PERMISSIONS = (
    PermissionKey("file.read", "Read files outside the default zone."),
    PermissionKey("file.write", "Write files outside the default zone."),
    PermissionKey("shell", "Run shell commands.", binds_arguments=True),
    PermissionKey("exec", "Run programs in the sandbox.", binds_arguments=True),
    PermissionKey("agent", "Ask other agents, which have rights of their own.", is_granted=True),
    PermissionKey("memory", "Remember in files, beyond a conversation.", is_granted=True),
    PermissionKey("mcp", "Call tools of MCP servers.", is_asked=True),
    PermissionKey("python", "Run the skill's own Python functions."),
    PermissionKey("skill.write", "Write skills below `reyn/local/`.", is_asked=True),
    PermissionKey("tool", "Use ops that a package or the calling program adds."),
    PermissionKey("web", "Fetch from the web.", is_asked=True),
)
