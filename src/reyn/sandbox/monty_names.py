"""The part of Python that Monty 1.4 supports: modules with their names, and builtins. Compared with CPython by a
test."""

from __future__ import annotations

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
