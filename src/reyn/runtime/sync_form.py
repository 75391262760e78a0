"""Derive synchronous classes from asynchronous ones: each method blocks until the coroutine has returned.

Coroutines run on an event loop in a thread of its own (`LoopThread`), so that the synchronous form works in a notebook,
in threads and inside asynchronous programs. Plain methods are called directly. `tools/sync_stubs.py` writes the types
of the derived classes to stub files.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextvars
import functools
import inspect
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from reyn.errors import CallImpossible

T = TypeVar("T")
CLOSE_SECONDS = 5.0
"""How long closing waits for a run that does not end. The process ends without it, and the run can be resumed."""
_RENAMED = {
    "aclose": "close",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
}


class Runner(Protocol):
    """Executes coroutines: a `LoopThread`, or an `asyncio.Runner` in the thread that created it."""

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine."""
        ...


class LoopThread:
    """An event loop in a daemon thread. The first call starts it, also after a fork of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0
        self._closers: list[Callable[[], Awaitable[None]]] = []

    def on_close(self, closer: Callable[[], Awaitable[None]]) -> None:
        """Call a function on the loop before it ends."""
        self._closers.append(closer)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, running."""
        with self._lock:
            if self._loop is None or self._process != os.getpid():  # threads do not survive a fork
                self._loop, self._process = asyncio.new_event_loop(), os.getpid()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="reyn-loop", daemon=True)
                self._thread.start()
                _started.add(self)
            return self._loop

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Execute a coroutine with the context variables of the caller, and return its result.

        A Ctrl-C in the main thread cancels the coroutine, waits until it has ended, and raises `KeyboardInterrupt`.

        Raises:
            CallImpossible: This thread executes the loop, so that it cannot wait for it.
        """
        loop = self.loop
        if threading.current_thread() is self._thread:
            coro.close()
            raise CallImpossible(
                "a synchronous runtime was called in its own event loop, by a callback or an async tool",
                hint="Use the asynchronous runtime there.",
            )
        return run_on(loop, coro)

    def close(self) -> None:
        """Call the functions of `on_close`, cancel all tasks, and end the loop and its thread."""
        if self._process not in (0, os.getpid()):  # the parent of this process closes what it opened
            return
        closers = tuple(self._closers)
        self._closers.clear()
        if self._loop is None and not closers:
            return
        try:
            self.run(_end(closers))
        finally:
            loop, thread, self._loop = self._loop, self._thread, None
            assert loop is not None
            assert thread is not None
            loop.call_soon_threadsafe(loop.stop)
            thread.join(CLOSE_SECONDS)
            if not thread.is_alive():
                loop.close()


_started: weakref.WeakSet[LoopThread] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close the loops that a program left open."""
    for thread in tuple(_started):
        thread.close()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    while True:
        try:
            return loop.run_forever()
        except (KeyboardInterrupt, SystemExit):  # raised by a task; who waits for the task receives it as well
            continue


async def _end(closers: tuple[Callable[[], Awaitable[None]], ...]) -> None:
    """Close what uses the loop, then cancel its tasks, then close its generators, which the tasks may be using."""
    try:
        for closer in closers:
            await closer()
    finally:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        await asyncio.get_running_loop().shutdown_asyncgens()


