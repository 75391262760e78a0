"""The synchronous form is derived from the asynchronous classes, and works wherever plain code runs."""

from __future__ import annotations

import ast
import asyncio
import inspect
import subprocess
import sys
import textwrap
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import reyn.chat.sync
import reyn.runtime.sync_runtime
from reyn import OSRuntime, SyncRuntime
from reyn.errors import CallImpossible, RunNotFound
from reyn.runtime.sync_form import LoopThread, Synchronous
from reyn.testing import ScriptedModel
from tests.support import finish, go

IN = {"text": "in"}
ROOT = Path(__file__).parents[2]


def answers() -> ScriptedModel:
    return ScriptedModel([go("second"), finish("end")])


def test_it_runs_inside_a_running_event_loop(project: Path):
    async def notebook() -> str:
        with SyncRuntime.open(project, model=answers()) as rt:
            return str(rt.run("pair", IN).status)

    assert asyncio.run(notebook()) == "finished"


def test_several_runtimes_run_in_several_threads(project: Path):
    with (
        SyncRuntime.open(project, model=ScriptedModel([go("second"), finish("end")] * 4)) as one,
        SyncRuntime.open(project, model=ScriptedModel([go("second"), finish("end")] * 4)) as other,
        ThreadPoolExecutor(4) as threads,
    ):
        results = list(threads.map(lambda number: (one, other)[number % 2].run("pair", IN), range(8)))
    assert all(result.ok for result in results)
    assert len({result.run_id for result in results}) == 8


def test_reading_starts_no_thread(project: Path):
    runtime = SyncRuntime.open(project, model=answers())
    before = threading.active_count()
    assert runtime.runs.all() == []
    assert threading.active_count() == before
    runtime.close()
    assert threading.active_count() == before


def test_an_event_loop_of_the_caller_can_be_used_instead(project: Path):
    before = threading.active_count()
    with asyncio.Runner() as runner, SyncRuntime(OSRuntime.open(project, model=answers()), runner) as rt:
        assert rt.run("pair", IN).ok
        assert threading.active_count() <= before + 1  # commits have a thread


def test_a_derived_runtime_shares_the_loop_and_stays_usable_until_the_first_is_closed(project: Path):
    with SyncRuntime.open(project, model=answers()) as rt:
        derived = rt.derive(model=ScriptedModel([go("second"), finish("end")]))
        assert isinstance(derived, type(rt))
        assert derived.runner is rt.runner
        derived.close()
        assert derived.run("pair", IN).ok
        assert rt.run("pair", IN).ok


def test_errors_keep_their_type_and_show_where_they_were_raised(project: Path):
    with SyncRuntime.open(project, model=answers()) as rt:
        with pytest.raises(RunNotFound) as caught:
            rt.runs.replay("nothing")
        text = "".join(traceback.format_exception(caught.value))
    assert "rt.runs.replay" in text
    assert "in find" in text


def test_a_call_in_a_callback_of_its_own_loop_is_refused(project: Path):
    errors = []

    def listener(event: object) -> None:
        try:
            rt.run("pair", IN)
        except CallImpossible as error:
            errors.append(error)
        assert rt.runs.is_recorded("k")  # plain methods can be called

    with SyncRuntime.open(project, model=answers()) as rt:
        assert rt.run("pair", IN, run_id="k", listener=listener).ok
    assert errors
    assert "in its own event loop" in str(errors[0])


def test_context_variables_of_the_caller_reach_the_coroutine():
    import contextvars

    variable = contextvars.ContextVar("variable", default=0)
    thread = LoopThread()

    async def read() -> int:
        return variable.get()

    variable.set(7)
    try:
        assert thread.run(read()) == 7
    finally:
        thread.close()


def test_a_system_exit_in_a_task_reaches_the_caller_and_leaves_the_loop_usable():
    thread = LoopThread()

    async def leave() -> None:
        sys.exit(3)

    async def stay() -> str:
        return "here"

    try:
        with pytest.raises(SystemExit):
            thread.run(leave())
        assert thread.run(stay()) == "here"
    finally:
        thread.close()


def test_async_generators_become_iterators_that_are_closed():
    closed = []

    class Numbers:
        async def aclose(self) -> None: ...

        async def numbers(self):
            try:
                for number in range(5):
                    yield number
            finally:
                closed.append(True)

    from reyn.runtime.sync_form import synchronous

    numbers = synchronous(Numbers, "SyncNumbers", module=__name__)(Numbers())
    assert list(numbers.numbers()) == [0, 1, 2, 3, 4]
    for number in (iterator := numbers.numbers()):
        if number == 1:
            break
    iterator.close()
    assert closed == [True, True]
    numbers.close()


