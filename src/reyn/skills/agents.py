"""Agents: who holds a conversation. An agent is a Markdown file; together with the standard skill `chat` it is a skill.

`reyn/agents/NAME.md` names the skills, ops, permissions, model and memory of the agent; its body contains the agent's
instructions. The agent `default` exists without a file. A project can replace the skill `chat` like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec.structs import replace

from reyn.config.models import Positive, ProjectModel
from reyn.documents import (
    Document,
    DocumentError,
    TrustClasses,
    check_keys,
    nearest_hint,
    parse_front_matter,
    read_text,
    trust_classes,
)
from reyn.errors import AgentNotFound, SkillInvalid, codes
from reyn.folders import DEFINITIONS, names_in
from reyn.journal import kinds
from reyn.skills.front_matter import FRONT_MATTER, credential_findings
from reyn.skills.names import find_path, is_valid_name, nfc
from reyn.skills.values import END, ConversationSettings, Skill

if TYPE_CHECKING:
    from pathlib import Path


AGENTS = "reyn/agents"
"""The folder of the agents, relative to the project."""
DEFAULT = "default"
CHAT = "chat"
"""The standard skill that every conversation runs."""
MAX_INSTRUCTIONS = 20_000

MemoryScope = Literal["shared", "own", "none"]


def agent_of(skill: str) -> str:
    """Return the agent whose conversations run a skill; empty if it is not the skill of one."""
    return skill.removeprefix(kinds.AGENT_PREFIX) if skill.startswith(kinds.AGENT_PREFIX) else ""


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one conversation with the agent may use.

    Attributes:
        tokens: Tokens of all model calls.
        transcript: The size of the transcript, in tokens, above which older messages are summarised.
    """

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="tokens transcript")

    tokens: Positive | None = None
    transcript: Annotated[int, msgspec.Meta(ge=200)] | None = None


