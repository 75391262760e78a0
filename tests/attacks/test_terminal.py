"""Text that steers or deceives the operator's terminal.

The attacker controls every text that Reyn prints: answers and replies of a model, names and descriptions of skills,
agents and memories, settings, paths, errors, streamed text. The oracle reads the raw bytes of a pseudo-terminal.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wcwidth import wcswidth

from reyn.characters import clean, escape
from reyn.cli.chat.markdown import MAX_CELLS, _most_cells, _parser, markdown_lines
from reyn.cli.writer import Line, Raw, Styled, Writer
from tests.chat.support import reply
from tests.cli.support import IN, Terminal, write_answers
from tests.properties import examples
from tests.support import finish, write_skill

SOURCES = Path(__file__).parents[2] / "src" / "reyn"
HOSTILE = (
    "\x1b]52;c;cHduZWQ=\x07\x1b]8;;http://evil\x1b\\x\x1b]8;;\x1b\\\x1b[2J\x1b[8mhid\x1b[0m\x1bP1$r\x1b\\\x9b31m\x9d0;t\x9c"
    "\r\x08\x7f\x00\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u2060\ufeff"
    "\u2028\u2029\x85\U000e0041\U000e007f\ufe00\ufe01\U000e0100"
)
MARKDOWN = (
    "&#x202e;&#8238;&#x9b;31m&#x1b;[2J&#xE0041;[https://bank.example](https://evil.example/\u202e) ![i](//evil.example)"
)

OWN = re.compile(r"\x1b\[[0-9]{1,3}m|\r\x1b\[2K|\x1b\[\?(7|25)[lh]|\r*\n")
"""The sequences that Reyn writes: colours, the live line, line ends of a terminal."""
PROMPT = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\x08")
"""The sequences of the prompt: cursor moves, erasing, modes; nothing with a text of its own."""
KEPT_FORMATS = re.compile(
    "[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u200c\u200d\U000110bd\U000110cd\U00013430-\U0001343f]"
)


def forbidden(screen: str) -> list[str]:
    """The reference: what must not reach a terminal, by Unicode category."""
    return [
        f"{char!r} in {screen[max(0, at - 40) : at + 40]!r}"
        for at, char in enumerate(screen)
        if (unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") and char not in "\n\t")
        or (unicodedata.category(char) == "Cf" and not KEPT_FORMATS.match(char))
        or unicodedata.bidirectional(char) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        or 0xE0000 <= ord(char) <= 0xE0FFF
    ]


# -- characters ---------------------------------------------------------------------------------------------

ALPHABET = st.one_of(
    st.sampled_from([*HOSTILE, *"ab\n\t", "\u200d", "\u200c", "\u0627", "क", "👩", "\ufe0f"]), st.characters(codec=None)
)


@examples(300)
@given(st.lists(ALPHABET, max_size=40).map("".join))
def test_no_escaped_text_has_a_forbidden_character(text: str):
    assert forbidden(escape(text)) == []
    assert forbidden(clean(text)) == []
    assert not {"\n", "\t"} & {*clean(text)}


@pytest.mark.parametrize(
    "code", [*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F)]
)
def test_each_control_is_visible(code: int):
    kept = chr(code) in "\n\t"
    assert escape(f"a{chr(code)}b") == (
        f"a{chr(code)}b" if kept else f"a{chr(code).encode('unicode_escape').decode()}b"
    )


@pytest.mark.parametrize(
    "text",
    [
        "☺︎ ☎️ ™️ ‼️ 0️⃣ #️⃣ ᠮᠣᠩᠭᠣᠯ\u180e\u1820 \u1820\u180b \u1820\u180c\u1828\u180d",
        "\u115f\u1161\u11a8 \u1100\u1160\u11a8 \u1000\ufe00 ≨\ufe00 \ua856\ufe00 \u5140\ufe00",
        "👩‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 ❤️‍🔥 👍🏽 1️⃣ 🇩🇪 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
        "می‌خواهم שלום العربية",
        "क्‍ष क्‌ष ശ്രീ അവന്‍ ක්‍ෂ",
        "é e\u0301 ä ß “quotes” … \u00a0 \u3000 葛󠄀 ﷺ 100 €",
        "tab\tand\nline",
    ],
)
def test_legitimate_text_is_not_changed(text: str):
    assert escape(text) == text


@pytest.mark.parametrize(
    "text", ["pay\u200dpal", "a\u200c", "\u200d\u200d", "👍\u200d\u200d", "x\ufe00\ufe01", "a\U000e0101"]
)
def test_joiners_and_selectors_that_change_nothing_are_visible(text: str):
    assert "\\u" in escape(text).lower()


IGNORABLE = [
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x200B, 0x2010)),
    *(*range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0),
    *(*range(0xFFF0, 0xFFF9), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000)),
]
"""Default_Ignorable_Code_Point, from DerivedCoreProperties.txt of Unicode 16."""


@pytest.mark.parametrize("around", ["a{}b", "{}", "{}x", "ש{}b", "1{}", "é{}", "가{}나", "a{0}{0}", " {} ", "я{}"])
def test_no_ignorable_character_is_invisible(around: str):
    texts = {code: around.format(chr(code)) for code in IGNORABLE}
    for shown in (escape, clean):
        assert [hex(code) for code, text in texts.items() if chr(code) in shown(text)] == []


# -- the writer ---------------------------------------------------------------------------------------------


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


PARTS = st.text(ALPHABET, max_size=20)
LINES = st.one_of(
    PARTS, PARTS.map(Raw), st.builds(Styled, PARTS, st.sampled_from(["", "31", "1;2"])), st.builds(Line, PARTS, PARTS)
)


@examples(200)
@given(LINES, st.booleans())
def test_whatever_is_printed_the_screen_gets_only_sequences_of_the_writer(line, as_json: bool):
    screen, before = Screen(), sys.stdout
    sys.stdout = screen
    try:
        writer = Writer()
        writer.json(str(line).encode("utf-8", "replace").decode()) if as_json else writer.line(line)
        writer.text(str(line))
        writer.content([json.dumps(str(line), ensure_ascii=False).encode("utf-8", "surrogatepass")])
    finally:
        sys.stdout = before
    assert forbidden(OWN.sub("", screen.getvalue())) == []


def test_a_piece_of_streamed_text_continues_an_emoji(monkeypatch: pytest.MonkeyPatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    Writer().text("👩")
    Writer().text("\u200d💻", before="👩")
    assert screen.getvalue() == "👩‍💻"


@examples(100)
@given(
    st.lists(
        st.one_of(ALPHABET, st.sampled_from([MARKDOWN, "`", "\n\n", "[", "](", "|", "> ", "- ", "**"])), max_size=30
    )
)
def test_a_markdown_reply_cannot_steer_the_screen(parts: list[str]):
    for line in markdown_lines("".join(parts), 80):
        shown = "".join(clean(str(part)) for part in line)
        assert forbidden(shown) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[https://bank.example](https://evil.example)", "https://bank.example (https://evil.example)"),
        ("<https://a.example>", "https://a.example"),
        ("[ref][1]\n\n[1]: https://evil.example", "ref (https://evil.example)"),
        ("![logo](https://evil.example/x.png)", "logo (https://evil.example/x.png)"),
        ("[![logo](a.png)](https://evil.example)", "logo (a.png) (https://evil.example)"),
        ("**[b *c*](https://evil.example)**", "b c (https://evil.example)"),
        ('<a href="https://evil.example">bank</a>', '<a href="https://evil.example">bank</a>'),
        ("before <!-- hidden --> after", "before <!-- hidden --> after"),
    ],
)
def test_links_and_html_hide_nothing(text: str, shown: str):
    assert [str(line).rstrip() for line in markdown_lines(text, 100)] == [shown]


@pytest.mark.parametrize("text", ["[" * 200_000, "*a" * 100_000, "> " * 100_000, "`" * 200_000, "- " * 100_000])
def test_a_hostile_reply_is_laid_out_in_bounded_time(text: str):
    import time

    for part in (text, text[:20_000]):
        before = time.process_time()
        assert list(markdown_lines(part, 80))
        assert time.process_time() - before < 5.0


def test_a_reply_that_is_one_open_code_block_takes_linear_time():
    import time

    from reyn.chat import ReplyDelta
    from reyn.cli.chat.printing import TerminalPrinter

    printer, before = TerminalPrinter(), time.process_time()
    printer.show(ReplyDelta("```"))
    for _ in range(3_000):
        printer.show(ReplyDelta("\n\n" * 30))
    assert time.process_time() - before < 5.0


# -- no way past the writer ---------------------------------------------------------------------------------

OWN_PROCESSES = ("harness", "content_worker", "launcher", "reaper")
EXEMPT = {"cli/writer.py", "notebook.py", *(f"sandbox/{name}.py" for name in OWN_PROCESSES)}
"""The writer; progress outside of a notebook, whose lines are escaped where they are made; and programs that processes
of their own execute, whose output is a pipe."""
BANNED_NAMES = {"print", "input", "getpass"}
BANNED_MEMBERS = {
    "sys": {"stdout", "stderr", "__stdout__", "__stderr__"},
    "click": {"echo", "secho", "style", "confirm", "prompt", "echo_via_pager", "get_text_stream", "get_binary_stream"},
}

SUSPECT = re.compile(r"\b(print|input|getpass)\(|std(out|err)\b|click\.|os\.write|import (click|getpass)")


def bypasses(path: Path) -> list[str]:
    found = []
    text = path.read_text()
    if not SUSPECT.search(text):  # parsing all of them takes seconds
        return []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in BANNED_NAMES:
                found.append(f"{path}:{node.lineno}: {name}")
            case ast.Attribute(value=ast.Name(id=module), attr=name) if name in BANNED_MEMBERS.get(module, ()):
                found.append(f"{path}:{node.lineno}: {module}.{name}")
            case ast.ImportFrom(module=str(module), names=names):
                banned = BANNED_MEMBERS.get(module, set()) | ({"getpass"} if module == "getpass" else set())
                found += [f"{path}:{node.lineno}: {one.name}" for one in names if one.name in banned]
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="os"), attr="write"), args=[ast.Constant(value=1 | 2), *_]
            ):
                found.append(f"{path}:{node.lineno}: os.write")
    return found


def test_no_module_writes_to_a_terminal_except_the_writer():
    modules = [path for path in SOURCES.rglob("*.py") if path.relative_to(SOURCES).as_posix() not in EXEMPT]
    scripts = [path for path in modules if "stdlib" not in path.parts]
    assert len(scripts) > 200
    assert [one for path in scripts for one in bypasses(path)] == []


def test_the_search_for_bypasses_finds_each_kind(tmp_path: Path):
    lines = ("from sys import stdout", "print(1)", "sys.stderr.write('')", "click.echo('')", "os.write(1, b'')")
    (tmp_path / "one.py").write_text("\n".join(lines))
    assert len(bypasses(tmp_path / "one.py")) == 5


# -- commands at a pseudo-terminal --------------------------------------------------------------------------

QUOTED = '"' + HOSTILE.encode("unicode_escape").decode() + '"'
"""The text as a scalar of YAML."""


@pytest.fixture
def hostile(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in which every text is hostile that can be."""
    monkeypatch.chdir(project)
    (project / "reyn.yaml").write_text(f"model: scripted:answers.jsonl\noutput_language: {QUOTED}\n")
    write_skill(project, "trap", {"work": ["end"]}, skill_keys=f"description: {QUOTED}\n", ops={"work": "file"})
    phase = project / "reyn" / "project" / "trap" / "phases" / "work.md"
    phase.write_text(phase.read_text() + "\u202e\u200b\n")
    broken = project / "reyn" / "project" / "broken\x1b]52;c;eA==\x07\u202e"
    broken.mkdir()
    (broken / "skill.md").write_text(f"---\ntype: {QUOTED}\n{QUOTED}: {QUOTED}\n---\n")
    agents = project / "reyn" / "agents"
    agents.mkdir()
    (agents / "spy.md").write_text(f"---\ntype: agent\nname: spy\ndescription: {QUOTED}\n---\n{MARKDOWN}\n")
    memory = project / ".reyn" / "memory"
    memory.mkdir(parents=True, exist_ok=True)
    (memory / "tea.md").write_text(f"---\nname: tea\ndescription: {QUOTED}\n---\n{MARKDOWN}\u202e\n")
    answer = finish(HOSTILE)
    answer["control"]["reason"]["summary"] = HOSTILE
    write_answers(project, answer)
    return project


