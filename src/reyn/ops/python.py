"""The op of `python` steps: call a function of the skill's own module, safe in a sandbox or unsafe without.

No phase can allow it and no model can call it. Its arguments come from the step; the source is the run's own copy.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from reyn.errors import SandboxUnavailable
from reyn.ops.op import Call, Env, Plan, Result, approval_of
from reyn.ops.programs import limits_of
from reyn.permissions import Denied, Verdict, python_target, refusal
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.error_names import ANY_ERROR, named_error
from reyn.vocabulary.schemas import BOOLEAN, STRING, arguments, array, integer, path, result, text

if TYPE_CHECKING:
    from reyn.sandbox import PythonResult, StopSignal
    from reyn.sandbox.monty import StepOutput

DEFAULT_SECONDS = 30


def _form(mode: str, summary: str, effect: Any) -> OpForm:
    return OpForm(
        mode,
        summary,
        arguments(
            "python",
            mode,
            {
                "module": path(),
                "function": text(200, min_length=1),
                "artifact": {"type": "object"},
                "clock": integer(0, 2**53),
            },
            {"seconds": integer(1, 86_400, default=DEFAULT_SECONDS), "credentials": array(text(64, min_length=1), 100)},
        ),
        effect,
        result(
            "python",
            mode,
            {"value": {}, "sandbox": STRING, "output": STRING, "truncated": BOOLEAN},
        ),
        {
            "kind": "python",
            "op": mode,
            "module": "./units.py",
            "function": "total",
            "artifact": {"type": "order", "data": {}},
            "clock": 0,
        },
    )


class PythonOp:
    """Runs the function in Monty, in CPython inside the process sandbox, or unconfined."""

    spec = OpSpec(
        "python",
        "Call a function of the skill's own module.",
        "unsafe",
        forms=(
            _form("safe", "Call it in a sandbox, with a fixed clock and seed.", "pure"),
            _form("unsafe", "Call it with the rights of the user who runs Reyn.", "unsafe"),
        ),
        optional_permissions=("python",),
        is_step=False,
        is_offered=False,
        takes_time=True,
        errors=(ANY_ERROR,),
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        verdict = _verdict(call, env)
        if isinstance(verdict, Denied):
            return verdict
        if call.args["module"] not in env.modules:
            return Plan(verdict.rule, result=call.error(f"the run has no copy of `{call.args['module']}`"))
        return Plan(verdict.rule, approval=approval_of(verdict))

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        from reyn.sandbox import PythonFailed, in_thread

        if refused := refusal(_verdict(call, env), approved=plan.approved):
            return call.denied(refused)
        try:
            done = await in_thread(partial(_execute, call, env))
        except PythonFailed as error:
            fail = call.timeout if error.timed_out else call.error
            return fail(f"`{call.args['function']}`: {error.message}", sandbox=error.sandbox, **_output(error.output))
        except SandboxUnavailable as error:
            return call.error(f"{error.code}: {error.message}")
        if named := named_error(done.value):
            name, message = named
            fields = {"error_name": name, "sandbox": done.sandbox, **_output(done.output)}
            return call.error(f"`{call.args['function']}`: {message}", **fields)
        note = {"note": done.note} if done.note else {}
        return call.ok(value=done.value, sandbox=done.sandbox, **_output(done.output), **note)


def _execute(call: Call, env: Env, stop: StopSignal) -> PythonResult:
    from reyn.sandbox import PythonStep, StepEnvironment, run_safe, run_unsafe

    args = call.args
    found = env.attachments.environment = env.environment()
    step = PythonStep(dict(env.modules), args["module"], args["function"], args["artifact"], args["clock"])
    limits = limits_of(env, args.get("seconds", env.python.seconds))
    if call.op == "safe":
        packages = None
        if found is not None:
            packages = StepEnvironment(found.installation.program, found.installation.shown)
        where, private = env.python.sandbox, env.gate.private
        done = run_safe(step, limits, env.sandbox.backend, stop, sandbox=where, private=private, environment=packages)
        if done.sandbox == "monty":  # it has no packages
            env.attachments.environment = None
        return done
    credentials = {name: env.credential(name) for name in args.get("credentials", ())}
    program = (found.installation.program,) if found is not None else ()
    return run_unsafe(step, env.roots.project_text, credentials, limits, stop, *program)


def _verdict(call: Call, env: Env) -> Verdict:
    return env.gate.python(python_target(call.args), is_unsafe=call.op == "unsafe")


def _output(printed: StepOutput) -> dict[str, Any]:
    fields: dict[str, Any] = {"output": printed.text} if printed.text else {}
    return fields | ({"truncated": True} if printed.truncated else {})