class _AgentKeys(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the front matter of an agent says about it; `Agent` describes the keys."""

    name: str
    description: str = ""
    model_class: str | None = None
    skills: tuple[str, ...] | None = None
    agents: tuple[str, ...] = ()
    allowed_ops: tuple[str, ...] | None = None
    permissions: dict[str, Any] = {}
    required_credentials: tuple[str, ...] = ()
    budget: Budget = Budget()
    memory: MemoryScope = "own"


class AgentFrontMatter(_AgentKeys, frozen=True, kw_only=True):
    """Front matter of an agent."""

    TRUST: ClassVar[TrustClasses] = trust_classes(
        plain="type name description model_class",
        request="skills agents allowed_ops permissions required_credentials memory",
        model="model",
        section="budget",
    )

    type: Literal["agent"]
    model: str | None = None


class Agent(_AgentKeys, frozen=True, kw_only=True):
    """Who holds a conversation.

    Attributes:
        name: The agent's name.
        instructions: The agent's instructions, which precede those of the skill `chat`; empty for the default agent.
        description: What the agent is for. Other agents see it.
        model: The model that answers; `None` for the project's. `Roster.project_name` checks it.
        model_class: The class of the model that answers, if `model` is not set.
        skills: Patterns of the names of skills that it may run; `None` allows all.
        agents: Patterns of the names of agents that it may ask. An agent that it asks has rights of its own, so that
            each has to be named.
        allowed_ops: Op kinds that it may use; `None` allows those of the skill `chat`.
        permissions: What it requests, as a skill does.
        required_credentials: The secrets that its ops may use.
        budget: What one conversation may use.
        memory: The memories in files that it uses: `own` and shared ones, only `shared` ones, or `none`.
    """

    instructions: str = ""
    model: ProjectModel | None = None

    def skill(self, chat: Skill, *, is_single_turn: bool = False) -> Skill:
        """Return the skill of a conversation with the agent.

        Args:
            chat: The standard skill.
            is_single_turn: Whether it ends with the first reply, as in `reyn run agent:NAME`.
        """
        entry = chat.entry
        phase = chat.phases[entry]
        conversation = phase.conversation or ConversationSettings()
        phase = replace(
            phase,
            instructions=f"{self.instructions.strip()}\n\n{phase.instructions}"
            if self.instructions.strip()
            else phase.instructions,
            model_class=self.model_class or phase.model_class,
            allowed_ops=self._ops(phase.allowed_ops),
            allowed_skills=self.skills if self.skills is not None else phase.allowed_skills,
            conversation=replace(conversation, max_tokens=self.budget.transcript or conversation.max_tokens),
            can_finish=is_single_turn,
        )
        return replace(
            chat,
            name=f"{kinds.AGENT_PREFIX}{self.name}",
            description=self.description or chat.description,
            phases={**chat.phases, entry: phase},
            graph={**chat.graph, entry: (END,)} if is_single_turn else chat.graph,
            edge_texts={} if is_single_turn else chat.edge_texts,
            permissions={
                **{key: value for key, value in chat.permissions.items() if key not in _OWN},
                **self._own_requests(),
                **self._skill_request(phase.allowed_ops),
                **self.permissions,
            },
            required_credentials=self.required_credentials or chat.required_credentials,
        )

    def _own_requests(self) -> dict[str, Any]:
        scopes = {"own": [self.name, "shared"], "shared": ["shared"], "none": []}[self.memory]
        requests = {"memory": scopes, "agent": list(self.agents)}
        return {key: names for key, names in requests.items() if names}

    @staticmethod
    def _skill_request(ops: tuple[str, ...]) -> dict[str, Any]:
        """Request what a skill that writes skills needs of its callers. A person still approves each of them."""
        return {} if {"run_skill", "start_skill"}.isdisjoint(ops) else {"skill.write": True}

    def _ops(self, standard: tuple[str, ...]) -> tuple[str, ...]:
        ops = standard if self.allowed_ops is None else self.allowed_ops
        kinds = tuple(kind for kind in ops if self.memory != "none" or kind not in _MEMORY_OPS)
        return (*kinds, _ASK) if self.agents and _ASK not in kinds else kinds


_OWN = ("agent", "memory")
"""Requests that only the agent's own file makes."""
_ASK = "ask_agent"
_MEMORY_OPS = ("remember", "forget", "recall")


_MAX_CACHED = 1_000
_descriptions: dict[str, tuple[tuple[int, ...], str]] = {}
"""What the agents whose files this process has read are for; every prompt of an agent that may ask others lists it."""


class Agents:
    """The agents of a project."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.folder = root / AGENTS

    def __iter__(self) -> Iterator[str]:
        """Yield the names of all agents; `default` is one even without a file."""
        files = [self.folder / name for name in names_in(self._root, AGENTS, below=DEFINITIONS) if name.endswith(".md")]
        names = {nfc(path.stem) for path in files if path.is_file()}
        yield from sorted({DEFAULT, *(name for name in names if is_valid_name(name))})

    def path(self, name: str) -> Path | None:
        """Return the file of an agent; `None` if it has none."""
        path = find_path(self._root, f"{AGENTS}/{name}.md") if is_valid_name(name) else None
        return path if path is not None and path.is_file() else None

    def description(self, name: str) -> str:
        """Return what an agent is for. A file that has not changed is not read again.

        Raises:
            AgentNotFound: There is no such agent.
            SkillInvalid: Its file has errors.
        """
        path = self.path(name)
        if path is None:
            return self.load(name).description
        status = path.stat()
        stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        known = _descriptions.get(str(path))
        if known is None or known[0] != stamp:
            if len(_descriptions) >= _MAX_CACHED:
                _descriptions.clear()
            known = _descriptions[str(path)] = (stamp, self.load(name).description)
        return known[1]

    def load(self, name: str) -> Agent:
        """Return an agent.

        Raises:
            AgentNotFound: There is no such agent.
            SkillInvalid: Its file has errors.
        """
        return self.read(name)[0]

    def read(self, name: str) -> tuple[Agent, Document | None]:
        """Return an agent and its file, which has the positions of the keys; `None` if it has no file.

        Raises:
            AgentNotFound: There is no such agent.
            SkillInvalid: Its file has errors.
        """
        path = self.path(name)
        if path is None:
            if name == DEFAULT:
                return Agent(DEFAULT), None
            raise AgentNotFound(
                f"no agent `{name}`: no file `{AGENTS}/{name}.md`", hint=nearest_hint(name, list(self)) or None
            )
        label = f"{AGENTS}/{path.name}"
        try:
            document = parse_front_matter(read_text(path, label, inside=self._root, below=DEFINITIONS), label)
        except DocumentError as error:
            raise SkillInvalid(f"agent `{name}` has errors:", [error.finding]) from error
        findings = [*check_keys(document, AgentFrontMatter, FRONT_MATTER), *credential_findings(document)]
        value = document.value if isinstance(document.value, dict) else {}
        if not findings and value["name"] != nfc(path.stem):
            message = f"`name` is `{value['name']}`, but the file is `{path.name}`"
            findings.append(document.finding(codes.WRONG_NAME, message, "name", fix=f"write `name: {path.stem}`"))
        if not findings and len(document.body) > MAX_INSTRUCTIONS:
            message = f"the instructions have {len(document.body)} characters; at most {MAX_INSTRUCTIONS} are allowed"
            findings.append(
                document.finding(codes.WRONG_VALUE, message, fix="shorten them: every model call sends them")
            )
        if findings:
            raise SkillInvalid(f"agent `{name}` has errors:", findings)
        front = msgspec.structs.asdict(msgspec.convert(value, AgentFrontMatter))
        del front["type"]
        if front["model"] is not None:
            front["model"] = ProjectModel(front["model"], f"agent {name}")
        return Agent(**front, instructions=document.body.strip()), document