def run_on(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T]) -> T:
    """Execute a coroutine on the loop of another thread; `LoopThread.run` documents how."""
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
    context = contextvars.copy_context()
    tasks: list[asyncio.Task[T]] = []

    def begin() -> None:
        task = loop.create_task(coro, context=context)
        tasks.append(task)
        task.add_done_callback(end)

    def end(task: asyncio.Task[T]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(task.result())

    loop.call_soon_threadsafe(begin)
    try:
        concurrent.futures.wait([outcome])
    except BaseException:  # a Ctrl-C in the main thread
        loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
        concurrent.futures.wait([outcome])
        raise
    return outcome.result()


class Synchronous:
    """The base of derived classes.

    Attributes:
        async_form: The asynchronous object.
        runner: Executes its coroutines.
    """

    def __init__(self, async_form: Any, runner: Runner | None = None) -> None:
        """Wrap an asynchronous object.

        Args:
            async_form: The object.
            runner: Executes its coroutines. By default, a thread that is closed with this object.
        """
        self.async_form = async_form
        self._own_thread = LoopThread() if runner is None else None
        if self._own_thread is not None:
            self._own_thread.on_close(async_form.aclose)
        self.runner: Runner = runner or self._own_thread  # type: ignore[assignment]  # one of them is not `None`

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Execute a coroutine that uses the asynchronous object, and return its result."""
        return self.runner.run(work)

    def convert(self, value: Any) -> Any:
        """Return the synchronous form of a value, if its class has one."""
        if type(value) is type(self.async_form):
            return type(self)(value, self.runner)
        for one in type(value).__mro__:
            if (form := _forms.get(one)) is not None:
                return form(value, self.runner)
        return self._iterate(value) if inspect.isasyncgen(value) else value

    def _iterate(self, stream: Any) -> Iterator[Any]:
        items, end = aiter(stream), object()
        try:
            while (item := self.wait(_next(items, end))) is not end:
                yield self.convert(item)
        finally:
            self.wait(stream.aclose())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.async_form!r}>"

    if not TYPE_CHECKING:  # an attribute that a stub does not declare is a type error

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return self.convert(getattr(self.async_form, name))


async def _next(iterator: Any, end: Any) -> Any:
    return await anext(iterator, end)


_forms: dict[type, type[Synchronous]] = {}
"""The synchronous class of each asynchronous one."""


def synchronous(cls: type, name: str, *, module: str, is_on_loop: bool = False) -> type[Synchronous]:
    """Return the synchronous form of a class. Objects of the class that its methods return have this form, too.

    Args:
        cls: The asynchronous class.
        name: The name of its form.
        module: The module of its form.
        is_on_loop: Whether plain methods use the event loop, too, so that they have to be called in its thread.
    """
    base = next((_forms[one] for one in cls.__mro__[1:] if one in _forms), Synchronous)
    doc = f"The synchronous form of `{cls.__name__}`: each method blocks until it has returned.\n\n{cls.__doc__}"
    members: dict[str, Any] = {"__doc__": doc, "__module__": module}
    for attribute in dir(cls):
        if not attribute.startswith("_") or attribute in _RENAMED:
            members[_RENAMED.get(attribute, attribute)] = _member(cls, attribute, is_on_loop=is_on_loop)
    form = _forms[cls] = type(name, (base,), members)
    return form


def _member(cls: type, name: str, *, is_on_loop: bool) -> Any:
    value = inspect.getattr_static(cls, name)
    match name:
        case "aclose":
            return _close
        case "__aexit__":
            return lambda self, *error: self.close()
        case "__aenter__":
            return _enter
        case "__aiter__":
            return lambda self: self._iterate(self.async_form)
        case "__anext__":
            return _next_item
    if isinstance(value, classmethod):
        opening = getattr(cls, name)
        return classmethod(functools.wraps(opening)(lambda form, *args, **kwargs: form(opening(*args, **kwargs))))
    if not inspect.isfunction(value):  # a property
        return property(lambda self: self.convert(getattr(self.async_form, name)), doc=value.__doc__)
    call: Callable[..., Any] = value
    if is_on_loop and not inspect.isasyncgenfunction(value) and not inspect.iscoroutinefunction(value):

        async def call_plain(*args: Any, **kwargs: Any) -> Any:
            return value(*args, **kwargs)

        call = call_plain

    if inspect.iscoroutinefunction(call):
        return functools.wraps(value)(
            lambda self, *args, **kwargs: self.convert(self.wait(call(self.async_form, *args, **kwargs)))
        )
    return functools.wraps(value)(lambda self, *args, **kwargs: self.convert(call(self.async_form, *args, **kwargs)))


def _enter(form: Synchronous) -> Synchronous:
    form.wait(form.async_form.__aenter__())
    return form


def _close(form: Synchronous) -> None:
    """Close the object, and the thread that executes its coroutines."""
    if form._own_thread is not None:  # noqa: SLF001 - of the class above
        form._own_thread.close()  # noqa: SLF001 - of the class above
    else:
        form.wait(form.async_form.aclose())


def _next_item(form: Synchronous) -> Any:
    end = object()
    item = form.wait(_next(form.async_form, end))
    if item is end:
        raise StopIteration
    return form.convert(item)
