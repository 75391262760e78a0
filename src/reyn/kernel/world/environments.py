"""The environments of ops: the folders, the permission gate, the secrets and the budgets of a run, and overviews."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from reyn.errors import RunBlocked
from reyn.journal import Blob, Journal, kinds, ordered
from reyn.kernel.visit.run_context import credentials_of
from reyn.ops import Denied, Env, OpTable, Overview
from reyn.ops.budget import OpBudget, OpBudgets
from reyn.ops.execution import overview_of
from reyn.ops.op import no_credentials, no_environment
from reyn.packages import PackageEnvironments
from reyn.permissions import Gate, Policy, SkillRequests, recorded_requests
from reyn.permissions.gate import ProjectMissing
from reyn.private_files import user_folder
from reyn.secrets import Scrubber, handle_of
from reyn.skills.agents import agent_of
from reyn.texts import one_line
from reyn.workspace import Location, RecordedFiles, Roots

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.config import Config
    from reyn.config.values import Sizes
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_skill import CompiledSkill
    from reyn.skills import Skill

    SkillCompiler = Callable[[kinds.RunStarted, Callable[[str], bytes]], CompiledSkill]


def roots_of(root: Path, state: Path, workspace: str, origin: Roots | None = None) -> Roots:
    """Return the folders of a run: project, state directory, workspace.

    The user's configuration and secrets are excluded: they are inside the project if that is the home directory.
    """
    try:
        hidden: tuple[Path, ...] = (user_folder(os.environ),)
    except RuntimeError:  # there is no home directory
        hidden = ()
    return Roots(root, state, state / "workspace" / workspace, hidden, origin)


def requests_above(started: kinds.RunStarted, content: Callable[[str], bytes]) -> list[SkillRequests]:
    """Return the permission requests of the skills of a sub-run's parents."""
    if started.requests is None:
        return []
    try:
        return msgspec.json.decode(content(started.requests), type=list[SkillRequests])
    except msgspec.MsgspecError as error:
        raise RunBlocked(f"the run's copy of the requests above it cannot be read: {error}") from error


def decide_restore(gates: Iterable[Gate], location: Location) -> tuple[str, str]:
    """Return the rule that decides about restoring a file, and the reason if one of the gates denies it.

    A rule that asks allows it: a person approved the change that is reverted, or runs the undo.
    """
    rule = ""
    for gate in gates:
        verdict = gate.write(location)
        if isinstance(verdict, Denied):
            return verdict.rule, verdict.reason
        rule = verdict.rule
    return rule, ""


def _without_skill_grants(policy: Policy) -> Policy:
    """Return the rules for an imported skill, without grants to a skill of its name."""
    rules = tuple(rule for rule in policy.rules if not (rule.skills and rule.effect == "allow"))
    return msgspec.structs.replace(policy, rules=rules)


class _VisitEnv(NamedTuple):
    """The environment of the ops of one visit, and what it was built from."""

    tape: Tape
    visit: int
    started: kinds.RunStarted
    phase: str
    policy: Policy
    env: Env