COMMANDS = [
    ["run", "trap", IN, "--run-id", "r"],
    ["run", "trap", json.dumps({"text": "x"}), "--run-id", "s", "--stream"],
    ["run", "trap", json.dumps({HOSTILE: HOSTILE})],
    ["run", f"no{HOSTILE.replace(chr(0), '')}"],
    ["skills"], ["skills", "trap"], ["lint"], ["graph", "trap"], ["frame", "trap", IN], ["frame", "r"],
    ["runs"], ["show", "r"], ["show", "r", "--json"], ["events", "r"], ["events", "r", "--json"], ["context", "r"],
    ["usage"], ["export", "r"], ["export", "r", "-"], ["verify", "r"], ["replay", "r"], ["diff", "r", "s"],
    ["permissions", "explain", "trap"], ["config"], ["doctor"], ["models"], ["agent", "list"], ["agent", "show", "spy"],
    ["memory", "list"], ["memory", "show", "tea"], ["mcp", "list"], ["trust", "--list"], ["completion", "bash"],
    ["--debug", "show", "\x1b]52;c;\u202e"], ["import", "\u202e\x1b[2J"], ["\x1b]0;t\x07"], ["explain", "\x9b2J"],
]  # fmt: skip
PROGRAM = """
import json, sys, warnings, logging
from reyn.cli.app import run_app
for command in json.load(open(sys.argv[1])):
    sys.stdout.write(f"$ {command[0]!a}\\n")
    run_app(command)
print("library: " + sys.argv[2]); warnings.warn(sys.argv[2]); logging.getLogger("x").error(sys.argv[2])
raise ValueError(sys.argv[2])
"""


