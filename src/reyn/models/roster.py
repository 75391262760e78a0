"""The models of a project: resolves names and aliases, opens models on first use, orders fallback lists.

A model that the caller passes to the runtime replaces all of them. Retries and the calls themselves belong to
`reyn.kernel.world.llm_call_recorder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from reyn.config import ModelSettings
from reyn.config.models import BUILT_IN_ADAPTERS, EndpointSettings, ProjectModel
from reyn.config.values import CounterChoice, CounterName, PromptLimit
from reyn.documents import nearest_hint
from reyn.errors import AdapterInvalid, ModelUnknown, ModelUntrusted, ReynError
from reyn.models import catalog
from reyn.models.protocol import (
    ClosableModel,
    DeclaresAnswerForm,
    DeclaresPromptLimit,
    DeclaresSettings,
    Model,
    TokenizingModel,
    reads_images,
    takes_time,
)

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.journal import Journal
    from reyn.journal.kinds import AnswerForm
    from reyn.models.endpoints import Endpoint
    from reyn.secrets import Secrets


class Roster:
    """The configured models, or one `override` that answers for every name.

    `counter` is how the project counts tokens; `endpoints` are the limits of endpoints. `untrusted` are models that the
    configuration names, but that have no effect until the user trusts the project: what each would do. `permits` is
    whether the user trusts a model that another file of the project names. `default` is the model of the configuration.
    """

    def __init__(
        self,
        names: Mapping[str, str | ModelSettings],
        root: Path,
        journal: Callable[[], Journal],
        secrets: Callable[[], Secrets],
        override: Model | None = None,
        counter: CounterChoice = "auto",
        endpoints: Mapping[str, EndpointSettings] | None = None,
        untrusted: Mapping[str, str] | None = None,
        permits: Callable[[ProjectModel], bool] = lambda _: False,
        default: str = "",
    ) -> None:
        self._names = names
        self._root = root
        self._open_journal = journal
        self._open_secrets = secrets
        self._counter = counter
        self._endpoints = endpoints or {}
        self._untrusted = untrusted or {}
        self._permits = permits
        self._secrets: Secrets | None = None
        self.override = override
        """The model of the caller, which answers for every name."""
        self._override_takes_time = override is not None and takes_time(override)
        self._override_form: AnswerForm = "full" if override is None else _declared_form(override)
        self._override_reads_images = override is not None and reads_images(override)
        # Protocols are checked once: that takes longer than the rest of a call's preparation.
        declaring: object = override
        self._declares_settings = declaring if isinstance(declaring, DeclaresSettings) else None
        self._declares_limit = declaring if isinstance(declaring, DeclaresPromptLimit) else None
        self._override_has_tokenizer = isinstance(declaring, TokenizingModel)
        self._opened: dict[str, Model] = {}
        self._named = {entry for entry in (default, *names.values()) if isinstance(entry, str) and entry}
        self._named |= {
            fallback for entry in names.values() if isinstance(entry, ModelSettings) for fallback in entry.fallback
        }
        """Models that may be loaded as code: those of the configuration, and those that the caller names."""
        self._offered = frozenset((*names, *self._named))
        self._takes_time: dict[str, bool] = {}

    @cached_property
    def named(self) -> Roster:
        """The models of the configuration, also if one model answers for every name. Closed with this one."""
        if self.override is None:
            return self
        names, root, journal, secrets = self._names, self._root, self._open_journal, self._open_secrets
        rest = (self._counter, self._endpoints, self._untrusted, self._permits)
        return Roster(names, root, journal, secrets, None, *rest)

    def resolve(self, name: str) -> tuple[str, ModelSettings]:
        """Follow aliases; return the name that opens the model again, and its settings. Raises `ModelUnknown`."""
        seen = {name}
        while isinstance(found := self._names.get(name), str):
            name = found
            if name in seen:
                raise ModelUnknown(f"model `{name}` is an alias of itself", hint="Fix `models` in reyn.yaml.")
            seen.add(name)
        if found is None and name in self._untrusted:
            model = f"model `{name}`" if name else "the default model"
            raise ModelUntrusted(f"the project is not trusted, and {model} needs trust: {self._untrusted[name]}")
        return (name, found) if isinstance(found, ModelSettings) else (name, ModelSettings(model=name))

    def project_name(self, model: ProjectModel | None) -> str | None:
        """Return the name of a model that a file of the project names; `None` if it names none.

        Raises:
            ModelUntrusted: It needs trust, and the user does not trust it.
        """
        if model is None or model.name in self._names or model.name in self._untrusted:
            return model.name if model is not None else None
        need = catalog.needs_trust(model.name, self._root)
        if need and not self._permits(model):
            raise ModelUntrusted(f"the project is not trusted, and the model of {model.owner} needs trust: {need}")
        return model.name

    def offered_name(self, name: str) -> str:
        """Return the name of a model that somebody else than the user of this process asks for.

        Other names could load code or files of this machine, or use a provider that nobody configured.

        Raises:
            ModelUnknown: The configuration does not name it.
            ModelUntrusted: It needs trust, and the user does not trust it.
        """
        if name not in self._offered:  # also of a program with a model of its own
            hint = nearest_hint(name, self._names) or "Use a name under `models` in reyn.yaml."
            raise ModelUnknown(f"the configuration of the project names no model `{name:.200}`", hint=hint)
        self.resolve(name)
        return name

    def check_name(self, name: str) -> None:
        """Check that a name belongs to a model, without opening it. Raises `ModelUnknown`."""
        catalog.check_adapter(self.resolve(name)[1].model)

    def open(self, name: str) -> Model:
        """Return the model of a name, opened on first use."""
        if self.override is not None:
            return self.override
        key, settings = self.resolve(name)
        if key not in self._opened:
            self._check_code(key, settings)
            try:
                self._opened[key] = catalog.open_model(key, settings, self._root, self._open_journal(), self.secrets)
            except ModelUnknown as error:
                raise ModelUnknown(error.message, hint=nearest_hint(name, self._names) or error.hint) from error
        return self._opened[key]

    def preload(self, name: str) -> None:
        """Import the SDK of a model without opening it. Another thread may call it; `open` reports the errors."""
        if self.override is None:
            with suppress(ReynError, ImportError):
                catalog.import_sdk(self.resolve(name)[1].model)

    def _check_code(self, key: str, settings: ModelSettings) -> None:
        """Check that the configuration or the caller names a model that is code. A journal may not."""
        if key not in self._names and key not in self._named and catalog.is_reference(settings.model):
            hint = "Name the model again, or add it under `models` in reyn.yaml."
            raise AdapterInvalid(f"model `{key}` is code, which a recorded run alone may not load", hint=hint)

    @property
    def override_settings(self) -> ModelSettings | None:
        """Return the settings that the model of the caller declares, if it does."""
        return self._declares_settings.settings if self._declares_settings is not None else None

    def settings(self, name: str) -> ModelSettings:
        """Return the settings of a model; defaults for an unknown name, which fails when it is opened."""
        try:
            return self.resolve(name)[1]
        except ModelUnknown:
            return ModelSettings(model=name)

    def identity(self, name: str) -> str:
        """Return which model a name stands for now, to tell whose thoughts are recorded."""
        if self.override is not None:
            return self.override.name
        settings = self.settings(name)
        return f"{settings.model}@{settings.base_url}" if settings.base_url else settings.model

    def fallbacks(self, name: str) -> list[str]:
        """Return the models to try in order: the named one, its fallback list, then their fallback lists."""
        names = [name]
        for one in names:
            names.extend(other for other in dict.fromkeys(self.settings(one).fallback) if other not in names)
        return names

    def ready(self, named: str | None, recorded: str = "") -> str:
        """Check that a model or one of its fallbacks can be opened; return the name that a run records.

        Args:
            named: The model that the caller or the configuration names, if they do.
            recorded: The model of the recorded run otherwise.
        """
        if self.override is not None:
            return self.override.name
        if named:
            self._named.add(named)
        key, _ = self.resolve(named or recorded)
        errors: list[ReynError] = []
        for fallback in self.fallbacks(key):
            try:
                self.open(fallback)
            except ReynError as error:
                errors.append(error)
            else:
                return key
        raise errors[0]

    def answer_form(self, name: str) -> AnswerForm:
        """Return the form in which a model is asked to answer, by its settings or by its adapter."""
        if self.override is not None:
            return self._override_form
        settings = self.settings(name)
        if settings.answer_form != "auto":
            return settings.answer_form
        if not settings.model:
            return "full"
        adapter = settings.model.partition(":")[0]
        if adapter in ("anthropic", "gemini") or (adapter == "openai" and settings.base_url is None):
            return "tools"  # every chat model there has native tools; of other servers, Reyn cannot know
        if adapter in BUILT_IN_ADAPTERS and adapter not in catalog.INSTANT_ADAPTERS:
            return "short"
        try:
            return _declared_form(self.open(name))
        except ReynError:
            return "full"  # the call itself reports why the model cannot be opened

    def prompt_limit(self, name: str) -> PromptLimit:
        """Return how many tokens a prompt for a model and its fallbacks may have, and how to count them."""
        if self.override is not None:
            declared = self._declares_limit.max_prompt_tokens if self._declares_limit is not None else None
            limits, has_tokenizer = [declared], self._override_has_tokenizer
        else:
            models = [self.settings(fallback) for fallback in self.fallbacks(name)]
            limits = [model.max_prompt_tokens for model in models]
            has_tokenizer = all(model.model.partition(":")[0] == "local" for model in models)
        known = [limit for limit in limits if limit is not None]
        return PromptLimit(min(known, default=None), self._counter_name(has_tokenizer=has_tokenizer))

    def _counter_name(self, *, has_tokenizer: bool) -> CounterName:
        if self._counter in ("chars", "bytes"):
            return self._counter
        if has_tokenizer:
            return "model"
        return "o200k_base" if self._counter == "exact" else "bytes"

    def endpoint(self, settings: ModelSettings) -> Endpoint | None:
        """Return the endpoint of a model with its limits; `None` if the model has none."""
        from reyn.models.endpoints import ENDPOINTS, endpoint_name, endpoint_settings

        name = endpoint_name(settings)
        if not name:
            return None
        return ENDPOINTS.get(name, endpoint_settings(name, settings.model.partition(":")[0], self._endpoints))

    def reads_images(self, name: str) -> bool:
        """Return whether a model is sent images. Others get a description, and are not asked about new images."""
        return self.settings(name).images if self.override is None else self._override_reads_images

    def takes_time(self, name: str) -> bool:
        """Return whether answers of a model, or of one of its fallbacks, take time."""
        if self.override is not None:
            return self._override_takes_time
        if name not in self._takes_time:
            models = [self.settings(fallback).model for fallback in self.fallbacks(name)]
            self._takes_time[name] = any(model.partition(":")[0] not in catalog.INSTANT_ADAPTERS for model in models)
        return self._takes_time[name]

    def secrets(self) -> Secrets:
        """Return the secrets, opened when a model first needs one."""
        if self._secrets is None:
            self._secrets = self._open_secrets()
        return self._secrets

    def scrub(self, text: str) -> str:
        """Replace the values of secrets in a text. Secrets that no model has opened cannot occur in it."""
        return text if self._secrets is None else self._secrets.scrubber.scrub(text)

    @property
    def known_secrets(self) -> int:
        """The number of values that `scrub` replaces. Texts that were scrubbed with fewer may have others."""
        return 0 if self._secrets is None else self._secrets.scrubber.count

    def scrub_value(self, value: Any) -> Any:
        """Replace the values of secrets in a JSON value."""
        return value if self._secrets is None else self._secrets.scrubber.scrub_value(value)

    def split(self, text: str) -> tuple[str, str]:
        """Split streamed text into a scrubbed part and a rest that may be the beginning of a secret."""
        return (text, "") if self._secrets is None else self._secrets.scrubber.split(text)

    async def close(self) -> None:
        """Close the models that were opened here; an override belongs to the caller."""
        for model in self._opened.values():
            if isinstance(model, ClosableModel):
                await model.aclose()
        self._opened.clear()
        if "named" in vars(self) and self.named is not self:
            await self.named.close()


def _declared_form(model: Model) -> AnswerForm:
    return model.answer_form if isinstance(model, DeclaresAnswerForm) else "full"