class Environments:
    """Builds the environments of the ops of all runs of a runtime."""

    def __init__(
        self,
        root: Path,
        state: Path,
        read_policy: Callable[[], Policy],
        compile_skill: SkillCompiler,
        config: Config,
        ignored_environments: frozenset[str],
        resolve_secret: Callable[[str], str],
        secrets: Callable[[], Scrubber],
        journal: Callable[[], Journal],
        origin: Roots | None = None,
        *,
        has_project: bool = True,
    ) -> None:
        self._root = root
        self._state = state
        self._read_policy = read_policy
        self._compile_skill = compile_skill
        self._sandbox = config.sandbox
        self._python = config.python
        folders = (root, state) if origin is None else (origin.project, origin.state)
        self.packages = PackageEnvironments(config.environments, *folders, ignored_environments)
        """The environments with packages for the code of skills."""
        self._resolve_secret = resolve_secret
        self._secrets = secrets
        self._journal = journal
        self._origin = origin
        self._has_project = has_project
        self._policy = Policy()
        self._gates: dict[tuple[str, str, str | None, bool], Gate] = {}
        """The gates of the policy."""
        self._visits: dict[str, _VisitEnv] = {}

    def env(self, tape: Tape) -> Env:
        """Return the environment of an op. It stays the same in a visit, unless the operator changes the rules."""
        state, policy = tape.state, self._read_policy()
        found = self._visits.get(tape.run_id)
        if (
            found is not None
            and found.tape is tape
            and found.visit == state.history.total_steps
            and found.started is state.started
            and found.phase == state.phase
            and found.policy is policy
        ):
            return found.env
        started, visit = state.started, state.history.total_steps
        compiled = self._compile_skill(started, tape.content)
        gate, sizes = self.gate_of(state, tape.content), compiled.settings.sizes
        if found is not None and found.visit == visit:
            budget = found.env.budget
        else:
            budget = OpBudget(OpBudgets(sizes.visit_read_bytes, sizes.visit_matched_bytes, sizes.visit_recorded_bytes))
        if found is not None and found.tape is tape:
            recorded = found.env.recorded
        else:
            recorded = RecordedFiles(self._journal(), tape.run_id, lambda: tape.pending)
        env = Env(
            gate.roots,
            gate,
            tape.content,
            recorded,
            sizes.file_bytes,
            budget,
            compiled.skill.modules,
            self._sandbox,
            partial(self._credential, credentials_of(compiled.skill, started.credentials)),
            self._python,
            skills=phase.allowed_skills if (phase := compiled.skill.phases.get(state.phase)) is not None else None,
            secret_in=self._secrets().find,
            environment=partial(self.packages.find_once, compiled.skill.environment, {})
            if compiled.skill.environment
            else no_environment,
        )
        self._visits[tape.run_id] = _VisitEnv(tape, visit, started, state.phase, policy, env)
        return env

    def forget(self, run_id: str) -> None:
        """Drop the environment of a run that no longer executes."""
        self._visits.pop(run_id, None)

    def _credential(self, allowed: tuple[str, ...], name: str) -> str:
        """Return the value of a secret, if the run may use it."""
        if name not in allowed:
            return no_credentials(name)
        return self._resolve_secret(handle_of(name))

    def gate_of(self, state: RunState, content: Callable[[str], bytes]) -> Gate:
        """Return the gate of a run: what its skill and the skills above it request, within today's rules."""
        started, policy = state.started, self._read_policy()
        if policy is not self._policy:
            self._policy, self._gates = policy, {}
        key = (state.workspace, started.skill_hash, started.requests, started.imported)
        gate = self._gates.get(key)
        if gate is None:
            skill = self._compile_skill(started, content).skill
            above = requests_above(started, content)
            requests = (skill.permissions, *(one.permissions for one in above))
            gate = self._gates[key] = Gate(
                roots_of(self._root, self._state, state.workspace, self._origin),
                _without_skill_grants(policy) if started.imported else policy,
                tuple(map(recorded_requests, requests)),
                skill.name,
                tuple(one.skill for one in above),
                "" if above or started.imported else agent_of(skill.name),
                self._has_project,
            )
        return gate

    def before_start(self, skill: Skill, sizes: Sizes) -> Env:
        """Return the environment in which a new run of a skill would look at the project."""
        roots = roots_of(self._root, self._state, "none")
        requests = (recorded_requests(skill.permissions),)
        gate = Gate(roots, self._read_policy(), requests, skill.name, agent=agent_of(skill.name))
        skills = skill.phases[skill.entry].allowed_skills
        return Env.without_run(gate, sizes.file_bytes, skills)


_MAX_LINES = 200


def find_overviews(
    op_kinds: Iterable[str], query: str, env: Env, ops: OpTable, secrets: Scrubber
) -> tuple[dict[str, Overview], list[str]]:
    """Return what ops can act on, by op kind, and the reasons why some could not tell."""
    found: dict[str, Overview] = {}
    failed: list[str] = []
    for kind in op_kinds:
        op = ops.listing.get(kind)
        if op is None:
            continue
        if not env.gate.has_project:
            raise ProjectMissing
        overview = overview_of(op, query, env, is_foreign=ops.is_foreign(kind))
        if isinstance(overview, str):
            failed.append(f"{kind}: {overview}")
        elif not secrets.is_empty and secrets.find(
            _section(overview).encode(errors="replace") + ordered(overview.targets or ())
        ):
            failed.append(f"{kind}: it holds a secret")
        else:
            found[kind] = overview
    return found, failed


def overviews_read(
    key: str, found: dict[str, Overview], failed: list[str]
) -> tuple[kinds.OverviewsRead, tuple[Blob, ...]]:
    """Return the event that records overviews, and their content."""
    sections = "".join(map(_section, found.values()))
    targets = {kind: overview.targets for kind, overview in found.items() if overview.targets is not None}
    text = Blob.of(sections.encode(errors="replace")) if sections else None
    listed = Blob.of(ordered(targets)) if targets else None
    names = [blob.hash if blob is not None else None for blob in (text, listed)]
    read = kinds.OverviewsRead(key, names[0], tuple(failed), names[1])
    return read, tuple(blob for blob in (text, listed) if blob is not None)


@lru_cache(4096)
def _item(line: str) -> str:
    return f"- {one_line(line)}\n"


def _section(overview: Overview) -> str:
    """Return a section of a prompt. No line of it can pass for a heading."""
    lines = [_item(line) for line in overview.lines[:_MAX_LINES]]
    return f"\n# {one_line(overview.heading)}\n{''.join(lines)}" if lines else ""
