"""Which interpreter a python step needs is decided from its source, and the tables say what Monty really has."""

from __future__ import annotations

import builtins
import importlib

import pytest

from reyn.sandbox.interpreter_choice import BUILTINS, MODULES, needs_cpython
from reyn.sandbox.monty import run_monty
from reyn.sandbox.supervision import ProgramLimits


@pytest.mark.parametrize(
    "source",
    [
        "import math\ndef f(a): return math.sqrt(2)",
        "from __future__ import annotations\nfrom typing import Any\ndef f(a: dict[str, Any]) -> int: return 1",
        "import re as r\nP = r.compile('x')\ndef f(a): return P.findall('x')",
        "from collections import Counter\ndef f(a): return dict(Counter('aab'))",
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = 1\ndef f(a): return P().x",
        "def f(a):\n    try:\n        return sum(x for x in a)\n    except TypeError as error:\n        return 0",
        "def super(): return 1\ndef f(a): return super()",
    ],
)
def test_monty_is_enough_for(source: str):
    assert needs_cpython(source) == ""
    assert run_monty(source, "f", {}, 0, ProgramLimits()).sandbox == "monty"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import statistics", "it imports `statistics`"),
        ("import os", "it imports `os`"),
        ("import urllib.parse", "it imports `urllib.parse`"),
        ("from collections import OrderedDict", "it imports `collections.OrderedDict`"),
        ("from . import helper", "it imports `.`"),
        ("from helper import x", "it imports `helper`"),
        ("def f(a):\n    import textwrap", "it imports `textwrap`"),
        ("import re\ndef f(a): return re.subn('a', 'b', 'c')", "it uses `re.subn`"),
        ("import datetime as d\ndef f(a): return d.UTC", "it uses `datetime.UTC`"),
        ("def g():\n    yield 1", "it uses `yield`"),
        ("def f(a):\n    del a['x']", "it uses `del`"),
        ("async def f(a): return 1", "it uses `async def`"),
        ("class E(ValueError): pass", "the class `E` has a base class"),
        ("class A:\n    @property\n    def p(self): return 1", "the method `A.p` has a decorator"),
        ("def f(a): return callable(a)", "it uses `callable`"),
        ("def f(a): return open('x')", "it uses `open`"),
        ("def f(a:", "it cannot be parsed"),
    ],
)
def test_cpython_is_needed_because(source: str, reason: str):
    assert needs_cpython(source) == reason


@pytest.mark.parametrize("module", sorted(MODULES))
def test_the_table_lists_what_monty_has_of(module: str):
    names = [name for name in dir(importlib.import_module(module)) if not name.startswith("_")]
    found = run_monty(
        f"import {module}\ndef f(a):\n    return [name for name in a['names'] if hasattr({module}, name)]\n",
        "f",
        {"names": names},
        0,
        ProgramLimits(),
    ).value
    assert set(found) & MODULES[module] == MODULES[module] & set(names)
    assert MODULES[module] - set(names) == set()


def test_the_table_lists_builtins_that_monty_has():
    for name in sorted(BUILTINS & set(dir(builtins))):
        assert run_monty(f"def f(a):\n    {name}\n    return True\n", "f", {}, 0, ProgramLimits()).value is True
