"""Errors of inputs, answers, steps and transcripts (RYN2xx)."""

from __future__ import annotations

from reyn.errors.base import ReynError


class ContractError(ReynError):
    """An input, an answer or a step violates the contract of its phase."""

    exit_code = 2


class InputInvalid(ContractError):
    """The entry phase does not accept the input of the run."""

    code = "RYN201"
    hint = (
        "Pass the data of the entry phase's input type as a JSON object. Plain text is accepted only if that type is "
        "`user_message`."
    )


class AnswersRejected(ContractError):
    """The model's answers in a phase were rejected until `max_phase_retries` was used up."""

    code = "RYN202"
    hint = "Read the rejections and the answers, improve the instructions or the schema, then retry or fork the run."
    exit_code = 1


class StepFailed(ContractError):
    """A step of a preprocessor or postprocessor failed, or the postprocessor's output is invalid."""

    code = "RYN203"
    hint = (
        "Fix the cause that the message names, then retry; or set the step's `on_error` to continue without its result."
    )
    exit_code = 1


class SubRunFailed(ContractError):
    """A skill used as a node returned no artifact, or one that the next node does not accept."""

    code = "RYN204"
    hint = "Inspect the sub-run that the message names, then retry."
    exit_code = 1


class TranscriptInvalid(ContractError):
    """A tool call of a transcript has no result or several, or a result has no call."""

    code = "RYN220"
    hint = "Add exactly one result for every tool call, right after the message with the call."


class MutationInvalid(ContractError):
    """A patch of a transcript cannot be applied: it is unknown, or refers to something that does not exist."""

    code = "RYN221"
    hint = "Use the mutation classes of `reyn.context`, and ids that exist. The transcript was not changed."


class MessageInvalid(ContractError):
    """A message of a history cannot be sent: its role is unknown, a field is malformed, or its text is not Unicode."""

    code = "RYN222"
    hint = "Fix the message that the error names, or leave it out of the history."


class CompactionFailed(ContractError):
    """A conversation exceeds its token budget, and no sufficiently short summary could be written."""

    code = "RYN223"
    hint = "Raise the token budget of prompts, use a model that writes shorter summaries, or start a new conversation."
    exit_code = 1