def test_no_command_lets_a_text_of_the_project_steer_the_terminal(hostile: Path, tmp_path: Path):
    list_file = tmp_path / "commands.json"
    list_file.write_text(json.dumps(COMMANDS))
    argument = HOSTILE.replace("\x00", "")
    screen = Terminal(hostile, str(list_file), argument, program=("-c", PROGRAM)).end().out
    assert forbidden(OWN.sub("", screen)) == []
    assert screen.count("\\x1b]52;c;") > 20, "the texts are printed, visibly"
    assert "library: \\x1b]52" in screen
    assert "ValueError: \\x1b]52" in screen
    assert "\x1b[32m" in screen  # colours are still there


def test_an_export_to_a_terminal_is_escaped_json_and_to_a_pipe_byte_exact(hostile: Path, tmp_path: Path):
    import subprocess

    reyn = [sys.executable, "-m", "reyn"]
    subprocess.run([*reyn, "run", "trap", IN, "--run-id", "r"], capture_output=True, check=True)
    subprocess.run([*reyn, "export", "r", "file.jsonl"], capture_output=True, check=True)
    piped = subprocess.run([*reyn, "export", "r", "-"], capture_output=True, check=True).stdout
    assert piped == (hostile / "file.jsonl").read_bytes()
    screen = Terminal(hostile, "export", "r").end().out
    assert forbidden(screen.replace("\r\n", "\n")) == []
    shown = [json.loads(line) for line in screen.replace("\r\n", "\n").splitlines()]
    assert shown == [json.loads(line) for line in piped.splitlines()]


