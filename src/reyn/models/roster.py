"""The names of models become models: what the operator calls them, what they are, what is done when one cannot be had.

Each is opened when it is first asked; adapters are imported then, and not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.config import ModelSettings
from reyn.documents import nearest
from reyn.errors import ModelUnknown, ReynError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from reyn.journal import Journal
    from reyn.models.protocol import Model
    from reyn.secrets import Secrets


class Roster:
    """`given`, if there is one, stands for every name."""

    def __init__(
        self,
        names: Mapping[str, str | ModelSettings],
        root: Path,
        journal: Journal,
        secrets: Callable[[], Secrets],
        given: Model | None = None,
    ) -> None:
        self._names = names
        self._root = root
        self._journal = journal
        self._open_secrets = secrets
        self._secrets: Secrets | None = None
        self._given = given
        self._opened: dict[str, Model] = {}
        self._slow: dict[str, bool] = {}

    def resolve(self, name: str) -> tuple[str, ModelSettings]:
        """The name that opens a model again, and its settings; an alias is followed to what it stands for."""
        seen = {name}
        while isinstance(found := self._names.get(name), str):
            name = found
            if name in seen:
                raise ModelUnknown(f"the model `{name}` stands for itself", hint="Mend `models` in reyn.yaml.")
            seen.add(name)
        return (name, found) if isinstance(found, ModelSettings) else (name, ModelSettings(model=name))

    def open(self, name: str) -> Model:
        if self._given is not None:
            return self._given
        key, settings = self.resolve(name)
        if key not in self._opened:
            from reyn.models.catalog import open_model

            try:
                self._opened[key] = open_model(key, settings, self._root, self._journal, self.secrets)
            except ModelUnknown as error:
                raise ModelUnknown(error.message, hint=nearest(name, self._names) or None) from error
        return self._opened[key]

    @property
    def is_given(self) -> bool:
        """Whether a model was handed in; it is asked whatever the name."""
        return self._given is not None

    def settings(self, name: str) -> ModelSettings:
        """Of a name that stands for nothing, the defaults: whoever opens it is told why that cannot be done."""
        try:
            return self.resolve(name)[1]
        except ModelUnknown:
            return ModelSettings(model=name)

    def line(self, name: str) -> list[str]:
        """Who is asked, in order: a model, its list, and behind it the lists of those."""
        line = [name]
        for one in line:
            line.extend(other for other in dict.fromkeys(self.settings(one).fallback) if other not in line)
        return line

    def ready(self, name: str) -> str:
        """The name under which a run asks a model; an error if neither it nor any that may take its place is here."""
        if self._given is not None:
            return self._given.name
        key, _ = self.resolve(name)
        faults: list[ReynError] = []
        for one in self.line(key):
            try:
                self.open(one)
            except ReynError as error:
                faults.append(error)
            else:
                return key
        raise faults[0]

    def takes_time(self, name: str) -> bool:
        """Whether the model of a name, or one that may take its place, keeps a run waiting."""
        if self._given is not None:
            return bool(getattr(self._given, "takes_time", True))
        if name not in self._slow:
            from reyn.models.catalog import AT_ONCE

            models = [self.settings(one).model for one in self.line(name)]
            self._slow[name] = any(model.partition(":")[0] not in AT_ONCE for model in models)
        return self._slow[name]

    def secrets(self) -> Secrets:
        """Opened when a model first needs one."""
        if self._secrets is None:
            self._secrets = self._open_secrets()
        return self._secrets

    def scrub(self, text: str) -> str:
        """Text without the values of secrets; of one that nobody asked for, nothing can have got out."""
        return text if self._secrets is None else self._secrets.scrubber.scrub(text)

    def split(self, text: str) -> tuple[str, str]:
        """Of a text that goes on: what can be told, without secrets, and what has to wait for more."""
        return (text, "") if self._secrets is None else self._secrets.scrubber.split(text)

    async def close(self) -> None:
        """Let go of the connections of the opened models."""
        for model in self._opened.values():
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()
        self._opened.clear()
