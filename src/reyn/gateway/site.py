"""`Gateway`: what all requests of one server share."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from reyn.errors import AgentNotFound, RunIdInvalid, RunNotFound, TokenMissing
from reyn.gateway.access import AccessControl, Principal, session_secret
from reyn.gateway.changes import ChangeFeed
from reyn.gateway.conversations import OpenConversations
from reyn.gateway.tallies import CallTimes, ChargedSoFar
from reyn.gateway.work import BackgroundRuns
from reyn.journal.family import find_run, root_run
from reyn.journal.kinds import AGENT_PREFIX

if TYPE_CHECKING:
    from starlette.requests import Request

    from reyn.api import ChatRuntime
    from reyn.journal import RunRow
    from reyn.journal.results import TokenScope

_DAY = 24 * 3600 * 1_000_000
SESSION_HEADER = "x-session-key"
"""The header with the half of a session that the cookie does not have. No page of another origin can send it."""


def session_cookie(request: Request) -> str:
    """Return the name of the cookie: each server of a host has its own, because cookies are shared by all ports."""
    prefix = "__Host-" if request.url.scheme == "https" else ""
    return f"{prefix}reyn_session" + (f"_{request.url.port}" if request.url.port else "")


class Gateway:
    """A runtime that is served.

    Attributes:
        runtime: The runtime.
        access: Tokens and sessions.
        work: The runs that this process executes.
        conversations: The conversations that it has open.
        calls: How long model calls of this process took.
        spending: What model calls were charged.
        changes: What changed in the journal, for streams.
        trials: Held while the cases of a skill run.
        streams: The number of open streams by the name of the token.
        ends: What reads runs for them.
    """

    def __init__(self, runtime: ChatRuntime, *, user: str = "local", may_work: bool = True) -> None:
        """Serve a runtime.

        Args:
            runtime: The runtime.
            user: The name of the user of the login link.
            may_work: Whether this process executes runs; if not, it answers requests to start or continue one with an
                error.
        """
        self.runtime = runtime
        services = runtime.services
        self.access = AccessControl(lambda: services.journal, services.clock.now, user)
        self.calls = CallTimes()
        self.spending = ChargedSoFar(lambda days: services.budgets.day(services.clock.now() - days * _DAY))
        self.changes = ChangeFeed(lambda: services.existing_journal, self.calls.observe)
        self.work = BackgroundRuns(runtime, self.changes, may_work=may_work)
        self.conversations = OpenConversations(runtime, self.work, self.changes)
        self.is_draining = False
        self.trials = asyncio.Lock()
        self.streams = Counter[str]()
        self.ends: set[asyncio.Future[None]] = set()

    def principal_of(self, request: Request, scope: TokenScope | None) -> Principal:
        """Return who makes a request; the guard has checked hosts and origins.

        Raises:
            TokenMissing: There is no valid token.
            ScopeMissing: It does not have the scope.
        """
        if scope is None:
            return Principal("", ())
        client = request.client.host if request.client else ""
        if "authorization" in request.headers:  # a session beside it does not count
            kind, _, secret = request.headers["authorization"].partition(" ")
            if kind.lower() != "bearer":
                raise TokenMissing("the header `Authorization` has no bearer token")
            principal = self.access.find(secret.strip(), client, is_session=False)
        else:
            cookie = request.cookies.get(session_cookie(request), "")
            session = session_secret(cookie, request.headers.get(SESSION_HEADER, ""))
            principal = self.access.find(session, client, is_session=True)
        request.scope["reyn.principal"] = principal  # for the access log
        principal.check(scope)
        return principal

    def run_for(self, run: str, principal: Principal) -> RunRow:
        """Return a run by its id or a unique prefix of it.

        Raises:
            RunNotFound: There is none, or the credential is not for the skill of its root run.
        """
        if not principal.skills:
            return self.runtime.runs.find(run)
        journal = self.runtime.services.existing_journal
        return find_run(journal, run, lambda row: principal.sees(root_run(journal, row).skill))

    def check_open_to(self, run: str | None, principal: Principal) -> None:
        """Check that the id that a request chooses for a run is open to a credential.

        Raises:
            RunNotFound: There is a run of this id, and the credential is not for its skill.
            RunIdInvalid: The id could be that of a sub-run of a skill that the credential is not for.
        """
        if not run or not principal.skills:
            return
        agent = self.conversations.agent_of(run)  # may not be recorded yet
        if agent is not None and not principal.sees(f"{AGENT_PREFIX}{agent}"):
            raise RunNotFound(f"no run `{run}`")
        if self.runtime.services.existing_journal.find(run) is not None:
            self.run_for(run, principal)
        elif "." in run:
            raise RunIdInvalid(f"`{run}` could be the id of a sub-run", hint="Use an id without `.`.")

    def skill_for(self, name: str, principal: Principal) -> str:
        """Return the name of the skill that a request names: of the project, also of an agent, or the standard library.

        A path is one in the project's folders of skills, as `Library.find_named` takes it.

        Raises:
            SkillNotFound: There is none.
            AgentNotFound: There is no such agent.
            ScopeMissing: The credential is not for the skill.
        """
        project = self.runtime.project
        name = project.library.name_of(name)
        principal.check_skill(name.rpartition("/")[2])
        agent = name.removeprefix(AGENT_PREFIX)
        if agent == name:
            project.library.find_named(name)
        elif agent not in list(project.agents):
            raise AgentNotFound(f"no agent {agent!r}")
        return name

    def runtime_for(self, model: str | None) -> ChatRuntime:
        """Return the runtime for a model that a request names.

        Raises:
            ModelUnknown: The configuration does not name it.
        """
        return self.runtime if model is None else self.runtime.derive(model=self.model_for(model))

    def model_for(self, model: str | None) -> str | None:
        """Return the model that a request names.

        Raises:
            ModelUnknown: The configuration does not name it.
        """
        return None if model is None else self.runtime.services.roster.offered_name(model)

    def end_streams(self) -> None:
        """Take no new streams, and end those that are open: they would go on for ever."""
        self.is_draining = True
        self.changes.close()
        for reading in self.ends:
            reading.cancel()

    async def close(self) -> None:
        """Leave conversations and interrupt runs; they can be continued."""
        self.end_streams()
        await self.conversations.close()
        await self.work.close()
