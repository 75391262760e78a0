"""The command lines that belong to the hints of errors.

The library's hints name no command, because a program that embeds Reyn has none. Everything that the CLI and the
generated documentation print about an error passes through `full_hint`.
"""

from __future__ import annotations

import re

from reyn.errors import (
    DENIED_HINT,
    AgentNotFound,
    AgentSkillInvalid,
    ApprovalUnknown,
    IndexMissing,
    McpServerUnknown,
    MemoryNotFound,
    QuestionUnknown,
    ReynError,
    RunNotFound,
    SkillNotFound,
    StoreUnavailable,
    hint_of,
)

NEXT_COMMANDS = {
    "RYN101": "`reyn skills` lists the skills.",
    "RYN103": "`reyn lint SKILL` shows the line.",
    "RYN104": "`reyn lint SKILL` lists the errors.",
    "RYN135": "`reyn lint --fix` rewrites the skill.",
    "RYN164": "`reyn show RUN` shows why it stopped, `reyn resume RUN` continues it.",
    "RYN202": "`reyn show RUN` lists the rejections, `reyn frame RUN` shows the prompt and the answer, "
    "`reyn resume RUN --retry --upgrade` retries it.",
    "RYN203": "`reyn show RUN` shows the step, `reyn resume RUN --retry --upgrade` retries it.",
    "RYN204": "`reyn show RUN` shows the visit and its sub-run, `reyn resume RUN --retry --upgrade` visits the node "
    "again.",
    "RYN205": "`reyn show RUN` lists the ops of the visit, `reyn permissions explain SKILL` why one is denied, "
    "`reyn resume RUN --retry --upgrade` retries it.",
    "RYN206": "`reyn show RUN` lists the ops of the visit, `reyn resume RUN --retry --upgrade` retries it.",
    "RYN208": "`reyn show RUN` shows the branches, `reyn resume RUN --retry --upgrade` retries it.",
    "RYN210": "`reyn show RUN` shows the visit, `reyn resume RUN --retry --upgrade` retries it.",
    "RYN211": "`reyn show RUN` shows the visit, `reyn resume RUN --retry --upgrade` retries it.",
    "RYN301": "`reyn resume RUN --retry` retries it.",
    "RYN302": "`reyn permissions list` lists the ids.",
    "RYN311": "`reyn secret allow {secret} {origin}` binds it.",
    "RYN330": "`reyn doctor` reports the sandboxes of this machine.",
    "RYN331": "`reyn resume RUN --retry` retries it.",
    "RYN333": "`reyn env list` lists the environments, `reyn env make NAME` makes one.",
    "RYN334": "`reyn env show NAME` shows it, `reyn env make NAME` makes it.",
    "RYN401": "`reyn runs` lists the runs.",
    "RYN402": "`reyn events RUN` shows the progress of the run.",
    "RYN403": "`reyn show RUN` prints the status.",
    "RYN410": "`reyn answer` (waiting), `reyn resume --retry` (failed) or `--raise` (limited), `reyn fork` (ended).",
    "RYN411": "`reyn show`, `reyn verify` and `reyn fork` still work.",
    "RYN414": "`reyn show RUN` prints the id of the open question.",
    "RYN416": "`reyn resume RUN` resumes it; `reyn fork RUN --skill NAME` forks it.",
    "RYN417": "`reyn show RUN` prints the event numbers.",
    "RYN418": "`reyn verify RUN` checks a run, `reyn export RUN FILE` writes it.",
    "RYN421": "`reyn fork RUN` continues after its last visit; `reyn rerun RUN` starts from the beginning.",
    "RYN422": "`reyn import FILE --max-bytes N` raises the limit on the total size.",
    "RYN426": "`reyn chats` lists conversations, `reyn chats show RUN` the messages of one.",
    "RYN430": "`reyn import-skill PATH --name NAME` chooses another name.",
    "RYN431": "`reyn lint SKILL` lists the errors; `reyn export-skill SKILL --name NAME` chooses another name.",
    "RYN433": "`reyn new skill NAME` creates a skill with one case.",
    "RYN450": "`reyn index list` lists the indexes, `reyn index write NAME FOLDER` writes one.",
    "RYN451": "`reyn index write NAME FOLDER` writes it.",
    "RYN452": "`reyn index drop NAME` drops it, `reyn index write NAME FOLDER` writes it.",
    "RYN501": "`--model NAME` selects a model for one command; `reyn models` lists the configured models.",
    "RYN504": "`reyn frame RUN SEQ` prints a recorded prompt, `reyn resume RUN --retry --model MODEL` calls a model.",
    "RYN509": "`reyn resume RUN --retry --model MODEL` calls another model.",
    "RYN512": "`reyn resume RUN --retry --model MODEL` calls another model.",
    "RYN502": "`reyn init` and `reyn new skill` create examples.",
    "RYN523": "`reyn trust` lists what the project asks for, and asks; `--model NAME` selects a model.",
    "RYN508": "`reyn secret set {name}` stores it.",
    "RYN511": "`reyn models pull {name}` downloads them.",
    "RYN601": "`reyn resume RUN --raise LIMIT=N` raises it; `reyn show RUN` prints the limit that stopped the run.",
    "RYN704": "`reyn secret set {name}` stores it.",
    "RYN708": "`reyn ops KIND` shows a complete specification.",
    "RYN709": "`reyn ops` lists the kinds.",
    "RYN710": "`reyn --help` lists the commands, `reyn COMMAND --help` the arguments of one.",
    "RYN719": "`reyn config` lists every key.",
    "RYN735": "`reyn mcp test SERVER` connects and asks.",
    "RYN736": "`reyn mcp add NAME -- COMMAND` adds one; `reyn mcp list` lists them.",
    "RYN737": "`reyn mcp test SERVER` tries again.",
    "RYN740": "`reyn env lock NAME` writes versions and hashes.",
    "RYN741": "`reyn env lock NAME` writes the requirements, `reyn env make NAME --allow-source` builds from source.",
    "RYN742": "`reyn env list` lists the environments.",
    "RYN900": "`reyn --debug COMMAND` prints the traceback.",
}
"""The sentence to add to the hint of an error or finding. `{name}` is the secret or the weights that the hint
names, `{secret}` and `{origin}` a secret and the server that it would be sent to."""
EXAMPLES = {
    "RYN101": ("reyn skills", 'reyn run hello \'{"name": "Ada"}\''),
    "RYN102": ("reyn lint hello",),
    "RYN103": ("reyn lint hello",),
    "RYN104": ("reyn lint hello", "reyn lint hello --fix"),
    "RYN105": ("reyn agent list", "reyn agent new designer", "reyn chat designer"),
    "RYN106": ("reyn memory list", "reyn memory show designer/tea"),
    "RYN135": ("reyn lint hello --fix",),
    "RYN160": ("reyn new function urgency",),
    "RYN161": ('reyn run mails:urgency \'{"mail": "The server is down."}\'',),
    "RYN164": ("reyn show order-17", "reyn resume order-17"),
    "RYN201": (
        "reyn skills hello",
        'reyn run hello \'{"name": "Ada"}\'',
        "reyn run hello @guest.json",
        "reyn run menu_line 'noodle soup'",
    ),
    "RYN202": ("reyn show order-17", "reyn frame order-17", "reyn resume order-17 --retry --upgrade"),
    "RYN203": ("reyn show order-17", "reyn resume order-17 --retry --upgrade"),
    "RYN204": ("reyn show order-17", "reyn resume order-17 --retry --upgrade"),
    "RYN205": ("reyn show order-17", "reyn resume order-17 --retry --upgrade"),
    "RYN206": ("reyn show order-17", "reyn resume order-17 --retry --upgrade"),
    "RYN208": ("reyn show order-17", "reyn resume order-17 --retry --upgrade"),
    "RYN210": ("reyn show order-17", "reyn resume order-17 --retry --upgrade"),
    "RYN211": ("reyn show order-17", "reyn resume order-17 --retry --upgrade"),
    "RYN301": ("reyn resume order-17 --retry",),
    "RYN302": ("reyn permissions list", "reyn permissions revoke 3"),
    "RYN311": ("reyn secret allow OPENAI_API_KEY https://api.openai.com",),
    "RYN330": ("reyn doctor",),
    "RYN331": ("reyn doctor", "reyn resume order-17 --retry"),
    "RYN333": ("reyn env list", "reyn env make office"),
    "RYN334": ("reyn env show office", "reyn env make office"),
    "RYN401": ("reyn runs", "reyn show order-17"),
    "RYN402": ("reyn events order-17", "reyn cancel order-17"),
    "RYN403": ("reyn show order-17",),
    "RYN404": ("reyn verify order-17",),
    "RYN405": ("reyn verify order-17", "reyn replay order-17"),
    "RYN406": ("reyn verify order-17",),
    "RYN408": ("reyn doctor",),
    "RYN409": ("reyn show order-17", 'reyn run hello \'{"name": "Ada"}\' --run-id order-18'),
    "RYN410": (
        "reyn answer order-17 yes",
        "reyn resume order-17 --retry",
        "reyn resume order-17 --raise run_tokens=200000",
        "reyn fork order-17",
    ),
    "RYN411": ("reyn show order-17", "reyn fork order-17"),
    "RYN413": ('reyn run hello \'{"name": "Ada"}\' --run-id order-17',),
    "RYN414": ("reyn show order-17", "reyn answer order-17 yes"),
    "RYN415": ('reyn answer order-17 ask-3f9a1c20b7d45e8f0a61b92c7d3e4f58 \'{"decision": "approve"}\'',),
    "RYN416": ("reyn resume order-17", "reyn fork order-17 --skill hello"),
    "RYN417": ("reyn show order-17", "reyn fork order-17 --at 12"),
    "RYN418": ("reyn verify order-17", "reyn export order-17 order-17.reyn", "reyn import order-17.reyn"),
    "RYN419": ("reyn ops", "reyn resume order-17"),
    "RYN420": ("reyn runs", "reyn prune --older-than 30d --dry-run"),
    "RYN421": ("reyn fork order-17", "reyn rerun order-17"),
    "RYN422": ("reyn import runs.reyn --max-bytes 4000000000",),
    "RYN425": ("reyn doctor",),
    "RYN426": ("reyn chats", "reyn chats show tea"),
    "RYN501": ("reyn models", 'reyn run hello \'{"name": "Ada"}\' --model scripted:answers.jsonl'),
    "RYN503": ("reyn resume order-17 --retry",),
    "RYN504": ("reyn frame order-17 12",),
    "RYN506": ("reyn models", "reyn resume order-17 --retry"),
    "RYN507": ("reyn resume order-17 --retry",),
    "RYN508": ("reyn secret set OPENAI_API_KEY", "reyn resume order-17 --retry"),
    "RYN511": ("pip install 'reyn[local]'", "reyn models pull smollm2"),
    "RYN512": ("reyn context order-17", "reyn resume order-17 --retry --model local"),
    "RYN513": ("reyn resume order-17 --retry",),
    "RYN515": ("reyn models pull smollm2",),
    "RYN520": ("pip install 'reyn[prices]'", "reyn resume order-17 --retry"),
    "RYN522": ("reyn usage", "reyn resume order-17 --raise run_tokens=200000"),
    "RYN533": ("reyn resume order-17 --retry",),
    "RYN540": ("reyn resume order-17 --retry",),
    "RYN601": ("reyn show order-17", "reyn resume order-17 --raise run_tokens=200000"),
    "RYN602": ("reyn config explain limits",),
    "RYN701": ("reyn config", "reyn config explain limits", "reyn doctor"),
    "RYN702": ("reyn --project shop runs",),
    "RYN704": ("reyn secret set OPENAI_API_KEY", "reyn secret list"),
    "RYN706": ("reyn secret set OPENAI_API_KEY",),
    "RYN708": ("reyn ops file",),
    "RYN709": ("reyn ops", "reyn ops file"),
    "RYN710": ("reyn --help", "reyn run --help"),
    "RYN712": ("reyn secret allow OPENAI_API_KEY https://api.openai.com",),
    "RYN719": ("reyn config", "reyn config explain limits"),
    "RYN720": ("pip install 'reyn[tokens]'",),
    "RYN735": ("reyn mcp test notes",),
    "RYN736": ("reyn mcp add notes -- python notes_server.py", "reyn mcp list"),
    "RYN737": ("reyn mcp test notes",),
    "RYN740": ("reyn env lock office",),
    "RYN741": ("reyn env lock office", "reyn env make office", "reyn env make office --allow-source"),
    "RYN742": ("reyn env list",),
    "RYN900": ("reyn --debug show order-17",),
}
"""Commands for a code. `order-17` stands for a run of the reader's project."""

