"""Configuration as frozen values. Field names are the keys of `reyn.yaml`; the docstring of `Config` documents them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

import msgspec

from reyn.config.budgets import BudgetsSettings, Caps, skill_caps
from reyn.config.environments import EnvironmentName, EnvironmentSettings
from reyn.config.models import (
    EndpointName,
    EndpointSettings,
    EngineUrl,
    JournalUrl,
    ModelEntry,
    NotNegative,
    Positive,
)
from reyn.config.servers import McpSettings, NotifySettings, WebSettings
from reyn.config.workers import WorkersSettings
from reyn.documents.trust_classes import TrustClasses, trust_classes

AtLeastTwo = Annotated[int, msgspec.Meta(ge=2)]


class Sizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Size limits of answers, frames and files. The limits of an answer are checked before anything else."""

    TRUST: ClassVar[TrustClasses] = trust_classes(
        plain="answer_bytes answer_depth answer_ops input_bytes result_bytes file_bytes visit_read_bytes "
        "visit_matched_bytes visit_recorded_bytes"
    )

    answer_bytes: Positive = 1_000_000
    answer_depth: Positive = 64
    answer_ops: Positive = 64
    input_bytes: Positive = 24_000
    result_bytes: Positive = 8_000
    file_bytes: Positive = 8_000_000
    visit_read_bytes: Positive = 200_000_000
    visit_matched_bytes: Positive = 500_000_000
    visit_recorded_bytes: Positive = 32_000_000


class LimitKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits that stop a run until they are raised, and the policy for the limit on act turns."""

    TRUST: ClassVar[TrustClasses] = trust_classes(
        limit="message_runs message_depth message_tokens sub_runs model_calls",
        plain="phase_seconds run_seconds tokens no_progress on_limit approval_seconds",
    )

    phase_seconds: Positive | None = None
    run_seconds: Positive | None = None
    tokens: Positive | None = None
    no_progress: AtLeastTwo | None = 3
    on_limit: Literal["decide", "stop"] = "decide"
    approval_seconds: Positive = 86_400
    message_runs: Positive | None = 50
    message_depth: Positive | None = 5
    message_tokens: Positive | None = 2_000_000
    sub_runs: Positive | None = 1_000
    model_calls: Positive | None = 10_000


class AgentsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of messages between agents."""

    TRUST: ClassVar[TrustClasses] = trust_classes(limit="max_depth", plain="reply_seconds")

    max_depth: Positive = 3
    reply_seconds: Positive = 600


class SandboxSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The backend that isolates programs, and the most that a program or a python step may use."""

    TRUST: ClassVar[TrustClasses] = trust_classes(
        right="backend", limit="seconds memory_bytes output_bytes processes file_bytes"
    )

    backend: Literal["auto", "bubblewrap", "landlock"] = "auto"
    seconds: Positive = 600
    memory_bytes: Annotated[int, msgspec.Meta(ge=64_000_000)] = 512_000_000
    output_bytes: Positive = 1_000_000
    processes: Positive = 64
    file_bytes: Positive = 64_000_000


PythonSandbox = Literal["auto", "monty", "process"]


class PythonSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sandbox of safe python steps, and the time that a step has unless the skill sets its own."""

    TRUST: ClassVar[TrustClasses] = trust_classes(right="sandbox", plain="seconds")

    sandbox: PythonSandbox = "auto"
    seconds: Positive = 30


class RetrievalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What search indexes are embedded with."""

    TRUST: ClassVar[TrustClasses] = trust_classes(model="embedder")

    embedder: str = "static"


class FileZones(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Path patterns that need no request."""

    TRUST: ClassVar[TrustClasses] = trust_classes(zone="read write")

    read: tuple[str, ...] = ("./",)
    write: tuple[str, ...] = ("output/",)


ManifestName = Literal["all", "default", "none"]
"""The manifests that have a name."""
HandoffField = Literal["goal", "epic_id", "verdicts", "artifacts_produced", "decisions_made", "open_risks", "narrative"]
HANDOFF_FIELDS: tuple[str, ...] = get_args(HandoffField)
"""The fields of a handoff that a phase can select."""


class HandoffSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The handoffs that a phase receives, whether the model is asked to add one, and the size of the whole prompt.

    A key that is not set is inherited from the level above: a phase from its skill, a skill from the project.
    `manifest` is what the word alone would mean; the other keys change it.
    """

    TRUST: ClassVar[TrustClasses] = trust_classes(
        plain="manifest handoff_fields narrative_cap max_tokens ask_handoff max_prompt_tokens"
    )

    manifest: ManifestName | None = None
    handoff_fields: tuple[HandoffField, ...] | msgspec.UnsetType | None = msgspec.UNSET  # `null` is all, like `[]`
    narrative_cap: NotNegative | None = None
    max_tokens: NotNegative | None = None
    ask_handoff: bool | None = None
    max_prompt_tokens: Positive | None = None

    @property
    def changes_manifest(self) -> bool:
        """Whether a key about handoffs is set, besides `manifest`; `max_prompt_tokens` alone asks for no handoffs."""
        others = (self.narrative_cap, self.max_tokens, self.ask_handoff)
        return self.handoff_fields is not msgspec.UNSET or others != (None, None, None)


CounterChoice = Literal["auto", "chars", "bytes", "exact"]
"""How a project counts tokens."""


class ProjectContext(HandoffSettings, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The `context` of a project, which also chooses how tokens are counted."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="counter")

    counter: CounterChoice = "auto"


_CHOICES = "`all`, `default`, `none`, or a mapping with `manifest`, `handoff_fields`, `narrative_cap`, `max_tokens`, "
ContextChoice = Annotated[
    ManifestName | HandoffSettings, msgspec.Meta(description=f"{_CHOICES}`ask_handoff` and `max_prompt_tokens`")
]
ProjectContextChoice = Annotated[
    ManifestName | ProjectContext,
    msgspec.Meta(description=f"{_CHOICES}`ask_handoff`, `max_prompt_tokens` and `counter`"),
]
CounterName = Literal["chars", "bytes", "o200k_base", "model"]
"""A way to count tokens; `model` is the tokenizer of the model itself."""


class PromptLimit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The tokens that a prompt for a model may have, `None` if its window is unknown, and how they are counted."""

    tokens: int | None = None
    counter: CounterName = "bytes"


