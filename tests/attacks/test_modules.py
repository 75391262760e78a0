"""Modules that take minutes to parse, with the lock of the interpreter held: they are refused before they are parsed.

The attacker controls the modules of a skill in a clone, or of a draft. The oracle is CPython's own parser, which is
absent where it must not be called.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.errors import SkillInvalid, codes
from reyn.sandbox.interpreter_choice import needs_cpython
from reyn.skills import modules
from tests.properties import examples
from tests.support import load_skill, write_skill

FIELDS = "{x}" * 30_000
SLOW_MODULES = {
    **{
        f"{prefix}{quote}": f"x = 1\ny = {prefix}{quote}{FIELDS}{quote}\n"
        for prefix in ("f", "F", "rf", "fR", "Rf")
        for quote in ("'", '"', "'''", '"""')
    },
    "many strings": "x = (\n" + "f'{x}'\n" * 60_000 + ")\n",
    "lines": 'x = f"""' + "\n{x}" * 30_000 + '"""\n',
    "continued lines": "x = f'" + "\\\n{x}" * 30_000 + "'\n",
    "after a comment with a quote": f"# it's\nx = f'{FIELDS}'\n",
    "after a comment that a carriage return ends": f"# it's\rx = f'{FIELDS}'\n",
    "after escaped quotes": f"""y = '''\\''''"'''\nx = f"{FIELDS}"\n""",
    "in a string that does not end": f"x = f'{FIELDS}\n",
}


@pytest.mark.parametrize("source", SLOW_MODULES.values(), ids=SLOW_MODULES)
def test_a_module_that_would_take_minutes_is_refused_before_it_is_parsed(source: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(modules, "ast", None)
    with pytest.raises(ValueError, match="its f-strings have too many fields"):
        modules.parse_module(source)
    assert needs_cpython(source) == "it cannot be parsed"


def test_a_skill_with_such_a_module_is_an_error_with_its_place(tmp_path: Path):
    steps = "preprocessor:\n" + "  - python: {module: ./slow.py, function: f, into: data.sum}\n" * 2
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, phase_keys={"a": steps})
    (folder / "slow.py").write_text(f"x = f'{FIELDS}'\ndef f(artifact):\n    return 1\n")
    with pytest.raises(SkillInvalid) as caught:
        load_skill(folder)
    found = {(finding.file, finding.code, finding.message) for finding in caught.value.findings}
    message = "`./slow.py` is not valid Python: its f-strings have too many fields"
    assert ("phases/a.md", codes.BAD_MODULE, message) in found


STATEMENTS = st.sampled_from(
    [
        "x = 1",
        "'f'",
        "f''",
        '"#"',
        "# it's",
        '# "',
        """'''it's "'''""",
        r"""'''\''''''""",
        r"b'\''",
        r"r'\''",
        "'\\\n\"'",
        "(f'a' 'b')",
    ]
)
ENDS = st.sampled_from(["\n", "\r", "\r\n"])


@examples(60)
@given(st.lists(st.tuples(STATEMENTS, ENDS), max_size=6), st.sampled_from(["f'{x}'", 'Rf"{x}"', 'f"""\n\'{x}"""']))
def test_every_field_counts_wherever_its_string_is(before: list[tuple[str, str]], field: str):
    source = "".join(map("".join, before)) + f"\n{field}\n"
    assert any(isinstance(node, ast.FormattedValue) for node in ast.walk(ast.parse(source)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modules, "_MAX_WORK", 0)
        with pytest.raises(ValueError, match="too many fields"):
            modules.parse_module(source)


@pytest.mark.parametrize("source", ["# f'{x}'", "x = '{x}'", "x = {}", "x = '''f\"{x}\"'''", "x = f'a'"])
def test_no_other_brace_counts(source: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(modules, "_MAX_WORK", 0)
    assert modules.parse_module(source)


def test_a_name_with_thousands_of_marks_is_refused_before_python_normalizes_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(modules, "ast", None)
    with pytest.raises(ValueError, match="too many marks"):
        modules.parse_module("x" + "\u0323\u0301" * 200 + " = 1\n")