_BINDING = re.compile(r"`(?:secret://)?((?:env://)?\w+)` to (https?://[^\s,]*[^\s,.])")
_NAME = re.compile(r"\b(?:secret `|weights `|secret://)([A-Za-z0-9_.-]+)`")


_RESUMING = re.compile(r"`reyn resume RUN --retry(?: --upgrade)?`")


def full_hint(code: str, hint: str, resuming: str = "") -> str:
    """Return a hint with the commands of its code.

    The commands are added to the general hint of a code, and to a specific hint that ends with the general one or names
    a secret or weights. Any other specific hint stays as it is.

    Args:
        code: The code of the error.
        hint: The hint.
        resuming: The command line that resumes this run. Others would fail again.
    """
    shown = _full_hint(code, hint)
    return _RESUMING.sub(lambda found: f"`{resuming}`" if resuming else found[0], shown)


def _full_hint(code: str, hint: str) -> str:
    if hint == DENIED_HINT:
        return f"{hint} {NEXT_COMMANDS['RYN205']}"
    if hint == StoreUnavailable.foreign_hint:
        return f"{hint} `reyn runs` lists them, `reyn trust` makes the journal yours."
    if hint == QuestionUnknown.waiting_hint:
        return "`reyn runs --status waiting` lists the runs that wait for a reply."
    if hint == AgentSkillInvalid.size_hint:
        return f"{hint} `--max-bytes N` and `--max-files N` of `reyn import-skill` and `reyn export-skill` raise it."
    sentence, general, name = NEXT_COMMANDS.get(code), hint_of(code), _NAME.search(hint)
    if sentence is None or not (
        hint.endswith(general) or (name and "{name}" in sentence) or ("{origin}" in sentence and _BINDING.search(hint))
    ):
        return hint
    secret, origin = found.groups() if (found := _BINDING.search(hint)) else ("NAME", "ORIGIN")
    return f"{hint} {sentence.format(name=name[1] if name else 'NAME', secret=secret, origin=origin)}".strip()