ToolName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z",
        description="a module and a tool in it, such as `mypackage.tools:search`",
    ),
]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration of a project.

    Attributes:
        model: The default model: a name from `models`, `local`, `local:FILE.gguf`, `openai:NAME`, `anthropic:NAME`,
            `gemini:NAME`, `litellm:PROVIDER/NAME`, `scripted:FILE`, `recorded:RUN`, `ADAPTER:NAME` for an adapter of an
            installed package, or `package.module:Class`. A project needs trust for a model that loads code or a file,
            reads a script outside of it, or uses credentials of the environment.
        models: Names for models: the classes `light`, `standard` and `strong`, or names of your own. Each is an alias
            of a model or a mapping of [settings](#settings-of-a-model).
        endpoints: Limits of model endpoints, shared by all processes with the same journal: `{https://api.openai.com:
            {concurrency: 8}}`. A key is the origin of a server, the name of an adapter (`anthropic`), or `default`.
            `concurrency` is the number of calls at the same time; `requests_per_minute` and `tokens_per_minute` limit
            any 60 seconds; calls wait. After `failures` failed calls of a process in a row (10; `null` switches it
            off), it does not call the endpoint for `cooldown` seconds (30), then tests it with one call.
        max_phase_visits: Maximum number of visits of one phase in a run; `null` means no limit.
        max_phase_retries: Maximum number of retries after a rejected answer, per visit.
        max_act_turns: Maximum number of act turns per visit, if the phase allows more; `null` uses the phase's own
            limit.
        limits: Limits that stop a run: `phase_seconds`, `run_seconds` (execution time, without waits) and `tokens`.
            They do not interrupt a model call in progress; its `timeout` does. `no_progress` is how often a phase may
            give the same artifact for the same input, or call a failing op with the same arguments, before the run
            stops; `null` means no limit. `on_limit` applies when a visit has used its act turns: `decide` stops
            offering ops, `stop` stops the run. `approval_seconds` is how long an approval stays open. In a
            conversation, one message or reply of a person may start `message_runs` runs, at any depth, have
            `message_depth` reports of background runs lead to one another, and use `message_tokens` tokens. Any other
            run may start `sub_runs` runs, at any depth. Both may lead to `model_calls` model calls; a reply of a person
            begins a new count. Beyond that, an op that starts a run asks; a step and a model call stop the run. `null`
            means no limit.
        agents: Messages between agents: `max_depth` is how many agents may ask one another in a chain, `reply_seconds`
            is how long an agent may take to reply before the agent that asks continues without it.
        budgets: What model calls may use, in `tokens` and `cost`: of a `run` with its sub-runs, and of a `day` in all
            processes of the project. `skill: {NAME: {run: …, day: …}}` limits one skill. A call that could exceed a
            budget is not made; the run stops. `currency` is the currency of `cost`. `currencies` has the value of other
            currencies in it, such as `{EUR: 1.1}`. Days begin at midnight in `timezone`.
        permissions: Rules for the requests of skills, by permission key: `allow`, `ask` or `deny`, or a list of rules
            with patterns: `file.write: [{allow: tickets/}, {ask: reports/*.md, skill: weekly}]`. If several match,
            `deny` wins, then `ask`. A request without a rule is denied. Rules of several sources are added to each
            other.
        files: Path patterns that every skill may `read` and `write` without a request. By default reading covers the
            project without hidden names, and writing `output/`; a run's own `workspace:` can always be used.
        tools: Python tools to register as ops: `[mypackage.tools:search]`. Modules are found in the project's folder
            and among the installed packages. Loading code needs trust.
        sandbox: How programs and python steps are isolated: `backend` (`auto`, `bubblewrap` or `landlock`), and the
            most that one of them may use, whatever a model asks for: `seconds`, `memory_bytes`, `output_bytes` of each
            output stream, `processes` at the same time (1: it may not start any), `file_bytes` of a file that it
            writes. Another backend and higher limits than the default need trust.
        python: Python steps. `sandbox` is where safe ones run: `auto` is Monty for modules that it can run, and CPython
            in the process sandbox for all others; `process` is always CPython; `monty` is always Monty, and steps that
            need more fail. `seconds` is the time of a step without a `timeout` of its own, within `sandbox.seconds`.
        environments: Python environments with packages, which skills name: `{NAME: {requirements: FILE}}` is made from
            a requirements file with hashes, `{NAME: {path: FOLDER}}` is a virtual environment that exists. A run never
            makes or changes one. Needs trust in the project.
        context: The handoffs that phases receive, unless a skill or a phase has a `context` of its own: `all`,
            `default`, `none`, or a mapping with `manifest`, `handoff_fields`, `narrative_cap`, `max_tokens` and
            `ask_handoff`. `null` means none. `max_prompt_tokens` limits the whole prompt of a phase, at most to the
            model's `context_tokens` less its `max_tokens`. `counter` is how the tokens of prompts are counted. `chars`
            and `bytes` estimate four characters or bytes a token, calibrated by the usage that a provider reports;
            until then, a prompt takes at most four fifths of the model's window. `exact` is the tokenizer of a `local`
            model, and `o200k_base` for others (needs the extra `tokens`); it also counts handoffs. `auto` is the
            tokenizer of a `local` model, and `bytes` for others.
        mcp: MCP servers, whose tools are ops: `servers: {NAME: {command: [PROGRAM, ARGUMENT]}}` or `{url: URL}`. More
            keys: `env` of a program and `headers` of a URL (texts or `secret://NAME`), `timeout` of a call in seconds,
            and `trusted`: whether the server's hints about the effects of its tools count. Starting a program needs
            trust in the project.
        web: The provider of the op `web_search`: `search: {provider: NAME, key: secret://NAME}`. Providers: `brave`,
            `tavily` and `searxng`, which needs the `url` of its server.
        retrieval: Search indexes. `embedder` makes the vectors of passages: `static` (vectors of words in the extra
            `retrieval`: no key, no network), `none` (search by words alone), or a model that embeds: a name from
            `models`, `openai:NAME` for any endpoint with OpenAI's API, or `local:FILE.gguf`. An index that was made
            with another embedder has to be written again.
        notify: What `reyn serve` calls when a question opens or a run fails: `command: [PROGRAM, ARGUMENT]` or `url`,
            the address of a webhook, or both. `key` (`secret://NAME`) is sent to the webhook as a bearer token, `link`
            is the address of the web pages if users reach them under another one, `seconds` (10) the time of one call.
            Needs trust in the project, and a rule in `permissions.web` that allows the host of the webhook.
        journal: Where runs are recorded: by default in `.reyn/journal.db`, or at `postgresql://USER@HOST/DATABASE`,
            which several machines share (needs the extra `postgres`). An address with a password belongs in a secret:
            `secret://NAME` or `env://VARIABLE`. Parameters of the address, beside those of libpq: `schema` (`reyn`),
            one per project of the database; `project`, the name of the project (by default that of its folder);
            `lease` (10), the seconds after which another machine takes over from one that is gone.
        engine: Wakes the workers that execute submitted runs. On PostgreSQL, the default is `absurd`: Absurd, in the
            database of the journal. `temporal://HOST:PORT/NAMESPACE` is a server of Temporal (needs the extra
            `temporal`); parameters: `tls` (`false`) and `api_key`. An address with a key belongs in a secret. `outbox`
            needs nothing but the journal; it is the default of journals in `.reyn/`, which serve one machine.
        workers: Submitted runs. `queue: {NAME: {concurrency: 4, priority: 10}}` and `skill: {NAME: {…}}` limit how many
            runs of a queue or of a skill all workers together execute at once. The others are queued: those of the
            highest priority come first. A run has the priority that it is submitted with; by default that of its skill,
            else that of its queue, else 0. `labels` of a skill are those that a worker needs to take its runs; the
            `labels` of `workers` itself are those that the workers of this machine have.
        output_language: Language of natural-language output; `null` lets the model choose.
        strict: Enforce required fields at every depth of an artifact instead of at the top level only.
        sizes: Size limits. An answer: `answer_bytes`, `answer_depth`, `answer_ops`. An input or an op result in a
            prompt; a larger one is truncated: `input_bytes`, `result_bytes`. A file that an op reads or writes:
            `file_bytes`. All ops of one visit together: bytes to read (`visit_read_bytes`), to search
            (`visit_matched_bytes`), and to record as results and contents of files (`visit_recorded_bytes`). An op that
            exceeds a limit fails.
    """

    TRUST: ClassVar[TrustClasses] = trust_classes(
        model="model",
        entry="models notify environments",
        rules="permissions",
        code="tools",
        server="journal engine",
        section="workers endpoints limits agents budgets files sandbox python context mcp web retrieval sizes",
        plain="max_phase_visits max_phase_retries max_act_turns output_language strict",
    )

    model: str = ""
    models: dict[str, ModelEntry] = {}
    endpoints: dict[EndpointName, EndpointSettings] = {}
    max_phase_visits: Positive | None = 25
    max_phase_retries: NotNegative = 2
    max_act_turns: NotNegative | None = None
    limits: LimitKeys = LimitKeys()
    agents: AgentsSettings = AgentsSettings()
    budgets: BudgetsSettings = BudgetsSettings()
    permissions: dict[str, Any] = {}
    files: FileZones = FileZones()
    tools: tuple[ToolName, ...] = ()
    sandbox: SandboxSettings = SandboxSettings()
    python: PythonSettings = PythonSettings()
    environments: dict[EnvironmentName, EnvironmentSettings] = {}
    context: ProjectContextChoice | None = None
    mcp: McpSettings = McpSettings()
    web: WebSettings = WebSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    notify: NotifySettings | None = None
    journal: JournalUrl = ""
    engine: EngineUrl = ""
    workers: WorkersSettings = WorkersSettings()
    output_language: str | None = None
    strict: bool = False
    sizes: Sizes = Sizes()


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The limits of a run. Reaching one stops the run; `--raise NAME=N` raises it.

    Money is in billionths of the currency. The budgets of a day and of the run's skill are not stored here: the former
    are those of the current configuration, the latter depend on the skill. Their names are for raised values.
    """

    max_phase_visits: int | None = 25
    max_act_turns: int | None = None
    phase_seconds: int | None = None
    run_seconds: int | None = None
    tokens: int | None = None
    no_progress: int | None = 3
    message_runs: int | None = 50
    message_depth: int | None = 5
    message_tokens: int | None = 2_000_000
    sub_runs: int | None = 1_000
    model_calls: int | None = 10_000
    max_prompt_tokens: int | None = None
    run_tokens: int | None = None
    run_cost: int | None = None
    skill_tokens: int | None = None
    skill_cost: int | None = None
    day_tokens: int | None = None
    day_cost: int | None = None
    skill_day_tokens: int | None = None
    skill_day_cost: int | None = None
    overrun: int | None = 0


class RunSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The configuration that can change the result of a run, pinned when the run starts.

    Attributes:
        classes: Model class → the model that answers phases of that class.
        answer_forms: The form in which each of these models is asked to answer.
        prompt_limits: The prompt limit of each of these models.
        skill_budgets: The budget of a run of each of these skills.
        currency: The currency of the budgets.
    """

    limits: Limits = Limits()
    max_phase_retries: int = 2
    output_language: str | None = None
    strict: bool = False
    sizes: Sizes = Sizes()
    on_limit: Literal["decide", "stop"] = "decide"
    approval_seconds: int = 86_400
    classes: dict[str, str] = {}
    answer_forms: dict[str, Literal["full", "short", "tools"]] = {}
    context: ProjectContextChoice | None = None
    prompt_limits: dict[str, PromptLimit] = {}
    skill_budgets: dict[str, Caps] = {}
    currency: str = "USD"

    @property
    def counter(self) -> CounterChoice:
        """The token counter of the project."""
        return self.context.counter if isinstance(self.context, ProjectContext) else "auto"

    @classmethod
    def of(cls, config: Config) -> RunSettings:
        """Select the settings of a run from a project's configuration."""
        context = config.context
        return cls(
            limits=Limits(
                max_phase_visits=config.max_phase_visits,
                max_act_turns=config.max_act_turns,
                phase_seconds=config.limits.phase_seconds,
                run_seconds=config.limits.run_seconds,
                tokens=config.limits.tokens,
                no_progress=config.limits.no_progress,
                message_runs=config.limits.message_runs,
                message_depth=config.limits.message_depth,
                message_tokens=config.limits.message_tokens,
                sub_runs=config.limits.sub_runs,
                model_calls=config.limits.model_calls,
                max_prompt_tokens=context.max_prompt_tokens if isinstance(context, ProjectContext) else None,
                run_tokens=(budget := Caps.of(config.budgets.run)).tokens,
                run_cost=budget.cost,
            ),
            max_phase_retries=config.max_phase_retries,
            output_language=config.output_language,
            strict=config.strict,
            sizes=config.sizes,
            on_limit=config.limits.on_limit,
            approval_seconds=config.limits.approval_seconds,
            context=context,
            skill_budgets=skill_caps(config.budgets, "run"),
            currency=config.budgets.currency,
            classes={name: entry if isinstance(entry, str) else name for name, entry in sorted(config.models.items())},
        )
