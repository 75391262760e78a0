"""What a run has recorded so far, for its callers: result, exit code, cost, the status that users see,
and standing approvals."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from reyn.cells import (
    Html,
    InNotebook,
    MimeBundle,
    bundle,
    element,
    html_table,
    json_text,
    mimebundle,
    preformatted,
    status_badge,
)
from reyn.config.budgets import money_text
from reyn.journal.kinds import Charge, Question, Usage
from reyn.journal.registry import SUPPORTED_RULES, Status

if TYPE_CHECKING:
    from collections.abc import Collection

    from reyn.journal.lifecycle import RunRow


EXIT_CODES: dict[Status, int] = {
    "running": 0,
    "finished": 0,
    "failed": 1,
    "limited": 3,
    "waiting": 4,
    "aborted": 5,
    "cancelled": 6,
    "blocked": 7,
}


_MAX_WARNINGS = 20


class Cost(msgspec.Struct, frozen=True):
    """What the model calls of a run and its sub-runs were charged.

    Attributes:
        amount: The sum, in `currency`; without the calls whose price is unknown.
        currency: The currency; empty if no price is known.
        tokens: The tokens that were charged.
        calls: The number of calls, with retries.
        unpriced: The calls whose price is unknown or in another currency.
        assumed: The calls that were charged in full, because the model reported no usage or the answer was lost.
    """

    amount: Decimal
    currency: str
    tokens: int
    calls: int
    unpriced: int = 0
    assumed: int = 0

    @classmethod
    def of(cls, charge: Charge) -> Cost | None:
        """Return the cost of a charge; `None` if no call was counted."""
        if not charge.calls:
            return None
        amount = Decimal(charge.cost).scaleb(-9).normalize() + 0
        return cls(amount, charge.currency, charge.tokens, charge.calls, charge.unpriced, charge.assumed)

    @property
    def text(self) -> str:
        """The sum with what it leaves out: `0.02 USD + 3 calls without a price`; empty if no price is known."""
        if not self.currency:
            return ""
        amount = money_text(int(self.amount.scaleb(9)), self.currency)
        return f"{amount} + {self.unpriced} calls without a price" if self.unpriced else amount


def tokens_text(usage: Usage) -> str:
    """Format token counts: `100 tokens (60 in, 40 out)`."""
    if not usage.total:
        return "0 tokens"
    cached = f", {usage.cached_tokens:,} cached" if usage.cached_tokens else ""
    thought = f", {usage.thinking_tokens:,} of them thoughts" if usage.thinking_tokens else ""
    return f"{usage.total:,} tokens ({usage.input_tokens:,} in{cached}, {usage.output_tokens:,} out{thought})"


class RunResult(InNotebook, msgspec.Struct, frozen=True):
    """The result of a run that ended or stopped.

    Attributes:
        run_id: The run.
        status: `finished`, `failed`, `limited`, `waiting`, `aborted`, `cancelled` or `blocked`; `running` if its
            process died.
        reason: Why the run stopped; empty for a finished run.
        artifact: The final output, `{"type": …, "data": …}`; `None` if there is none.
        usage: Token counts of all model calls.
        path: The last 20 phases.
        warnings: Messages for the operator, for example about skipped steps.
        question: The open question of a waiting run.
        code: The error code of a failed run, or of a turn of a conversation that ended without a reply: the run then
            waits for the next message. docs/reference/errors.md explains it.
        hint: What to do next, if there is a code.
        cost: What its model calls were charged; `None` if none was counted. Calls of scripted models are
            counted only under a budget.
        ok: Whether the run is `finished`.
        exit_code: The exit code of `reyn run`: that of the status, and 1 if there is a code.
    """

    run_id: str
    status: Status
    reason: str
    artifact: dict[str, Any] | None
    usage: Usage
    path: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    question: Question | None = None
    code: str = ""
    hint: str = ""
    cost: Cost | None = None

    @property
    def ok(self) -> bool:
        """Whether the run is `finished`."""
        return self.status == "finished"

    @property
    def exit_code(self) -> int:
        """The exit code of `reyn run`: that of the status, and 1 if there is a code."""
        return EXIT_CODES["failed" if self.code else self.status]


def result_parts(result: RunResult) -> tuple[str, list[Html]]:
    """Return a result as text and as HTML, without the id of its run."""
    code, question = f" ({result.code})" if result.code else "", result.question
    facts = [
        ("path", " → ".join(result.path)),
        (
            "used",
            ", ".join(part for part in (tokens_text(result.usage), result.cost.text if result.cost else "") if part),
        ),
        ("reason", f"{result.reason}{code}" if question is None else ""),
        (f"question {question.id}" if question else "", question.message if question else ""),
        ("suggested", ", ".join(question.suggestions) if question else ""),
        ("fix", result.hint),
        *(("warning", warning) for warning in result.warnings[:_MAX_WARNINGS]),
    ]
    facts = [(name, value) for name, value in facts if value]
    artifact = json_text(result.artifact) if result.artifact is not None else ""
    text = "\n".join([*(f"{name}: {value}" for name, value in facts), *([artifact] if artifact else [])])
    rows = [(element("b", name), preformatted(value) if "\n" in value else value) for name, value in facts]
    return text, [html_table((), rows), *([preformatted(artifact)] if artifact else [])]


@mimebundle.register(RunResult)
def _(result: RunResult) -> MimeBundle:
    text, parts = result_parts(result)
    head = element("div", "run ", element("code", result.run_id), ": ", status_badge(result.status))
    return bundle(f"run {result.run_id}: {result.status}\n{text}", head, *parts)


def display_status(row: RunRow, *, is_claimed: bool) -> str:
    """Return the status that users see: queued or interrupted if no process executes the run, blocked if its rules are
    not supported. An imported run has the status that it had in its own project."""
    assert row.status is not None
    if row.imported:
        return f"{row.status} (imported)"
    if row.status not in ("running", "limited", "failed", "waiting"):
        return row.status
    if row.rules not in SUPPORTED_RULES:
        return "blocked"
    if row.status == "running" and not is_claimed:
        if row.is_suspended:
            return "running (in sub-runs)"
        return "queued" if row.queue else "running (interrupted)"
    return row.status


def has_shown_status(row: RunRow, wanted: Collection[str], *, is_claimed: bool) -> bool:
    """Return whether the status of a run is one of those wanted, which may be `queued`, `interrupted` or `blocked`."""
    shown = display_status(row, is_claimed=is_claimed)
    return row.status in wanted or {"running (interrupted)": "interrupted"}.get(shown, shown) in wanted


APPROVAL_DIGITS = 32
"""Digits of a digest that an approval names. With 128 bits, a search for two actions with the same name is hopeless."""


class Approval(msgspec.Struct, frozen=True):
    """A standing approval: this version of a skill may use an op where a rule asks, in one project.

    `project` is the identity of the project that it was given in, see `project_identity`. `id` is 0 until it is stored.
    """

    skill: str
    skill_hash: str
    op: str
    rule: str
    by: str
    at: int
    run_id: str
    project: str = ""
    id: int = 0

    def covers(self, skill_hash: str, op: str, rule: str) -> bool:
        """A change of the skill, the op or the rule asks again."""
        return (self.skill_hash, self.op, self.rule) == (skill_hash, op, rule)

    def is_of(self, project: str) -> bool:
        """Return whether it was given in a project: at the same path, or in the same folder if it was moved."""
        (place, _, path), (other_place, _, other_path) = self.project.partition(" "), project.partition(" ")
        return place == other_place or path == other_path


TokenScope = Literal["view", "answer", "approve", "start", "admin"]
SCOPES: tuple[TokenScope, ...] = get_args(TokenScope)


class AccessToken(msgspec.Struct, frozen=True):
    """A credential of the HTTP server. The secret itself is not stored, only its hash.

    Attributes:
        name: Its name, which events record as the user.
        hash: The SHA-256 of the secret.
        scopes: What it permits: `view`, `answer` questions, `approve` ops, `start` runs, `admin` (everything).
        skills: The only skills that it permits; empty for all.
        created: The time when it was made, in microseconds since 1970.
        expires: The time when it expires; 0 if it does not.
        is_session: Whether it is the session of a browser.
    """

    name: str
    hash: str
    scopes: tuple[TokenScope, ...]
    skills: tuple[str, ...] = ()
    created: int = 0
    expires: int = 0
    is_session: bool = False
