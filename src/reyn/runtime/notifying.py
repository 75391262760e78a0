"""Call the command or the webhook of `notify` when a question opens or a run fails, at least once, beside the runs.

What was delivered is an event of its run, `notification_sent`. Whatever has none is delivered again: after a failure,
with growing pauses, and after a restart. A notification has names and a link, and no content.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import msgspec

from reyn.errors import ReynError
from reyn.journal import NotificationDelivered, kinds
from reyn.journal.family import root_run
from reyn.journal.listing import RunQuery
from reyn.kernel.world.environments import roots_of
from reyn.kernel.world.inbox import take_messages
from reyn.ops.budget import OpFailed
from reyn.ops.web.client import WebTarget, parse_url, request
from reyn.ops.web.fetch import address_check
from reyn.permissions import Allowed, Gate
from reyn.permissions.rules import recorded_requests
from reyn.sandbox.reaping import control_pipe, reaped

if TYPE_CHECKING:
    from reyn.config.servers import NotifySettings
    from reyn.journal import Event, RunRow
    from reyn.kernel.world.services import Services

_LOOK_SECONDS = 1.0
"""How often to look for what opened or failed."""
_FIRST_PAUSE, _MAX_PAUSE = 1.0, 300.0
_OLDEST = 24 * 3600 * 1_000_000
"""The age of failures, in microseconds, that are still notified."""
_COMPLETE_SECONDS = 60.0
_ANY, _OPEN, _PAGE = RunQuery(), RunQuery(("running", "waiting")), 200
_MAX_AT_ONCE = 8
_INHERITED = ("HOME", "LANG", "LOGNAME", "PATH", "TMPDIR", "USER")
_log = logging.getLogger("reyn.notify")


class Notification(msgspec.Struct, frozen=True):
    """What a command or a webhook receives, as JSON. It is the same if it is delivered twice."""

    id: str
    event: Literal["question", "failed"]
    run: str
    skill: str
    link: str


class NotDelivered(Exception):
    """Why a notification was not delivered."""


class Notifier:
    """Delivers the notifications of a project.

    Args:
        services: The services of the project.
        link: The address of the web pages.
        look_seconds: How often to look at the list of runs.
        first_pause: The seconds before the first retry.
    """

    def __init__(
        self, services: Services, link: str, *, look_seconds: float = _LOOK_SECONDS, first_pause: float = _FIRST_PAUSE
    ) -> None:
        self._services = services
        assert services.config.notify is not None
        self._settings: NotifySettings = services.config.notify
        self._link = (self._settings.link or link).rstrip("/")
        self._look_seconds = look_seconds
        self._first_pause = first_pause
        self._seen: dict[str, int] = {}
        self._open: set[str] = set()
        self._complete_at = 0.0
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_MAX_AT_ONCE)

    async def watch(self) -> None:
        """Deliver what is due, until cancelled."""
        try:
            while True:
                try:
                    due = await asyncio.to_thread(self._due)
                except ReynError as error:  # a journal that is away for a moment
                    _log.warning("%s: %s", error.code, error.message)
                    due = []
                for found in due:
                    if found.id not in self._tasks:
                        self._tasks[found.id] = asyncio.ensure_future(self._deliver(found))
                await asyncio.sleep(self._look_seconds)
        finally:
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- what is due ----------------------------------------------------------------------------------

    def _due(self) -> list[Notification]:
        """Return what opened or failed since the last look, and was not delivered."""
        is_complete = time.monotonic() >= self._complete_at
        rows = self._rows(is_complete=is_complete)
        changed = [row for row in rows.values() if self._seen.get(row.run_id) != row.seq]
        looked_at = {run_id: row.seq for run_id, row in rows.items()}
        self._seen = looked_at if is_complete else self._seen | looked_at
        if is_complete:
            self._complete_at = time.monotonic() + _COMPLETE_SECONDS
        return [found for row in changed if (found := self._notification(row)) is not None]

    def _rows(self, *, is_complete: bool) -> dict[str, RunRow]:
        """Return the runs that can have something new: those that are or were open, and new ones.

        A complete look has all that failed lately: a run can start and fail between two looks, and among many others.
        """
        journal = self._services.journal
        rows = {row.run_id: row for row in journal.page(_ANY, _PAGE)}
        failed = RunQuery(("failed",), since=self._services.clock.now() - _OLDEST)
        for query in (_OPEN, failed) if is_complete else (_OPEN,):
            after = ""
            while page := journal.page(query, _PAGE, after):
                rows |= {row.run_id: row for row in page}
                after = page[-1].run_id
        rows |= {run_id: row for run_id in self._open - rows.keys() if (row := journal.find(run_id)) is not None}
        self._open = {row.run_id for row in rows.values() if row.status in _OPEN.statuses}
        return rows

    def _notification(self, row: RunRow) -> Notification | None:
        """Return what is to be delivered about a run; `None` if there is nothing, or if it was delivered."""
        event: Literal["question", "failed"]
        journal = self._services.journal
        if row.imported:
            return None
        if row.status == "waiting" and row.wait is not None and row.wait.run is None and not row.wait.is_message:
            event, subject = "question", row.wait.id
        elif row.status == "failed" and not row.parent and row.updated >= self._services.clock.now() - _OLDEST:
            event, subject = "failed", ""
        else:
            return None
        delivered = set[str]()
        for recorded in journal.read(row.run_id):
            if recorded.kind in _FAILURES and event == "failed":
                subject = str(recorded.seq)
            elif recorded.kind == kinds.NotificationSent.kind:
                delivered.add(_subject_of(recorded))
        posted = (message.payload for message in journal.drain(row.run_id, row.messages_taken))
        delivered |= {one.subject for one in posted if isinstance(one, NotificationDelivered)}
        if subject in delivered:
            return None
        link = f"{self._link}/runs/{root_run(journal, row).run_id}"
        return Notification(f"{row.run_id}/{subject}", event, row.run_id, row.skill, link)

    # -- delivering -----------------------------------------------------------------------------------

    async def _deliver(self, found: Notification) -> None:
        """Deliver a notification, as often as it takes while there is a reason for it, and record that."""
        attempts = 0
        try:
            while True:
                attempts += 1
                try:
                    async with self._slots:
                        await self._send(found)
                    return await asyncio.to_thread(self._record, found, attempts)
                except (NotDelivered, ReynError) as error:
                    _log.warning("notification %s, attempt %d: %s", found.id, attempts, error)
                await asyncio.sleep(min(_MAX_PAUSE, self._first_pause * 2.0 ** min(attempts - 1, 30)))
                if not await asyncio.to_thread(self._is_due, found):
                    return None
        finally:
            self._tasks.pop(found.id, None)

    def _is_due(self, found: Notification) -> bool:
        with suppress(ReynError):
            row = self._services.journal.find(found.run)
            return row is not None and self._notification(row) == found
        return True

    def _record(self, found: Notification, attempts: int) -> None:
        services, subject = self._services, found.id.removeprefix(f"{found.run}/")
        services.journal.post(found.run, NotificationDelivered(subject, found.event, attempts))
        take_messages(services.journal, services.clock, found.run)

    async def _send(self, found: Notification) -> None:
        body = msgspec.json.encode(found)
        if self._settings.command:
            await self._call_command(found, body)
        if self._settings.url:
            await self._call_webhook(found, body)

    async def _call_command(self, found: Notification, body: bytes) -> None:
        """Execute the command. It ends with everything that it started, at the latest with this process."""
        names = {"REYN_EVENT": found.event, "REYN_RUN": found.run, "REYN_SKILL": found.skill, "REYN_LINK": found.link}
        environ = {name: os.environ[name] for name in _INHERITED if name in os.environ} | names
        with control_pipe() as (control, held):
            command, kept = list(self._settings.command), (control,)
            if platform.system() == "Linux":
                command = reaped(command, control)
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    env=environ,
                    cwd=self._services.root,
                    start_new_session=True,
                    pass_fds=kept,
                )
            except (OSError, ValueError) as error:
                raise NotDelivered(f"the command cannot be started: {type(error).__name__}") from error
        try:
            async with asyncio.timeout(self._settings.seconds):
                await process.communicate(body)
        except TimeoutError as error:
            raise NotDelivered(f"the command did not end within {self._settings.seconds:g} seconds") from error
        finally:
            os.close(held)
            if process.returncode is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            raise NotDelivered(f"the command ended with exit code {process.returncode}")

    async def _call_webhook(self, found: Notification, body: bytes) -> None:
        """Send the notification to the webhook, if the rules of the operator allow its host."""
        settings, services = self._settings, self._services
        assert settings.url is not None
        headers = {"Content-Type": "application/json", "Idempotency-Key": found.id}
        try:
            target = parse_url(settings.url)
            gate = Gate(roots_of(services.root, services.state_folder, "none"), services.read_policy(), _REQUESTS)
            _check_host(gate, target)
            if settings.key is not None:
                secret = services.roster.secrets().resolve_for(settings.key, settings.url)
                headers["Authorization"] = f"Bearer {secret}"
            check = address_check(target, gate)
            response = await request(
                target, seconds=settings.seconds, check=check, method="POST", headers=headers, body=body, max_bytes=0
            )
        except OpFailed as error:
            raise NotDelivered(str(error)) from error
        if not 200 <= response.status < 300:
            raise NotDelivered(f"`{target.name}` answered with status {response.status}")


_REQUESTS = (recorded_requests({"web": True}),)
"""Like a skill that requests the web: the rules of the operator decide."""
_FAILURES = frozenset((kinds.RunFailed.kind, kinds.RunBroken.kind))


def _subject_of(event: Event) -> str:
    return str(event.data["subject"])


def _check_host(gate: Gate, target: WebTarget) -> None:
    verdict = gate.capability("web", target.name)
    if not isinstance(verdict, Allowed):
        raise NotDelivered(f"`permissions.web` does not allow `{target.name}`: {verdict.reason} ({verdict.rule})")
