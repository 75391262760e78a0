"""The program that calls a python step's function: executed by CPython, in the process sandbox or unconfined.

It reads a request as a line of JSON from standard input and writes its answer to standard output; what the function
prints goes to standard error. With a clock, it fixes time and randomness: the result is then a function of the input.
It is executed as a script and imports little, because every call needs a new interpreter.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

PACKAGES = "packages"
"""The argument of a process whose step can import the packages of an environment."""
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def main() -> None:
    if sys.argv[-1] == PACKAGES:  # its time and randomness are fixed, so it needs these whatever the request is
        import datetime  # noqa: F401
        import random  # noqa: F401
    request = json.loads(sys.stdin.readline())
    answer = os.dup(1)
    os.dup2(2, 1)  # a `print` cannot damage the answer
    try:
        if request["clock"] is not None:
            # Packages may use what the sources do not mention.
            text = "time random" if request["has_packages"] else "".join(request["sources"].values())
            fix_inputs(request["clock"] / 1_000_000, text)
        value = call(request)
        content = json.dumps({"value": value}, default=str, allow_nan=False)
    except BaseException as error:  # noqa: BLE001 - becomes the answer
        content = json.dumps({"error": describe_failure(error)})
    sys.stdout.flush()
    with os.fdopen(answer, "w") as stream:
        stream.write(content)
    sys.stderr.flush()
    os._exit(0)  # threads and exit handlers of the step have nothing left to do


def call(request: dict[str, Any]) -> Any:
    sources = Sources(request["sources"])
    sys.meta_path.insert(0, sources)
    module = type(sys)(name_of(request["module"]))
    sys.modules.setdefault(module.__name__, module)
    sources.exec_module(module)
    return getattr(module, request["function"])(request["artifact"])


def name_of(path: str) -> str:
    """Return the name under which a module of the skill is imported."""
    return path.removeprefix("./").removesuffix(".py").replace("/", ".")


class Sources:
    """Imports the modules of the skill from their recorded sources."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = {name_of(path): (path, text) for path, text in sources.items()}
        self.spec: Any = type(json.__spec__)  # importing it by name would come here first

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name in self.sources:
            return self.spec(name, self, is_package=False)
        is_package = any(known.startswith(f"{name}.") for known in self.sources)
        return self.spec(name, self, is_package=True) if is_package else None

    def create_module(self, spec: object) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        path, text = self.sources.get(module.__name__, ("", ""))
        exec(compile(text, path, "exec"), module.__dict__)  # noqa: S102 - the point of this program


def describe_failure(error: BaseException) -> str:
    """Return the exception and the line of the skill's module that raised it."""
    place = ""
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name.startswith("./"):
            place = f" ({name}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}"[:2_000] + place


# -- fixed time and randomness ------------------------------------------------------------------------


def fix_inputs(now: float, text: str) -> None:
    """Fix the clock and the seeds of what the sources mention. This makes results repeatable; it protects nothing."""
    if "time" in text:
        fix_time(now)
    if any(word in text for word in ("random", "uuid", "secrets", "tempfile")):
        fix_randomness()


def replace(module: ModuleType, **members: Any) -> None:
    for name, member in members.items():
        setattr(module, name, member)


def fix_time(now: float) -> None:
    import time

    gmtime, localtime, strftime = time.gmtime, time.localtime, time.strftime
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        replace(time, **{name: lambda: 0.0, f"{name}_ns": lambda: 0})
    replace(
        time,
        time=lambda: now,
        time_ns=lambda: int(now * 1_000_000) * 1_000,
        sleep=lambda seconds: None,
        gmtime=lambda seconds=None: gmtime(now if seconds is None else seconds),
        localtime=lambda seconds=None: localtime(now if seconds is None else seconds),
        strftime=lambda layout, when=None: strftime(layout, localtime(now) if when is None else when),
        ctime=lambda seconds=None: time.asctime(localtime(now if seconds is None else seconds)),
    )
    fix_dates(now)


def fix_dates(now: float) -> None:
    import datetime

    real: Any = datetime.datetime
    real_date: Any = datetime.date

    def any_of(base: Any) -> type:
        """Return a metaclass of a class that every instance of the real one counts as an instance of."""
        return type("Any", (type,), {"__instancecheck__": lambda cls, value: isinstance(value, base)})

    class FixedDatetime(real, metaclass=any_of(real)):  # type: ignore[metaclass, misc]  # by its value
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(now, tz)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.fromtimestamp(now, datetime.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(now)

    class FixedDate(real_date, metaclass=any_of(real_date)):  # type: ignore[metaclass, misc]  # by its value
        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(now)

    for fixed, name in ((FixedDatetime, "datetime"), (FixedDate, "date")):
        fixed.__name__ = fixed.__qualname__ = name
        replace(datetime, **{name: fixed})


def fix_randomness() -> None:
    import random as before

    stream = before.Random(0)  # noqa: S311 - repeatable on purpose
    replace(os, urandom=stream.randbytes)
    replace(before, _urandom=stream.randbytes)  # `SystemRandom` and `secrets` read it
    before.seed(0)


if __name__ == "__main__":
    main()