def test_a_conversation_cannot_steer_the_terminal(hostile: Path):
    write_answers(hostile, reply(f"{MARKDOWN}\n\n{HOSTILE}\n\nlast line"), name="chat.jsonl")
    terminal = Terminal(hostile, "chat", "spy", "--model", "scripted:chat.jsonl", env={"PROMPT_TOOLKIT_NO_CPR": "1"})
    seen = terminal.wait_for("leaves.") + terminal.wait_for(">")
    terminal.type("hello \u202e\u200b /no\r")
    seen += terminal.wait_for("last line")
    terminal.type("/skills\r/memory\r/quit\r")
    seen += terminal.end().out
    assert forbidden(PROMPT.sub("", seen)) == []
    assert "https://bank.example (https://evil.example/" in PROMPT.sub("", seen)


@pytest.mark.parametrize("columns", [10, 40, 80])
@pytest.mark.parametrize("cells", [1, 3, 12, 40])
def test_a_table_shows_the_whole_target_of_a_link(cells: int, columns: int):
    target = "https://docs.example.login.0123456789abcdef0123456789abcdef.evil.example/x"
    table = f"|{'h|' * cells}\n|{'-|' * cells}\n|{f'[docs]({target})|' * cells}\n"
    lines = [str(line) for line in markdown_lines(table, columns)]
    assert "\u2026" not in "".join(lines)
    shown = "".join(lines).replace(" ", "")
    assert shown.count("v") >= cells * target.count("v")
    if cells == 1:
        assert target in shown