# -- whole programs -------------------------------------------------------------------------------------------

HEAD = """
    import asyncio, os, signal, sys
    from reyn import SyncRuntime
    from reyn.testing import ScriptedModel
    from tests.support import finish, go

    class Hanging:
        name = "hanging"
        async def complete(self, request):
            {begin}
            try:
                await asyncio.Event().wait()
            finally:
                print("cancelled", flush=True)
"""


def program(body: str, project: Path, begin: str = "pass") -> subprocess.CompletedProcess[str]:
    code = textwrap.dedent(HEAD.format(begin=begin)) + textwrap.dedent(body)
    command = [sys.executable, "-W", "error", "-c", code, str(project)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)


@pytest.mark.slow
def test_ctrl_c_cancels_the_run_which_can_be_resumed(project: Path):
    body = """
    with SyncRuntime.open(sys.argv[1], model=Hanging()) as rt:
        try:
            rt.run("pair", {"text": "in"}, run_id="k")
        except KeyboardInterrupt:
            print("interrupted", rt.runs.find("k").status, rt.runs.display_status(rt.runs.find("k")))
    """
    done = program(body, project, begin="os.kill(os.getpid(), signal.SIGINT)")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["cancelled", "interrupted running running (interrupted)"]
    with SyncRuntime.open(project, model=answers()) as rt:
        assert rt.resume("k").ok


@pytest.mark.slow
def test_a_program_that_does_not_close_its_runtime_ends(project: Path):
    body = """
    rt = SyncRuntime.open(sys.argv[1], model=ScriptedModel([go("second"), finish("end")]))
    print(rt.run("pair", {"text": "in"}, run_id="k").status)
    """
    done = program(body, project)
    assert (done.returncode, done.stdout, done.stderr) == (0, "finished\n", "")


@pytest.mark.slow
def test_a_run_in_another_thread_is_interrupted_when_the_program_ends(project: Path):
    body = """
    import threading
    rt = SyncRuntime.open(sys.argv[1], model=Hanging())
    begun = threading.Event()
    def work():
        try:
            rt.run("pair", {"text": "in"}, run_id="k", listener=lambda event: begun.set())
        except asyncio.CancelledError:
            pass
    threading.Thread(target=work, daemon=True).start()
    begun.wait()
    """
    done = program(body, project)
    assert (done.returncode, done.stderr) == (0, "")
    with SyncRuntime.open(project, model=answers()) as rt:
        assert rt.resume("k").ok


# -- types ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [reyn.runtime.sync_runtime, reyn.chat.sync])
def test_the_stub_declares_what_the_derived_classes_have(module):
    tree = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
    stubs = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    classes = {name: value for name, value in vars(module).items() if inspect.isclass(value)}
    derived = {name: value for name, value in classes.items() if value.__module__ == module.__name__}
    assert stubs.keys() == derived.keys()
    for name, form in derived.items():
        assert issubclass(form, Synchronous)
        declared = {node.name for node in stubs[name].body if isinstance(node, ast.FunctionDef)} - {"__init__"}
        built_in = {"__doc__", "__module__", "__annotations__"}  # the last one appears when it is asked for
        assert vars(form).keys() - built_in <= declared, name


@pytest.mark.slow
def test_the_stubs_are_up_to_date():
    done = subprocess.run([sys.executable, "tools/sync_stubs.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


TYPED = """
from typing import assert_type
from reyn import RunResult, SyncRuntime
from reyn.journal import Event, RunRow
from reyn.kernel.runtime_types import ReplayReport
from reyn.runtime.sync_runtime import SyncRuns

with SyncRuntime.open(".") as rt:
    assert_type(rt.run("pair"), RunResult)
    assert_type(rt.runs, SyncRuns)
    assert_type(rt.runs.all(), list[RunRow])
    assert_type(rt.runs.replay("k"), ReplayReport)
    for event in rt.stream("pair"):
        assert_type(event, Event)
    with rt.chat() as chat:
        assert_type(chat.say("hello").text, str)
    rt.runs.nothing
    rt.run(skil="pair")
"""


@pytest.mark.slow
def test_type_checkers_know_the_synchronous_form(tmp_path: Path):
    file = tmp_path / "typed.py"
    file.write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    errors = [line.partition(": error: ")[2] for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 2, done.stdout
    assert 'has no attribute "nothing"' in errors[0]
    assert "skil" in errors[1]
