"""Every error that Reyn raises, with a stable code and a hint.

Hints name no command: `reyn.cli.hints` adds those. Docstrings and hints are published in docs/reference/errors.md. A
code is never reused.

    ReynError
    ├── SkillError                 RYN1xx  skills
    │   ├── SkillNotFound          RYN101
    │   ├── SkillInvalid           RYN102  lists all findings
    │   ├── SkillUnsupported       RYN103
    │   ├── FixImpossible          RYN104
    │   ├── AgentNotFound          RYN105
    │   ├── MemoryNotFound         RYN106
    │   ├── GraphTooLarge          RYN107
    │   ├── AgentSkillInvalid      RYN430
    │   ├── SkillNotExportable     RYN431
    │   ├── SkillPlanInvalid       RYN432
    │   ├── CaseInvalid            RYN433
    │   ├── TrialTooDeep           RYN434
    │   ├── ManifestInvalid        RYN150
    │   ├── FunctionInvalid        RYN160
    │   ├── FunctionNotFound       RYN161
    │   ├── TemplateInvalid        RYN162
    │   ├── ReturnInvalid          RYN163
    │   ├── CallStopped            RYN164
    │   └── CallImpossible         RYN165
    │       └── ArgumentsInvalid   RYN166
    ├── ContractError              RYN2xx  inputs, answers, steps
    │   ├── InputInvalid           RYN201
    │   ├── AnswersRejected        RYN202
    │   ├── StepFailed             RYN203
    │   ├── SubRunFailed           RYN204
    │   ├── JoinFailed             RYN208
    │   ├── WorkNotDone            RYN205
    │   ├── FillFailed             RYN206
    │   ├── ModelAborted           RYN207
    │   ├── ConditionFailed        RYN210
    │   ├── StateFailed            RYN211
    │   ├── TranscriptInvalid      RYN220
    │   ├── MutationInvalid        RYN221
    │   └── MessageInvalid         RYN222
    ├── AccessError                RYN3xx  permissions, approvals and trust
    │   ├── ApprovalExpired        RYN301
    │   ├── ApprovalUnknown        RYN302
    │   ├── ApprovalUnnamed        RYN303
    │   ├── SecretRefused          RYN311  also a ModelError
    │   └── SandboxUnavailable     RYN330
    │       ├── SandboxStartFailed RYN331
    │       ├── RulesTooBroad      RYN332
    │       └── EnvironmentUnavailable RYN333
    │           └── EnvironmentChanged RYN334
    ├── JournalError               RYN4xx  runs and their storage
    │   ├── RunNotFound            RYN401
    │   ├── RunBusy                RYN402
    │   ├── AppendConflict         RYN403
    │   ├── ChainBroken            RYN404
    │   ├── ReplayMismatch         RYN405
    │   ├── BlobMissing            RYN406
    │   ├── EventInvalid           RYN407
    │   ├── StoreUnavailable       RYN408
    │   │   └── StateFolderUnsafe  RYN425
    │   ├── RunIdTaken             RYN409
    │   ├── RunNotResumable        RYN410
    │   ├── RunBlocked             RYN411
    │   ├── StoreDamaged           RYN412
    │   ├── RunIdInvalid           RYN413
    │   ├── QuestionUnknown        RYN414
    │   ├── ReplyInvalid           RYN415
    │   ├── UpgradeIncompatible    RYN416
    │   ├── ForkImpossible         RYN417
    │   ├── ArchiveInvalid         RYN418
    │   ├── OpMissing              RYN419
    │   ├── RunInUse               RYN420
    │   ├── RunImported            RYN421
    │   ├── ArchiveTooLarge        RYN422
    │   ├── HistoryInvalid         RYN423
    │   ├── HeadMismatch           RYN424
    │   ├── ConversationInvalid    RYN426
    │   ├── ChainTooDeep           RYN437
    │   ├── ClaimLost              RYN440
    │   ├── RunPoisoned            RYN441
    │   ├── QueueInvalid           RYN442
    │   ├── StreamTaken            RYN443
    │   ├── EngineUnavailable      RYN444
    │   ├── CopyRefused            RYN445
    │   ├── IndexMissing           RYN450
    │   ├── IndexOutdated          RYN451
    │   ├── IndexDamaged           RYN452
    │   ├── DocumentUnreadable     RYN453
    │   └── IndexRefused           RYN454  also an AccessError
    ├── ModelError                 RYN5xx  models
    │   ├── ModelUnknown           RYN501
    │   │   └── ModelUntrusted     RYN523
    │   ├── ScriptInvalid          RYN502
    │   ├── ScriptExhausted        RYN503
    │   ├── RecordingMissing       RYN504
    │   ├── ModelBroken            RYN505
    │   ├── ModelUnavailable       RYN506  transient
    │   ├── RateLimited            RYN507  transient
    │   ├── KeyRejected            RYN508
    │   ├── RequestRejected        RYN509
    │   ├── ResponseIncomplete     RYN510  transient
    │   ├── ModelNotInstalled      RYN511
    │   ├── PromptTooLong          RYN512
    │   ├── ModelTimeout           RYN513  transient
    │   ├── SchemaRejected         RYN514
    │   ├── PullFailed             RYN515
    │   ├── PriceUnknown           RYN520
    │   ├── CurrencyUnknown        RYN521
    │   ├── PriceInvalid           RYN525
    │   ├── ImageInvalid           RYN530
    │   ├── ChatStopped            RYN531
    │   ├── AdapterInvalid         RYN532
    │   ├── CircuitOpen            RYN533  transient
    │   ├── ImagesUnsupported      RYN534
    │   ├── EffortRejected         RYN535
    │   └── HookFailed             RYN540
    ├── LimitError                 RYN6xx  limits
    │   ├── LimitUnknown           RYN601
    │   ├── AllowanceExceeded      RYN602
    │   └── BudgetExceeded         RYN522  also a JournalError
    ├── ConfigError                RYN7xx  configuration, secrets, installed ops
    │   ├── ConfigInvalid          RYN701
    │   ├── ProjectNotFound        RYN702
    │   ├── FileExists             RYN703
    │   ├── SecretMissing          RYN704
    │   ├── SecretStoreUnavailable RYN705
    │   ├── SecretNameInvalid      RYN706
    │   ├── SecretValueInvalid     RYN707
    │   ├── OpInvalid              RYN708
    │   ├── OpUnknown              RYN709
    │   ├── UsageError             RYN710
    │   ├── UserConfigUnavailable  RYN711
    │   ├── OriginInvalid          RYN712
    │   ├── SettingUnknown         RYN719
    │   ├── CounterUnavailable     RYN720
    │   ├── ModuleUnloadable       RYN730
    │   ├── McpDefinitionsInvalid  RYN735
    │   ├── McpServerUnknown       RYN736
    │   ├── McpServerFailed        RYN737
    │   ├── RequirementsInvalid    RYN740
    │   ├── EnvironmentNotMade     RYN741
    │   └── EnvironmentUnknown     RYN742
    ├── GatewayError               RYN800  the HTTP server
    │   ├── RequestInvalid         RYN801
    │   ├── TokenMissing           RYN802
    │   ├── ScopeMissing           RYN803
    │   ├── RequestRefused         RYN804
    │   ├── TooManyRequests        RYN805
    │   ├── RequestTooLarge        RYN806
    │   ├── ResourceNotFound       RYN807
    │   ├── AccessTokenInvalid     RYN808
    │   ├── AddressUnsafe          RYN809
    │   └── ServerUnavailable      RYN810
    └── InternalError              RYN900  a bug in Reyn
        └── ForeignAwait           RYN901
"""

from reyn.errors.base import *  # noqa: F403 - the names of every area, once
from reyn.errors.codes import FINDINGS as FINDINGS
from reyn.errors.config import *  # noqa: F403
from reyn.errors.gateway import *  # noqa: F403
from reyn.errors.models import *  # noqa: F403
from reyn.errors.runs import *  # noqa: F403
from reyn.errors.skills import *  # noqa: F403