NO_PROJECT = (
    "This folder has no project: go to the folder of one, or name it with `--project`; "
    "`reyn init` creates one with the skill `hello`."
)


def hint_without_project(error: ReynError) -> str | None:
    """Return the hint for something that is not found in a folder without a project; `None` for other errors."""
    if not isinstance(error, _OF_PROJECT):
        return None
    return NO_PROJECT if error.hint == type(error).hint else f"{error.hint} {NO_PROJECT}"


_OF_PROJECT = (
    AgentNotFound,
    ApprovalUnknown,
    IndexMissing,
    McpServerUnknown,
    MemoryNotFound,
    QuestionUnknown,
    RunNotFound,
    SkillNotFound,
)
"""The errors about a name that the project does not have."""


def full_warning(text: str) -> str:
    """Return a warning of a run with the command that it calls for."""
    from reyn.permissions.trust import UNTRUSTED

    return f"{text}. `reyn trust` reviews them" if text.startswith(UNTRUSTED) else text


_ACCEPTING = re.compile(r"ccept the tools of the MCP server `([A-Za-z0-9_.-]+)`")


def with_commands(text: str) -> str:
    """Return findings, or an error that lists them, with the commands that their fixes call for."""
    return _ACCEPTING.sub(r"\g<0> with `reyn mcp test \1`", text)


def how_to_explain(code: str) -> str:
    """Return the command that explains a code."""
    return f"reyn explain {code}"
