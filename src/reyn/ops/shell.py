"""The op `shell`: run a shell command with the rights of the user who runs Reyn.

It is not a sandbox. It needs the operator's switch, the skill's request and a grant.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from reyn.ops.op import Plan
from reyn.ops.sandbox_limits import limits_of
from reyn.permissions import Denied, refusal
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, integer, result, text

if TYPE_CHECKING:
    from reyn.ops.op import Call, Env, Result
    from reyn.sandbox import Outcome, Stop

_FORM = OpForm(
    None,
    "Run a shell command in the project's folder.",
    arguments("shell", None, {"cmd": text(8_000, min_length=1)}, {"timeout": integer(1, 3_600, default=120)}),
    "unsafe",
    result(
        "shell",
        None,
        {
            "returncode": {"type": "integer"},
            "stdout": {"type": "string"},
            "stderr": {"type": "string"},
            "truncated": {"type": "boolean"},
        },
    ),
    {"kind": "shell", "cmd": "git status --short"},
)

_SIMPLE = re.compile(r"[\w .,:/@%+=~-]*", re.ASCII)
"""A command that is only one program with its arguments. Everything else could contain a second command."""


class ShellOp:
    """Runs `/bin/sh -c`, bounded in time and output; its descendants end with it."""

    spec = OpSpec("shell", _FORM.summary, "unsafe", "shell", forms=(_FORM,), takes_time=True)

    def target(self, call: Call) -> str:
        """Return the command; one with shell syntax begins with `sh -c`, so that no rule for a program covers it."""
        command = str(call.args["cmd"])
        return command if _SIMPLE.fullmatch(command) else f"sh -c {command}"

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        verdict = env.gate.capability("shell", self.target(call))
        return verdict if isinstance(verdict, Denied) else Plan(verdict.rule)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        from reyn.sandbox import in_thread

        if refused := refusal(env.gate.capability("shell", self.target(call)), approved=plan.approved):
            return call.denied(refused)
        return program_result(call, await in_thread(partial(_execute, call, env)))


def _execute(call: Call, env: Env, stop: Stop) -> Outcome:
    from reyn.sandbox import run_unconfined

    limits = limits_of(env, call.args.get("timeout", _FORM.defaults["timeout"]))
    return run_unconfined(("/bin/sh", "-c", call.args["cmd"]), env.roots.project_text, limits, stop=stop)


def program_result(call: Call, outcome: Outcome, **fields: Any) -> Result:
    """Return the result of a program that has ended."""
    fields |= {
        "returncode": outcome.returncode,
        "stdout": outcome.stdout.decode("utf-8", "replace"),
        "stderr": outcome.stderr.decode("utf-8", "replace"),
        "truncated": outcome.truncated,
    }
    match outcome.status:
        case "timeout":
            return call.timeout(f"the program was ended: {outcome.reason}", **fields)
        case "killed":
            return call.error(f"the program was ended: {outcome.reason}", **fields)
    if outcome.returncode == 0:
        return call.ok(**fields)
    code = outcome.returncode
    how = f"the program ended with exit code {code}" if code > 0 else "the program was killed by a signal"
    return call.error(how, **fields)
