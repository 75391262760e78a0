"""Decide from its source which interpreter a safe python step needs: Monty, or CPython in the process sandbox.

Monty starts within a millisecond but has a part of Python. The decision is a function of the source; a step that fails
in Monty for another reason is executed by CPython as well, whose result counts.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from functools import lru_cache

from reyn.skills.modules import parse_module

_SYNTAX: tuple[tuple[type[ast.AST], str], ...] = (
    (ast.Yield, "`yield`"),
    (ast.YieldFrom, "`yield from`"),
    (ast.Delete, "`del`"),
    (ast.AsyncFunctionDef, "`async def`"),
    (ast.TryStar, "`except*`"),
)
_ALL_BUILTINS = frozenset(dir(builtins))


@lru_cache(maxsize=256)
def needs_cpython(source: str) -> str:
    """Return why a module needs CPython; empty if Monty can run it.

    The source is valid Python: the loader has checked it.
    """
    try:
        tree = parse_module(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "it cannot be parsed"
    return next(_reasons(tree), "")


def _reasons(tree: ast.Module) -> Iterator[str]:
    modules: dict[str, str] = {}
    defined: set[str] = set()
    for node in ast.walk(tree):
        yield from _import_reasons(node, modules, defined)
        yield from _syntax_reasons(node)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            defined.add(node.id)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module is not None and node.attr not in MODULES[module]:
                yield f"it uses `{module}.{node.attr}`"
        elif isinstance(node, ast.Name) and node.id in _ALL_BUILTINS - BUILTINS and node.id not in defined:
            yield f"it uses `{node.id}`"


def _import_reasons(node: ast.AST, modules: dict[str, str], defined: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name not in MODULES:
                yield f"it imports `{alias.name}`"
            else:
                modules[alias.asname or alias.name] = alias.name
    elif isinstance(node, ast.ImportFrom):
        name = node.module or "."
        if name == "__future__":
            return
        if node.level or name not in MODULES:
            yield f"it imports `{name}`"
            return
        for alias in node.names:
            if alias.name not in MODULES[name]:
                yield f"it imports `{name}.{alias.name}`"
            defined.add(alias.asname or alias.name)


def _syntax_reasons(node: ast.AST) -> Iterator[str]:
    for kind, name in _SYNTAX:
        if isinstance(node, kind):
            yield f"it uses {name}"
    if isinstance(node, ast.ClassDef):
        if node.bases or node.keywords:
            yield f"the class `{node.name}` has a base class"
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and member.decorator_list:
                yield f"the method `{node.name}.{member.name}` has a decorator"


# -- the part of Python that Monty 1.4 supports; a test compares it with CPython --------------------------------

MODULES: dict[str, frozenset[str]] = {
    module: frozenset(names.split())
    for module, names in {
        "base64": (
            "MAXBINSIZE MAXLINESIZE a85decode a85encode b16decode b16encode b32decode b32encode b32hexdecode "
            "b32hexencode b64decode b64encode b85decode b85encode decodebytes encodebytes standard_b64decode "
            "standard_b64encode urlsafe_b64decode urlsafe_b64encode"
        ),
        "binascii": (
            "Error Incomplete a2b_base64 a2b_hex a2b_qp a2b_uu b2a_base64 b2a_hex b2a_qp b2a_uu crc32 crc_hqx hexlify "
            "unhexlify"
        ),
        "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
        "collections": "Counter defaultdict deque namedtuple",
        "copy": "copy deepcopy",
        "csv": (
            "Dialect DictReader DictWriter Error QUOTE_ALL QUOTE_MINIMAL QUOTE_NONE QUOTE_NONNUMERIC excel excel_tab "
            "field_size_limit get_dialect list_dialects reader unix_dialect writer"
        ),
        "dataclasses": "FrozenInstanceError MISSING dataclass field is_dataclass",
        "datetime": "date datetime time timedelta timezone",
        "decimal": (
            "BasicContext Clamped Context ConversionSyntax Decimal DecimalException DecimalTuple DefaultContext "
            "DivisionByZero DivisionImpossible DivisionUndefined ExtendedContext FloatOperation HAVE_CONTEXTVAR "
            "HAVE_THREADS Inexact InvalidContext InvalidOperation MAX_EMAX MAX_PREC MIN_EMIN MIN_ETINY Overflow "
            "ROUND_05UP ROUND_CEILING ROUND_DOWN ROUND_FLOOR ROUND_HALF_DOWN ROUND_HALF_EVEN ROUND_HALF_UP ROUND_UP "
            "Rounded Subnormal Underflow getcontext localcontext setcontext"
        ),
        "functools": "cache lru_cache partial reduce",
        "hashlib": (
            "algorithms_available algorithms_guaranteed blake2b blake2s md5 new pbkdf2_hmac sha1 sha224 sha256 sha384 "
            "sha3_224 sha3_256 sha3_384 sha3_512 sha512 shake_128 shake_256"
        ),
        "itertools": (
            "accumulate chain combinations combinations_with_replacement compress count cycle dropwhile filterfalse "
            "groupby islice pairwise permutations product repeat starmap takewhile tee zip_longest"
        ),
        "json": "JSONDecodeError dump dumps load loads",
        "math": (
            "acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist e erf erfc exp exp2 "
            "expm1 fabs factorial floor fmod frexp fsum gamma gcd hypot inf isclose isfinite isinf isnan isqrt lcm "
            "ldexp lgamma log log10 log1p log2 modf nan nextafter perm pi pow prod radians remainder sin sinh sqrt tan "
            "tanh tau trunc ulp"
        ),
        "random": (
            "Random betavariate choice choices expovariate gammavariate gauss getrandbits getstate lognormvariate "
            "normalvariate paretovariate randbytes randint random randrange sample seed setstate shuffle triangular "
            "uniform vonmisesvariate weibullvariate"
        ),
        "re": (
            "A ASCII DOTALL I IGNORECASE M MULTILINE Match NOFLAG Pattern S compile error escape findall finditer "
            "fullmatch match search split sub"
        ),
        "time": (
            "altzone asctime ctime daylight gmtime localtime mktime monotonic monotonic_ns perf_counter "
            "perf_counter_ns process_time process_time_ns sleep strftime strptime thread_time thread_time_ns "
            "time time_ns timezone tzname"
        ),
        "typing": (
            "Annotated Any Callable ClassVar Dict Final FrozenSet Generator Generic Iterable Iterator List Literal "
            "Mapping Never NoReturn Optional Protocol Self Sequence Set TYPE_CHECKING Tuple Type TypeVar Union"
        ),
        "unicodedata": "category combining is_normalized lookup name normalize unidata_version",
    }.items()
}

BUILTINS = frozenset(
    word
    for line in (
        "ArithmeticError AssertionError AttributeError BaseException Ellipsis Exception False FileExistsError",
        "FileNotFoundError ImportError IndexError IsADirectoryError KeyError KeyboardInterrupt LookupError",
        "MemoryError ModuleNotFoundError NameError None NotADirectoryError NotImplemented NotImplementedError",
        "OSError OverflowError PermissionError RecursionError RuntimeError StopIteration SyntaxError SystemExit",
        "TimeoutError True TypeError UnboundLocalError UnicodeDecodeError UnicodeEncodeError ValueError",
        "ZeroDivisionError abs all any bin bool bytes chr complex dict divmod enumerate filter float format",
        "frozenset getattr hasattr hash hex id int isinstance iter len list map max min next object oct ord pow",
        "print range repr reversed round set setattr slice sorted str sum tuple type zip __name__",
    )
    for word in line.split()
)
