"""The settings as frozen values. The field names are the keys of `reyn.yaml`; the docs page is made from them.

Only settings that something reads are here: a key without a reader is a promise nobody keeps.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

Positive = Annotated[int, msgspec.Meta(gt=0)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
Handle = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^secret://[A-Z][A-Z0-9_]{0,63}\Z",
        description="the handle of a secret, `secret://NAME`, in capitals, never its value (`reyn secret set NAME`)",
    ),
]
_PORT = "([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
Address = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^https?://(\[[0-9a-fA-F:.]+\]|[^\s/?#@:\[\]]+)(:{_PORT})?(/[^\s?#@]*)?\Z",
        description="the address of a server, like `http://127.0.0.1:8000/v1`, without a password or a query",
    ),
]


class Sizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Caps on a model's answer, checked before anything else is; how much of something large a frame shows; how large
    a file an op reads or writes."""

    answer_bytes: Positive = 1_000_000
    answer_depth: Positive = 64
    answer_ops: Positive = 64
    input_bytes: Positive = 24_000
    result_bytes: Positive = 8_000
    file_bytes: Positive = 8_000_000


class LimitKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Caps that stop a run until they are raised, and what the cap on act turns does."""

    phase_seconds: Positive | None = None
    run_seconds: Positive | None = None
    tokens: Positive | None = None
    on_limit: Literal["decide", "stop"] = "decide"
    approval_seconds: Positive = 86_400


MODES = {
    "local": ("auto", "grammar", "free"),
    "openai": ("auto", "json_schema", "json_object", "free"),
}
ONLY_FOR = {"threads": "local", "context_tokens": "local", "base_url": "openai", "key": "openai"}
"""Settings that other models do not read."""


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model with settings of its own."""

    model: str
    base_url: Address | None = None
    key: Handle | None = None
    mode: Literal["auto", "grammar", "json_schema", "json_object", "free"] = "auto"
    timeout: Positive | None = None
    retries: NotNegative = 3
    fallback: tuple[str, ...] = ()
    max_tokens: Positive = 1024
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = 0
    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    context_tokens: Annotated[int, msgspec.Meta(ge=256, le=10_000_000)] = 8192

    @property
    def patience(self) -> int:
        """Seconds for one answer. A model in this process may read for minutes, and does so in turns."""
        return self.timeout or (600 if self.model.partition(":")[0] == "local" else 120)


class FileZones(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Path patterns that need no request."""

    read: tuple[str, ...] = ("./",)
    write: tuple[str, ...] = ("output/",)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a project's operator can set."""

    model: str = ""
    """The model to use: `local`, `local:FILE.gguf`, `openai:NAME`, `scripted:FILE`, `recorded:RUN`, or a name from
    `models`."""
    models: dict[str, str | ModelSettings] = {}
    """Names for models: the classes `light`, `standard`, `strong`, or your own. Each stands for a model, or is one with
    settings: `model`, `base_url`, `key` (`secret://NAME`), `mode` (`auto`, `grammar`, `json_schema`, `json_object`,
    `free`), `timeout` in seconds, `retries`, `fallback` (names, in order), `max_tokens`, `temperature` (`null` leaves
    it to the server), `threads`, `context_tokens`."""
    max_phase_visits: Positive | None = 25
    """How often one phase may be visited in a run; `null` is no cap."""
    max_phase_retries: NotNegative = 2
    """How often a rejected answer is asked for again within one visit."""
    max_act_turns: NotNegative | None = None
    """How many act turns a visit may take, where a phase allows more; `null` leaves it to the phase."""
    limits: LimitKeys = LimitKeys()
    """Caps that stop a run: `phase_seconds`, `run_seconds` (time spent driving, not waiting), `tokens`; a call that is
    under way is not cut, its `timeout` bounds it. And `on_limit`: when a visit's act turns are used up, `decide` offers
    no more ops, `stop` stops the run."""
    permissions: dict[str, Any] = {}
    """Rules about what skills request, by permission key: `allow`, `ask` or `deny`, or a list of rules with patterns:
    `file.write: [{allow: tickets/}, {ask: reports/*.md, skill: weekly}]`. Of several that match, `deny` wins, then
    `ask`. A request without a rule is denied."""
    files: FileZones = FileZones()
    """Path patterns that every skill may `read` and `write` without a request. By default reading covers the project
    without hidden names, and writing `output/`; a run's own `workspace:` can always be used."""
    output_language: str | None = None
    """The language of natural-language output; `null` leaves it to the model."""
    strict: bool = False
    """Whether required fields are enforced at every depth of an artifact, not only at the top."""
    sizes: Sizes = Sizes()
    """Caps on a model's answer: `answer_bytes`, `answer_depth`, `answer_ops`; how much of an input or an op's result a
    frame shows: `input_bytes`, `result_bytes`; and the largest file that an op reads or writes: `file_bytes`."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The caps that stop a run without ending it; each can be raised by its name."""

    max_phase_visits: int | None = 25
    max_act_turns: int | None = None
    phase_seconds: int | None = None
    run_seconds: int | None = None
    tokens: int | None = None


class RunSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The part of the configuration that can change what a run does. Pinned when the run starts."""

    limits: Limits = Limits()
    max_phase_retries: int = 2
    output_language: str | None = None
    strict: bool = False
    sizes: Sizes = Sizes()
    on_limit: Literal["decide", "stop"] = "decide"
    approval_seconds: int = 86_400
    classes: dict[str, str] = {}
    """Which model is asked where a phase names a class."""

    @classmethod
    def of(cls, config: Config) -> RunSettings:
        return cls(
            limits=Limits(
                max_phase_visits=config.max_phase_visits,
                max_act_turns=config.max_act_turns,
                phase_seconds=config.limits.phase_seconds,
                run_seconds=config.limits.run_seconds,
                tokens=config.limits.tokens,
            ),
            max_phase_retries=config.max_phase_retries,
            output_language=config.output_language,
            strict=config.strict,
            sizes=config.sizes,
            on_limit=config.limits.on_limit,
            approval_seconds=config.limits.approval_seconds,
            classes={name: what if isinstance(what, str) else name for name, what in sorted(config.models.items())},
        )
