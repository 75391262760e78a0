"""The command lines that belong to the hints of errors.

The library's hints name no command, because a program that embeds Reyn has none. Everything that the CLI and the
generated documentation print about an error passes through `full_hint`.
"""

from __future__ import annotations

import re

from reyn.errors import QuestionUnknown, SkillNotFound, StoreUnavailable, hint_of

NEXT_COMMANDS = {
    "RYN101": "`reyn skills` lists the skills.",
    "RYN103": "`reyn lint SKILL` shows the line.",
    "RYN104": "`reyn lint SKILL` lists the errors.",
    "RYN135": "`reyn lint --fix` rewrites the skill.",
    "RYN164": "`reyn show RUN` shows why it stopped, `reyn resume RUN` continues it.",
    "RYN202": "`reyn show RUN` lists the rejections, `reyn frame RUN` shows the prompt and the answer, "
    "`reyn resume RUN --retry --upgrade` retries it.",
    "RYN203": "`reyn show RUN` shows the step, `reyn resume RUN --retry --upgrade` retries it.",
    "RYN204": "`reyn show RUN` shows the sub-run, `reyn resume RUN --retry --upgrade` visits the node again.",
    "RYN205": "`reyn show RUN` lists the ops of the visit, `reyn permissions explain SKILL` why one is denied, "
    "`reyn resume RUN --retry --upgrade` retries it.",
    "RYN206": "`reyn show RUN` lists the ops of the visit, `reyn resume RUN --retry --upgrade` retries it.",
    "RYN301": "`reyn resume RUN --retry` retries it.",
    "RYN302": "`reyn permissions list` lists the ids.",
    "RYN311": "`reyn secret allow {secret} {origin}` binds it.",
    "RYN330": "`reyn doctor` reports the sandboxes of this machine.",
    "RYN331": "`reyn resume RUN --retry` retries it.",
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
    "RYN900": "`reyn --debug COMMAND` prints the traceback.",
}
"""The sentence to add to the hint of an error or finding. `{name}` is the secret or the weights that the hint
names, `{secret}` and `{origin}` a secret and the server that it would be sent to."""

_BINDING = re.compile(r"`(?:secret://)?((?:env://)?\w+)` to (https?://[^\s,]*[^\s,.])")
_NAME = re.compile(r"\b(?:secret `|weights `|secret://)([A-Za-z0-9_.-]+)`")


def full_hint(code: str, hint: str) -> str:
    """Return a hint with the commands of its code.

    The commands are added to the general hint of a code, and to a specific hint that ends with the general one or names
    a secret or weights. Any other specific hint stays as it is.
    """
    if hint == StoreUnavailable.foreign_hint:
        return f"{hint} `reyn runs` lists them, `reyn trust` makes the journal yours."
    if hint == QuestionUnknown.waiting_hint:
        return "`reyn runs --status waiting` lists the runs that wait for a reply."
    sentence, general, name = NEXT_COMMANDS.get(code), hint_of(code), _NAME.search(hint)
    if sentence is None or not (
        hint.endswith(general) or (name and "{name}" in sentence) or ("{origin}" in sentence and _BINDING.search(hint))
    ):
        return hint
    secret, origin = found.groups() if (found := _BINDING.search(hint)) else ("NAME", "ORIGIN")
    return f"{hint} {sentence.format(name=name[1] if name else 'NAME', secret=secret, origin=origin)}".strip()


def hint_without_project(hint: str) -> str:
    """Return the hint for a skill that is not found in a folder without a project."""
    first = "" if hint == SkillNotFound.hint else f"{hint} "
    return f"{first}This folder has no project: `reyn init` creates one with the skill `hello`."


def full_warning(text: str) -> str:
    """Return a warning of a run with the command that it calls for."""
    from reyn.permissions.trust import UNTRUSTED

    return f"{text}. `reyn trust` reviews them" if text.startswith(UNTRUSTED) else text


def how_to_explain(code: str) -> str:
    """Return the command that explains a code."""
    return f"reyn explain {code}"
