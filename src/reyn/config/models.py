"""Settings of models and of the servers that answer for them, and facts about the adapters. Field names are the keys of
`reyn.yaml`."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

import msgspec

from reyn.config.budgets import PriceSettings
from reyn.documents.trust_classes import TrustClasses, trust_classes

Positive = Annotated[int, msgspec.Meta(gt=0)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
EFFORTS = "`none`, `low`, `medium`, `high`, or a number of tokens from 1 to 1000000"
Effort = Annotated[
    Literal["none", "low", "medium", "high"] | Annotated[int, msgspec.Meta(ge=1, le=1_000_000)],
    msgspec.Meta(description=EFFORTS),
]
"""How much a model thinks before it answers."""
THOUGHT_TOKENS = {"none": 0, "low": 2048, "medium": 8192, "high": 24_576}
"""The tokens that an effort in words leaves for thoughts, besides the answer."""


def thought_tokens(effort: Effort | None) -> int:
    """Return the tokens to leave for thoughts, besides the answer; 0 if the effort is not set."""
    if effort is None:
        return 0
    return effort if isinstance(effort, int) else THOUGHT_TOKENS[effort]


SecretHandle = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(secret://[A-Z][A-Z0-9_]{0,63}|env://[A-Za-z_][A-Za-z0-9_]{0,127})\Z",
        description="`secret://NAME`, `env://VARIABLE` or `null`; do not put the key itself here",
        extra={"may_be_secret": True},
    ),
]
JournalUrl = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(|secret://[A-Z][A-Z0-9_]{0,63}|env://[A-Za-z_][A-Za-z0-9_]{0,127}|postgres(ql)?://[^\s]+)\Z",
        description="`secret://NAME`, `env://VARIABLE` or `postgresql://USER@HOST/DATABASE`",
        extra={"may_be_secret": True},
    ),
]

EngineUrl = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(|outbox|absurd|secret://[A-Z][A-Z0-9_]{0,63}|env://[A-Za-z_][A-Za-z0-9_]{0,127}|temporal://[^\s]+)\Z",
        description="`absurd`, `outbox`, `temporal://HOST:PORT/NAMESPACE`, `secret://NAME` or `env://VARIABLE`",
        extra={"may_be_secret": True},
    ),
]


_HOST = r"(\[[^\]@]*\]|(?:[^\[\]:/?#@,%]|%2[Ff])*)(:[0-9]*)?"
"""A host, or the folder of a socket, in which no sign but `/` is encoded."""
_ADDRESS = re.compile(rf"(?:[^/?#@]*@)?({_HOST}(?:,{_HOST})*(?:/[^?#@]*)?)(\?[^#@]*)?\Z")


def without_credentials(url: str) -> str:
    """Return the address of a journal or an engine as it may be printed: without user, password and parameters.

    Of one that has an `@`, a `:` or a `#` where no address has it, or there an encoded sign, nothing is printed: a
    password may have a `/`.
    """
    scheme, found, rest = url.partition("://")
    if scheme not in ("postgresql", "postgres", "temporal") or not found:
        return url
    scheme = "postgresql" if scheme == "postgres" else scheme
    parts = _ADDRESS.match(rest)
    return f"{scheme}://{parts[1] if parts is not None else '…'}"


_PORT = "([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
Url = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^https?://(\[[0-9a-fA-F:.]+\]|[^\s/?#@:\[\]]+)(:{_PORT})?(/[^\s?#@]*)?\Z",
        description="the URL of a server without credentials or a query, such as `http://127.0.0.1:8000/v1`",
        extra={"may_be_secret": True},
    ),
]


class Adapter(msgspec.Struct, frozen=True):
    """Facts about an adapter for model servers.

    Attributes:
        url: The server of models without a `base_url`; empty if there is no such server.
        variable: The environment variable that usually has the key.
        package: The package that it needs; its extra has the name of the adapter.
        class_name: Its class, in the module of `reyn.models` that has the name of the adapter.
        modes: Its output modes, the preferred one first.
        url_hint: What the URL usually looks like, as the continuation of a sentence.
    """

    url: str
    variable: str
    package: str
    class_name: str
    modes: tuple[str, ...] = ("json_schema", "json_object", "free")
    url_hint: str = ""


ADAPTERS = {
    "openai": Adapter(
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        "openai",
        "OpenAIModel",
        url_hint=", which usually ends in `/v1`",
    ),
    "anthropic": Adapter(
        "https://api.anthropic.com", "ANTHROPIC_API_KEY", "anthropic", "AnthropicModel", ("json_schema", "free")
    ),
    "gemini": Adapter("https://generativelanguage.googleapis.com", "GEMINI_API_KEY", "httpx2", "GeminiModel"),
    "litellm": Adapter("", "", "litellm", "LiteLLMModel"),
}
"""The adapters for model servers."""
ADAPTER_PACKAGES = {"local": "xllamacpp"} | {name: adapter.package for name, adapter in ADAPTERS.items()}
"""The package that an adapter needs."""
BUILT_IN_ADAPTERS = frozenset(("local", "scripted", "recorded", *ADAPTERS))
"""The adapters that are part of the package."""
MODES: dict[str, tuple[str, ...]] = {"local": ("auto", "grammar", "free")}
MODES |= {name: ("auto", *adapter.modes) for name, adapter in ADAPTERS.items()}
"""The output modes of each adapter."""
ADAPTERS_OF_SETTING = {
    "threads": ("local",),
    "two_step": ("local",),
    "base_url": tuple(ADAPTERS),
    "key": tuple(ADAPTERS),
    "images": tuple(ADAPTERS),
    "effort": ("local", *ADAPTERS),
}
"""Settings that only some adapters read."""


LOCAL_WINDOW = 8192
"""The context window of `local` models without `context_tokens`."""


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of one model.

    Attributes:
        model: The model, as in `model` above; required.
        base_url: The address of a server with the API of the adapter.
        key: The key of the server: `secret://NAME` or `env://VARIABLE`.
        mode: How output is constrained: `auto`, `grammar`, `json_schema`, `json_object` or `free`.
        timeout: Maximum time for one answer in seconds; 120, for `local` models 600.
        retries: Maximum number of retries of a call after a transient error.
        fallback: Models to try next, in order.
        answer_form: The form of an answer: `auto`, `full`, `short` or `tools`.
        two_step: Whether to choose before the answer is written: `auto`, `always` or `never`.
        images: Whether it reads images.
        effort: How much it thinks: `none`, `low`, `medium`, `high` or a number of tokens.
        max_tokens: Maximum number of tokens of an answer, without thoughts.
        temperature: From 0 to 2; `null` uses the server's default.
        threads: Number of threads of a `local` model.
        context_tokens: The window of the model; 8192 for `local` models, unknown for others.
        price: The price of a million tokens: `{input: 2.5, output: 10}`, and where they differ `cached_input`,
            `cache_write` and `currency`.
    """

    TRUST: ClassVar[TrustClasses] = trust_classes(
        model="model fallback",
        server="base_url",
        secret="key",  # noqa: S106 - a class of keys
        section="price",
        plain="mode timeout retries answer_form two_step images effort max_tokens temperature threads context_tokens",
    )

    model: str
    base_url: Url | None = None
    key: SecretHandle | None = None
    mode: Literal["auto", "grammar", "json_schema", "json_object", "free"] = "auto"
    timeout: Positive | None = None
    retries: NotNegative = 3
    fallback: tuple[str, ...] = ()
    answer_form: Literal["auto", "full", "short", "tools"] = "auto"
    two_step: Literal["auto", "always", "never"] = "auto"
    images: bool = False
    effort: Effort | None = None
    max_tokens: Positive = 1024
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = 0
    threads: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    context_tokens: Annotated[int, msgspec.Meta(ge=256, le=10_000_000)] | None = None
    price: PriceSettings | None = None

    @property
    def window(self) -> int | None:
        """The context window in tokens, for prompt and answer together; `None` if it is unknown."""
        return self.context_tokens or (LOCAL_WINDOW if self.model.partition(":")[0] == "local" else None)

    @property
    def max_prompt_tokens(self) -> int | None:
        """The window less the tokens reserved for thoughts and answer, which are at most half of it."""
        return None if self.window is None else self.window - min(self.answer_tokens(), self.window // 2)

    def answer_tokens(self, effort: Effort | None = None) -> int:
        """Return the most tokens of an answer with its thoughts, if a call asks for an effort, or for none."""
        return self.max_tokens + thought_tokens(self.effort if effort is None else effort)

    @property
    def timeout_seconds(self) -> int:
        """Maximum time for one answer. A local model may read its prompt for minutes, and its calls run in turn."""
        return self.timeout or (600 if self.model.partition(":")[0] == "local" else 120)


class ProjectModel(msgspec.Struct, frozen=True):
    """A model that a file of the project names besides its configuration. It is no name that the caller passed.

    Attributes:
        name: The model.
        owner: What names it, such as `agent helper`.
    """

    name: str
    owner: str


class EndpointSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of a model endpoint that all runs share."""

    TRUST: ClassVar[TrustClasses] = trust_classes(
        plain="concurrency requests_per_minute tokens_per_minute failures cooldown"
    )

    concurrency: Positive | None = None
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    failures: Positive | None = 10
    cooldown: Positive = 30


EndpointName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(default|[a-z][a-z0-9_.:-]{0,79}|https?://[^\s/?#@]+)\Z",
        description="the origin of a server, the name of an adapter, or `default`",
    ),
]


ModelEntry = Annotated[
    str | ModelSettings, msgspec.Meta(description="the name of a model or a mapping of its settings")
]
