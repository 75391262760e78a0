"""Settings of servers that ops use: MCP servers, and the provider of web searches."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from reyn.config.models import SecretHandle, Url
from reyn.documents.trust_classes import TrustClasses, trust_classes

SearchProvider = Literal["brave", "tavily", "searxng"]

SEARCH_URLS: dict[SearchProvider, str] = {
    "brave": "https://api.search.brave.com/res/v1/web/search",
    "tavily": "https://api.tavily.com/search",
    "searxng": "",
}
"""The server of each search provider; the operator runs the one without a URL."""


class SearchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The provider of web searches."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="provider", server="url", secret="key")  # noqa: S106 - a class of keys

    provider: SearchProvider
    key: SecretHandle | None = None
    url: Url | None = None


class WebSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the web ops."""

    TRUST: ClassVar[TrustClasses] = trust_classes(entry="search")

    search: SearchSettings | None = None


ServerValue = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?!env://)(?!secret://(?![A-Z][A-Z0-9_]{0,63}\Z))",
        description="a text, or `secret://NAME` for a secret that the skill requires",
        extra={"may_be_secret": True},
    ),
]


class McpServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An MCP server: a program that Reyn starts (`command`), or one that it connects to (`url`)."""

    TRUST: ClassVar[TrustClasses] = trust_classes(
        code="command",
        server="url",
        plain="timeout",
        right="trusted",
        secret="env headers",  # noqa: S106 - names of fields
    )

    command: tuple[str, ...] = ()
    url: Url | None = None
    env: dict[str, ServerValue] = {}
    headers: dict[str, ServerValue] = {}
    timeout: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 60.0
    trusted: bool = False

    def __post_init__(self) -> None:
        if bool(self.command) == (self.url is not None):
            raise ValueError("an MCP server has either `command` or `url`")
        if (self.env and not self.command) or (self.headers and self.url is None):
            raise ValueError("`env` belongs to a `command`, and `headers` to a `url`")


class NotifySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `reyn serve` calls when a question opens or a run fails: a program, a webhook, or both."""

    TRUST: ClassVar[TrustClasses] = trust_classes(code="command", server="url link", secret="key", plain="seconds")  # noqa: S106 - a class of keys

    command: tuple[str, ...] = ()
    url: Url | None = None
    key: SecretHandle | None = None
    link: Url | None = None
    seconds: Annotated[float, msgspec.Meta(gt=0, le=60)] = 10.0

    def __post_init__(self) -> None:
        if not self.command and self.url is None:
            raise ValueError("`notify` has a `command`, a `url` or both")
        if self.key is not None and self.url is None:
            raise ValueError("`key` belongs to a `url`")


ServerName = Annotated[
    str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_-]{0,39}\Z", description="lower-case letters, digits, `_` and `-`")
]


class McpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """MCP servers by name."""

    TRUST: ClassVar[TrustClasses] = trust_classes(entry="servers")

    servers: dict[ServerName, McpServer] = {}
