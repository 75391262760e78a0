"""`Project`: what a user asks about an open project, as `rt.project`: first frames, models, MCP servers, settings.

`inspect_journal` reports on the owner of a journal before the project is opened.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from reyn.config import RunSettings, journal_key
from reyn.config.values import PromptLimit
from reyn.context.handoff import read_summaries
from reyn.context.histories import HISTORIES
from reyn.context.token_counting import check_installed
from reyn.documents import nearest
from reyn.errors import BlobMissing, McpServerFailed, McpServerUnknown
from reyn.kernel.visit.compiled_phase import uses_handoffs
from reyn.kernel.world.loading import pin_model
from reyn.ops.budget import OpFailed
from reyn.ops.mcp import read_definitions, write_definitions
from reyn.permissions.policy import policy_of
from reyn.runs.preview import Preview, preview_frame
from reyn.runtime.services import DATABASE, STATE, ProjectServices
from reyn.skills import check_pinned
from reyn.skills.agents import PREFIX
from reyn.skills.inputs import check_supported
from reyn.skills.names import nfc
from reyn.skills.resolve import is_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.context import NormalizedMessageList
    from reyn.context.frame import ContextFrame
    from reyn.journal import Blob, kinds
    from reyn.models.listing import ModelStatus
    from reyn.ops import Overview
    from reyn.ops.mcp import ToolDefinitions
    from reyn.skills import Skill

_MAX_CHECKED = 64
"""Skills as values that need not be checked again."""


class Project(ProjectServices):
    """An open project."""

    @cached_property
    def _checked_skills(self) -> list[Skill]:
        return []

    def first_frame(self, skill: str, input: Any = None, *, phase: str | None = None) -> ContextFrame:
        """Return the frame that the model sees first in a run with this input. Records nothing.

        Preprocessor steps run only if they have no side effects; otherwise `warnings` of the frame says so.

        Args:
            skill: Name or path of the skill.
            input: An input of the phase's type; by default, its first type with empty data.
            phase: The phase whose frame to return, as if the run started there; by default the entry phase.

        Raises:
            InputInvalid: The input does not fit the phase, or there is no such phase.
        """
        loaded, settings, model = self.load(skill), self.run_settings(), pin_model(self.roster, self.config.model)
        preview = Preview(settings, self.ops.vocabulary, model, self.summaries(loaded, settings))
        return preview_frame(loaded, input, phase, preview)

    def overviews(self, skill: Skill, message: str = "") -> dict[str, Overview]:
        """Return what the ops of a conversation can act on, by op kind, as its first prompt would show it.

        Args:
            skill: The skill of the conversation.
            message: What the user says. If not everything fits the prompt, what matches it best comes first.
        """
        return self.op_performer.overviews(skill, self.config.sizes, message)

    def models(self) -> list[ModelStatus]:
        """Return the configured models and those that can be pulled, with their availability.

        Loads no model and connects to no server.
        """
        from reyn.models.listing import list_models

        return list_models(
            self.config,
            self.root,
            self.existing_journal,
            self.secrets,
            self.trust.may_bind,
            self.trust.ignored_models,
        )

    def default_model(self) -> str:
        """Return the model that the setting `model` names, after following aliases; empty if there is none.

        Raises:
            ModelUnknown: It is an alias of itself, or needs trust.
        """
        return self.roster.resolve(self.config.model)[1].model

    def preload_model(self, name: str | None = None) -> None:
        """Import the SDK of a model, by default of the default one. It takes seconds on a slow machine.

        Another thread may call it while the user writes. Errors are reported when the model is called.
        """
        self.roster.preload(name or self.config.model or "")

    def check_config(self) -> None:
        """Check the permission rules, the file zones and the name of the default model. Opens no model.

        Raises:
            ConfigInvalid: A rule or a zone is invalid.
            ModelUnknown: The default model does not exist.
        """
        policy_of(self.config, self.ops.vocabulary.permission_keys, self.root, self.trust)
        if self.config.model:
            self.roster.check_name(self.config.model)

    async def mcp_tools(self, server: str) -> ToolDefinitions:
        """Connect to an MCP server and return the tools that it offers now. `accept_mcp_tools` makes them ops.

        Raises:
            McpServerUnknown: The configuration has no such server.
            McpServerFailed: It cannot be reached or does not answer.
        """
        settings = self.config.mcp.servers.get(server)
        if settings is None:
            known = ", ".join(f"`{name}`" for name in self.config.mcp.servers) or "none"
            note = "; it may need trust" if self.trust.ignored else ""
            hint = "Trust the project, if the server is in its configuration." if note else None
            raise McpServerUnknown(f"no MCP server `{server}`; configured: {known}{note}", hint=hint)
        credentials = {}
        for text in (*settings.env.values(), *settings.headers.values()):
            if text.startswith("secret://"):
                url = settings.url
                credentials[text] = self.secret_for(text, url) if url else self.secrets.resolve(text)
        try:
            return await self.mcp.definitions(server, settings, credentials)
        except OpFailed as error:
            raise McpServerFailed(str(error)) from error

    def accept_mcp_tools(self, definitions: ToolDefinitions) -> Path:
        """Write the definitions of a server's tools to the project, and return the file.

        They are ops from the next time that the project is opened.
        """
        return write_definitions(self.root, definitions)

    def accepted_mcp_tools(self, server: str) -> ToolDefinitions | None:
        """Return the accepted definitions of a server's tools; `None` if there are none."""
        return read_definitions(self.root, server)

    # -- starting runs --------------------------------------------------------------------------------

    def check_skill(self, skill: Skill) -> Skill:
        """Check a skill that is a value like one that is loaded, and return it."""
        if skill not in self._checked_skills:
            check_pinned(skill)
            check_supported(skill, self.ops.vocabulary)
            self._checked_skills.append(skill)
            del self._checked_skills[:-_MAX_CHECKED]
        return skill

    def source_of(self, skill: str | Skill) -> str | None:
        """Return the path of a skill that was given as a path, relative to the project if it is inside."""
        if not isinstance(skill, str) or not is_path(skill):
            return None
        place = Path(skill).resolve()
        return str(place.relative_to(self.root)) if place.is_relative_to(self.root) else str(place)

    def summaries(self, skill: Skill, settings: RunSettings) -> Blob | None:
        """Return the summaries of phases that other programs left in the project, if the skill receives handoffs."""
        return read_summaries(self.root, self.roster.scrub) if uses_handoffs(skill, settings) else None

    def store_history(self, history: NormalizedMessageList) -> tuple[tuple[kinds.HistoryPart, ...], tuple[Blob, ...]]:
        """Return the parts of a history, and the content that the journal does not have."""
        if not history.length:
            return (), ()

        def is_stored(name: str) -> bool:
            try:
                return bool(self.journal.blob(name))
            except BlobMissing:
                return False

        return HISTORIES.store(history, is_stored, self.roster.scrub)

    @cached_property
    def _configured_settings(self) -> RunSettings:
        """The settings of a run as the configuration has them, without the properties of models."""
        return RunSettings.of(self.config)

    def run_settings(self) -> RunSettings:
        """Return the settings that a new run records."""
        settings = self._configured_settings
        if settings.counter == "exact":
            check_installed()
        if not settings.classes:
            return settings
        forms = {name: self.roster.answer_form(name) for name in settings.classes.values()}
        limits = {name: self.roster.prompt_limit(name) for name in settings.classes.values()}
        known = {name: limit for name, limit in limits.items() if limit != PromptLimit()}
        return replace(settings, answer_forms=forms, prompt_limits=known)

    def warnings(self) -> Iterator[str]:
        """Yield the warnings that apply to every run of this project."""
        if self.trust.warning:
            yield self.trust.warning
        if self.config.tools:
            yield from self.ops.problems
        yield from self.budget_warnings()
        for name, why in self.roster.secrets().unreadable.items():
            yield f"`{name}` cannot be read, so its values are not removed from what is recorded: {why}"

    def budget_warnings(self) -> Iterator[str]:
        """Yield a warning for each skill under `budgets.skill` whose name is probably misspelt."""
        if not self.config.budgets.skill:
            return
        known = [*self.skill_names, *(f"{PREFIX}{name}" for name in self.agents)]
        for name in self.config.budgets.skill:
            # A name that resembles no other may be that of a function or of a skill that a program passes as a value.
            if nfc(name) not in known and (near := nearest(name, known)):
                yield f"`budgets.skill` has a budget for `{name}`, but there is no such skill; {near}"


class JournalReport(msgspec.Struct, frozen=True):
    """The contents of a journal. `is_own` is true if there is no journal."""

    is_own: bool = True
    runs: int = 0
    approvals: int = 0

    @property
    def text(self) -> str:
        """Describes the effect of trusting the journal."""
        return f"{STATE}/{DATABASE}: continue {_count(self.runs, 'run')}, honour {_count(self.approvals, 'approval')}"


def inspect_journal(root: Path, *, adopt: bool = False) -> JournalReport:
    """Report on the journal of a project.

    Args:
        root: The project's folder.
        adopt: Whether to mark a journal that is not the user's own as such, with everything that it holds.
    """
    path = root / STATE / DATABASE
    if not path.is_file() or not path.stat().st_size or not os.access(path.parent, os.W_OK):
        return JournalReport()
    from reyn.journal.sqlite import SqliteJournal

    journal = SqliteJournal(path.parent, owner=journal_key())
    try:
        if adopt:
            journal.adopt()
        return JournalReport(journal.is_own(), len(journal.runs()), len(journal.approvals()))
    finally:
        journal.close()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
