"""The system-call filter as a program: interpreted for both architectures, whatever machine runs the tests."""

from __future__ import annotations

import errno
import re
import struct
from itertools import product
from pathlib import Path

import pytest

from reyn.sandbox.filters import GROUPS, TOKENS, FilterRules, compile_filter, numbers, rules_of
from reyn.sandbox.syscalls import ALL

ALLOWED, KILLED = "allowed", "killed"
RULES = [FilterRules(*flags, groups) for flags in product((False, True), repeat=3) for groups in ((), tuple(GROUPS))]
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


def run(program: bytes, machine: str, number: int, *arguments: int, token: int | None = None) -> str:
    """Interpret a filter; return what the kernel would do with a call."""
    data = struct.pack("=iIQ6Q", number, token or TOKENS[machine], 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    at = accumulator = 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("=HBBI", program, 8 * at)
        at += 1
        match code:
            case 0x20:
                [accumulator] = struct.unpack_from("=I", data, value)
            case 0x54:
                accumulator &= value
            case 0x05:
                at += value
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case 0x06:
                action, result = value & 0xFFFF0000, value & 0xFFFF
                return {0x7FFF0000: ALLOWED, 0x80000000: KILLED}.get(action) or errno.errorcode[result]


@pytest.mark.parametrize("machine", TOKENS)
@pytest.mark.parametrize("rules", RULES, ids=str)
def test_every_number_without_a_rule_is_refused(machine: str, rules: FilterRules):
    program = compile_filter(rules, machine)
    known = {number: name for name, number in numbers(machine).items()}
    for number in range(600):
        listed = rules_of(rules).get(known.get(number, ""))
        plain = listed is not None and listed.alternatives == ((),)
        result = run(program, machine, number)
        assert (result == ALLOWED) if plain else (listed is not None or result == "EPERM"), known.get(number, number)
    assert len(program) // 8 <= 4096


@pytest.mark.parametrize("machine", TOKENS)
class TestArguments:
    def verdict(self, machine: str, name: str, *arguments: int, **rules: object) -> str:
        number = numbers(machine)[name]
        return run(compile_filter(FilterRules(**rules), machine), machine, number, *arguments)

    @pytest.mark.parametrize(
        ("arguments", "result"),
        [
            ((2, 1, 0), ALLOWED),
            ((10, 1 | 0o2000000 | 0o4000, 6), ALLOWED),
            ((2, 2, 17), ALLOWED),
            ((2, 1, 262), "EPERM"),
            ((2, 2, 6), "EPERM"),
            ((2, 3, 1), "EPERM"),
            ((1, 1, 0), "EPERM"),
            ((16, 3, 0), "EPERM"),
            ((38, 5, 0), "EPERM"),
        ],
    )
    def test_sockets_of_the_network(self, machine: str, arguments: tuple[int, ...], result: str):
        assert self.verdict(machine, "socket", *arguments, network=True) == result
        assert self.verdict(machine, "socket", *arguments) == "EPERM"

    def test_pairs_are_streams(self, machine: str):
        assert self.verdict(machine, "socketpair", 1, 1 | 0o2000000, 0) == ALLOWED
        for arguments in ((1, 2, 0), (1, 5, 0), (2, 1, 0), (1, 1, 1)):
            assert self.verdict(machine, "socketpair", *arguments) == "EPERM"

    def test_addresses_of_a_message_are_pointers(self, machine: str):
        for address in (1, 1 << 32, 1 << 47):
            assert self.verdict(machine, "sendto", 0, 0, 0, 0, address) == "EPERM"
            assert self.verdict(machine, "sendto", 0, 0, 0, 0, address, network=True) == ALLOWED
            assert self.verdict(machine, "sendto", 0, 0, 0, 0x20000000, address, network=True) == "EPERM"

    def test_threads_processes_and_namespaces(self, machine: str):
        assert self.verdict(machine, "clone", 0x003D0F00) == ALLOWED  # pthread_create
        assert self.verdict(machine, "clone", 17) == "EPERM"
        assert self.verdict(machine, "clone", 17, processes=True) == ALLOWED
        for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
            assert self.verdict(machine, "clone", 17 | flag, processes=True) == "EPERM"
            assert self.verdict(machine, "clone", 0x00010000 | flag) == "EPERM"
        assert self.verdict(machine, "clone3", 0, processes=True) == "ENOSYS"

    def test_only_the_process_itself(self, machine: str):
        assert self.verdict(machine, "prlimit64", 0) == ALLOWED
        assert self.verdict(machine, "prlimit64", 1) == "EPERM"
        assert self.verdict(machine, "sched_setaffinity", 0, groups=("scheduling",)) == ALLOWED
        assert self.verdict(machine, "sched_setaffinity", 1, groups=("scheduling",)) == "EPERM"
        assert self.verdict(machine, "setpriority", 0, 1, groups=("scheduling",)) == "EPERM"
        assert self.verdict(machine, "setpriority", 1, 0, groups=("scheduling",)) == "EPERM"

    def test_modes_have_no_rights_of_the_owner(self, machine: str):
        for mode in (0o4755, 0o2755, 0o6000):
            assert self.verdict(machine, "fchmod", 3, mode, metadata=True) == "EPERM"
            assert self.verdict(machine, "fchmodat", 3, 0, mode, metadata=True) == "EPERM"
            for creating in (0o100, 0o20200000):
                assert self.verdict(machine, "openat", 3, 0, creating, mode) == "EPERM"
                assert self.verdict(machine, "openat", 3, 0, creating, 0o1777) == ALLOWED
            assert self.verdict(machine, "openat", 3, 0, 0o2000000, mode) == ALLOWED  # there is no mode
        assert self.verdict(machine, "fchmod", 3, 0o1777, metadata=True) == ALLOWED

    def test_terminals_are_queried_only(self, machine: str):
        assert self.verdict(machine, "ioctl", 0, 0x5401) == ALLOWED
        assert self.verdict(machine, "ioctl", 0, 0x5412) == "ENOTTY"

    def test_another_architecture(self, machine: str):
        program = compile_filter(FilterRules(), machine)
        others = [token for name, token in TOKENS.items() if name != machine]
        for token in (*others, 0x40000003, 0x40000028):  # 32-bit x86 and ARM
            assert run(program, machine, 0, token=token) == KILLED
        for number in numbers(machine).values():
            assert run(program, machine, 0x40000000 + number) == "EPERM"


@pytest.mark.parametrize("machine", TOKENS)
def test_the_numbers_are_those_of_the_kernel(machine: str):
    if not HEADERS[machine].exists():
        pytest.skip(f"`{HEADERS[machine]}` is not installed")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[machine].read_text())
    known = {name: int(number) for name, number in found}
    known["newfstatat"] = known.get("newfstatat", known.get("fstatat", 0))
    column = tuple(TOKENS).index(machine)
    newer = {"fchmodat2", "epoll_pwait2", "faccessat2"}  # headers may be older
    wrong = {
        name: row for name, row in ALL.items() if known.get(name) != row[column] and name not in newer - known.keys()
    }
    assert wrong == {}
