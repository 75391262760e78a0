"""The ops `sandboxed_exec` and `shell`: run a program in the process sandbox, or with the user's own rights.

In `sandboxed_exec`, the model requests paths, network and time; the gate and the configuration decide. A call without
`write_paths` and `network` has no lasting effect, so it is repeated after a crash; for other calls, a person decides.
`shell` is not a sandbox. It needs the operator's switch, the skill's request and a grant.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import ReynError, SandboxUnavailable
from reyn.ops.budget import OpFailed
from reyn.ops.op import Call, Env, Plan, Result, approval_of
from reyn.ops.program_view import program_view
from reyn.permissions import SYSTEM_CALLS, Allowed, AnyTarget, Denied, Verdict, is_program_path, refusal
from reyn.vocabulary.schemas import BOOLEAN, INTEGER, STRING, array, boolean, integer, path, single_form, text
from reyn.workspace import Location, locate
from reyn.workspace.files import open_base
from reyn.workspace.observation import Observation
from reyn.workspace.paths import WORKSPACE

if TYPE_CHECKING:
    from reyn.packages import PackageEnvironment
    from reyn.sandbox import Access, Outcome, ProgramLimits, StopSignal

_ENDED = {"returncode": INTEGER, "stdout": STRING, "stderr": STRING, "truncated": BOOLEAN}
"""The result of a program."""


def limits_of(env: Env, seconds: float) -> ProgramLimits:
    """Return the limits for a program that may take so many seconds, if the operator allows as many."""
    from reyn.sandbox import ProgramLimits

    most = env.sandbox
    return ProgramLimits(
        min(seconds, most.seconds), most.memory_bytes, most.output_bytes, most.processes, most.file_bytes
    )


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


class ShellOp:
    """Runs `/bin/sh -c`, bounded in time and output; its descendants end with it."""

    spec = single_form(
        "shell",
        "Run a shell command in the project's folder.",
        "unsafe",
        {"cmd": text(8_000, min_length=1)},
        {"timeout": integer(1, 3_600, default=120)},
        results=_ENDED,
        example={"cmd": "git status --short"},
        permission="shell",
        takes_time=True,
    )

    def target(self, call: Call) -> str:
        """Return the command; one with shell syntax begins with `sh -c`, so that no rule for a program covers it."""
        command = str(call.args["cmd"])
        return command if _SIMPLE.fullmatch(command) else f"sh -c {command}"

    def plan(self, call: Call, env: Env) -> Plan:
        return Plan()

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        from reyn.sandbox import in_thread

        return program_result(call, await in_thread(partial(_execute_shell, call, env)))


def _execute_shell(call: Call, env: Env, stop: StopSignal) -> Outcome:
    from reyn.sandbox import run_unconfined

    limits = limits_of(env, ShellOp.spec.complete(call.args)["timeout"])
    return run_unconfined(("/bin/sh", "-c", call.args["cmd"]), env.roots.project_text, limits, stop=stop)


_SIMPLE = re.compile(r"[\w .,:/@%+=~-]*", re.ASCII)
"""A command that is only one program with its arguments. Everything else could contain a second command."""


class SandboxedExecOp:
    """Runs a program with access to exactly the files and the network that the gate grants."""

    spec = single_form(
        "sandboxed_exec",
        "Run a program without the network, with the files that `read_paths` names.",
        "unsafe",
        {"argv": {"type": "array", "items": text(8_000), "minItems": 1, "maxItems": 200}},
        {
            "read_paths": array(path(), 50),
            "write_paths": array(path(), 20),
            "network": boolean(default=False),
            "allow_subprocess": boolean(default=False),
            "system_calls": array({"enum": ["listen", "memory", "scheduling", "watch"]}, 4),
            "env_passthrough": array(text(64, min_length=1), 20),
            "timeout_seconds": integer(1, 3_600, default=60),
        },
        results={"backend": STRING, **_ENDED},
        example={"argv": ["wc", "-l", "notes.txt"], "read_paths": ["notes.txt"]},
        unsafe_fields=("write_paths", "network"),
        permission="exec",
        advice="`write_paths` are in `workspace:`; `env_passthrough` names credentials.",
        optional_permissions=("web",),
        takes_time=True,
    )

    def target(self, call: Call) -> str:
        """Return the program as it is called."""
        return str(call.args["argv"][0])

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        approvals: list[str] = []
        for verdict in self._verdicts(call, env):
            if isinstance(verdict, Denied):
                return verdict
            if (asked := approval_of(verdict)) and asked not in approvals:
                approvals.append(asked)
        return Plan(approval=" and ".join(approvals) or None)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        import asyncio

        from reyn.packages import installation_of_program
        from reyn.sandbox import choose_backend, in_thread, run_program

        for verdict in self._verdicts(call, env):
            if refused := refusal(verdict, approved=plan.approved):
                return call.denied(refused)
        try:
            backend = choose_backend(env.sandbox.backend)
            access = await asyncio.to_thread(_access, call, env)
            if reason := backend.refusal(access):
                return call.denied(Denied(f"default: the sandbox {backend.name}", reason))
            folders = [locate(text_, env.roots) for text_ in call.args.get("write_paths", ())]
            sizes = {"file_bytes": env.file_bytes, "total_bytes": env.budget.most.recorded}
            observation = await asyncio.to_thread(Observation, folders, env.roots, **sizes)
            limits = limits_of(env, self.spec.complete(call.args)["timeout_seconds"])
            program = _program_file(self.target(call), env)
            if found := await asyncio.to_thread(installation_of_program, program):
                # It starts by the path that its environment has without links.
                program = f"{found.programs}/{os.path.basename(program)}"  # noqa: PTH119 - text in, text out
                access = msgspec.structs.replace(access, read=(*access.read, *found.shown))
            argv = (program, *call.args["argv"][1:])
            outcome = await in_thread(lambda stop: run_program(backend, argv, access, limits, stop=stop))
        except SandboxUnavailable as error:
            return call.error(f"{error.code}: {error.message}")
        env.attachments.observed = await asyncio.to_thread(observation.changes)
        return program_result(call, outcome, backend=backend.name)

    def _verdicts(self, call: Call, env: Env) -> Iterator[Verdict]:
        """Yield the verdicts of the gate on the paths and the network of the program."""
        args = call.args
        for text_ in args.get("read_paths", ()):
            yield env.gate.show(locate(text_, env.roots))
        for text_ in args.get("write_paths", ()):
            yield _write_verdict(locate(text_, env.roots), env)
        if args.get("network"):
            yield env.gate.capability("web", AnyTarget(call.kind))
        for group in args.get("system_calls", ()):
            yield env.gate.capability("exec", f"{SYSTEM_CALLS}{group}")


def _write_verdict(location: Location, env: Env) -> Verdict:
    """Allow writing in the workspace only: a program creates names that the gate could not decide about."""
    if location.zone != "workspace":
        reason = f"a program can write in `workspace:` only, not in `{location.display_path}`"
        return Denied("default: programs write in the workspace", reason)
    return env.gate.write(location) if location.parts else Allowed("default: the run's workspace")


def _access(call: Call, env: Env) -> Access:
    """Return the access of the program. The paths are allowed or approved; what it denies below them is not shown.

    Raises:
        OpFailed: A path does not exist, or a credential is not available.
    """
    from reyn.sandbox import Access

    args = call.args
    try:
        os.close(open_base("workspace", env.roots, create=True))
    except OSError as error:
        raise OpFailed(f"the workspace cannot be created: {error.strerror}") from error
    read = [locate(text_, env.roots) for text_ in args.get("read_paths", ())]
    write = [locate(text_, env.roots) for text_ in args.get("write_paths", ())]
    for location in (*read, *write):
        if location.zone == "recorded" or not os.path.lexists(env.roots.path_of(location)):
            raise OpFailed(f"there is no file or folder `{location.display_path}`")
    found = env.attachments.environment = env.environment()
    view = program_view(read, write, env)
    if found is not None:
        view = view._replace(read=(*view.read, *found.installation.shown))
    return Access(
        **view._asdict(),
        private=env.gate.private,
        network=bool(args.get("network")),
        subprocesses=bool(args.get("allow_subprocess")) and env.sandbox.processes > 1,
        groups=tuple(args.get("system_calls", ())),
        env=_variables(found) | _environment(args.get("env_passthrough", ()), env),
        cwd=_start_folder(read, write, env),
    )


def _start_folder(read: list[Location], write: list[Location], env: Env) -> str:
    """Return the folder where the program starts: that of relative paths, if it sees any of them."""
    if any(location.zone == "project" for location in read):
        return env.roots.bases.project
    return env.roots.bases.workspace if (*read, *write) else "/"


def _program_file(program: str, env: Env) -> str:
    """Return the file of a program that is called by a path: the one that a rule with this path names.

    Raises:
        OpFailed: There is no such file.
    """
    if not is_program_path(program):
        return program
    bases = env.roots.bases
    folder = bases.workspace if program.startswith(WORKSPACE) else bases.project
    file = os.path.join(folder, program.removeprefix(WORKSPACE))  # noqa: PTH118 - text in, text out
    if not os.path.exists(file):  # noqa: PTH110 - text
        raise OpFailed(f"there is no program `{program}`; a path is one of the project, or of `workspace:`")
    return file


def _variables(environment: PackageEnvironment | None) -> dict[str, str]:
    """Return the variables by which programs find those of an environment first, `python3` for example."""
    if environment is None:
        return {}
    from reyn.sandbox.process import search_path

    installation = environment.installation
    return {"PATH": f"{installation.programs}:{search_path()}", "VIRTUAL_ENV": installation.root}


def _environment(names: Any, env: Env) -> dict[str, str]:
    values: dict[str, str] = {}
    for name in names:
        try:
            values[name] = env.credential(name)
        except ReynError as error:
            raise OpFailed(f"the credential `{name}` is not available: {error.message}") from error
    return values