PIECES = [
    "|a",
    "|-",
    "|",
    "-",
    ":",
    "a",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "> ",
    "- ",
    "1. ",
    "  ",
    "\t",
    "|a|b|\n|-|-|\n",
    "a\n" * 9,
]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
@example("|a|b|\r|-|-|\ra\ra")
@example("> |a|b|\n> |-|-|\n> a\n> a")
@example("1. |a|b|\n   |-|-|\n   a\n   a")
@examples(200)
def test_no_table_has_more_cells_than_are_counted_before_it_is_parsed(text: str):
    tokens = _parser(has_tables=True).parse(text)
    assert sum(token.type in ("td_open", "th_open") for token in tokens) <= _most_cells(text)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\n> "])
@pytest.mark.parametrize("columns", [2, 19, 200])
def test_a_table_of_too_many_cells_is_printed_as_it_is_written(columns: int, end: str):
    """Laid out, 60,000 cells take 10 s of the chat's event loop."""
    for rows, is_table in ((3, True), (MAX_CELLS // columns, False)):
        table = end.join(["|a" * columns, "|-" * columns, *["b"] * rows])
        lines = "".join(map(str, markdown_lines(f"{end.strip()} {table}", 8 * columns)))
        assert ("|-|-" in lines) != is_table


HIGHLIGHTED = [
    "perl",
    "clean",
    "ecl",
    "mcfunction",
    "autoit",
    "c",
    "cpp",
    "java",
    "PYTHON",
    "python3",
    "text",
    "nonsense",
    "",
]


@pytest.mark.parametrize("language", HIGHLIGHTED)
@pytest.mark.parametrize("code", ["if (x) { return 'a'; }", "((((<<<<"])
def test_code_in_other_languages_is_not_highlighted(language: str, code: str):
    """A model names the language; some highlighters take minutes for a page."""
    assert list(markdown_lines(f"```{language}\n{code}\n```", 80)) == list(markdown_lines(f"```\n{code}\n```", 80))


def test_only_short_code_is_highlighted():
    short, long = "return 'a'\n" * 10, "return 'a'\n" * 400
    for code, is_highlighted in ((short, True), (long, False)):
        highlighted = list(markdown_lines(f"```python\n{code}```", 80))
        assert (highlighted != list(markdown_lines(f"```\n{code}```", 80))) == is_highlighted


# -- the left edge ----------------------------------------------------------------------------------------------


WIDE = st.text(st.sampled_from("ab \u4e2d\U0001f600\u2500\xe9\u05d0e\u0301\t\n?:|>"), max_size=400)


@pytest.mark.parametrize("columns", [24, 40, 80, 133])
@pytest.mark.parametrize("head", ["    | ", "  ", "     5     0.2 s  ", "      1. "])
@given(text=WIDE)
@example(text="x" * 60 + " " * 60 + "  ? approval: write notes.txt")
@examples(25)
def test_no_part_of_an_indented_line_begins_at_the_left_edge(columns: int, head: str, text: str):
    """A terminal goes on there with what is too long: a text of a model could draw a prompt of Reyn."""
    screen = Screen()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        patch.setattr(sys, "stdout", screen)
        Writer().line(Line(head, Styled(text, "31")))
    shown = re.sub(r"\x1b\[[0-9]+m", "", screen.getvalue()).removesuffix("\n")
    indent = len(head) - len(head.lstrip())
    first, *others = shown.split("\n")
    for row in others:
        assert row.startswith(f"{' ' * indent}… ")
    assert all(wcswidth(row.rstrip(" ")) <= columns for row in (first, *others))
    rows = "".join([first, *(row[indent + 2 :] for row in others)])
    assert rows.replace(" ", "") == (head + clean(text)).replace(" ", "")  # blanks at the end of a row are left out
