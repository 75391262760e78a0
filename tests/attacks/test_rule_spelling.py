"""Rules are compared with what will be used, not with how it is spelled.

The attacker controls every URL, path and program name of an op, the answers of name servers, and links in the project.
The oracles are a listening socket, a fake resolver, the addresses of IANA's registries, and the file system.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.permissions import (
    Allowed,
    AnyTarget,
    Denied,
    Gate,
    NeedsApproval,
    Policy,
    RuleError,
    parse_requests,
    parse_rules,
)
from reyn.permissions.hosts import Host, HostPattern, canonical_host, is_public
from reyn.sandbox.backends import BACKENDS
from reyn.vocabulary import PERMISSIONS
from reyn.workspace import Roots, locate
from tests.kernel.support import Project
from tests.properties import examples
from tests.support import act, file, finish, write_skill

KEYS = tuple(entry.key for entry in PERMISSIONS)


def gate_of(root: Path, rules: dict[str, Any], requests: dict[str, Any] | None = None) -> Gate:
    roots = Roots(root, root / ".reyn", root / ".reyn" / "workspace" / "run")
    policy = Policy(parse_rules(rules, KEYS), allow_shell=True)
    asked = requests or {key: True for key in rules if not key.startswith("file.")}
    return Gate(roots, policy, (parse_requests(asked),), "s")


# -- hosts ----------------------------------------------------------------------------------------------------


def spellings(address: ipaddress.IPv4Address) -> list[str]:
    """Return notations of an IPv4 address that the system's resolver or a router takes for it."""
    number, parts = int(address), address.packed
    low = f"{number >> 16:x}:{number & 0xFFFF:x}"
    return [
        str(address),
        f"{address}.",
        str(number),
        hex(number),
        hex(number).upper().replace("X", "x"),
        ".".join(f"0{part:o}" for part in parts),
        ".".join(hex(part) for part in parts),
        f"{parts[0]}.{number & 0xFFFFFF}",
        f"{parts[0]}.{parts[1]}.{number & 0xFFFF}",
        "".join(chr(0xFF10 + int(char)) if char.isdigit() else "\u3002" for char in str(address)),
        f"[::ffff:{address}]",
        f"[::ffff:{low}]",
        f"[0:0:0:0:0:FFFF:{low}]",
        f"[64:ff9b::{low}]",
        f"[2002:{low}::]",
        f"[::{low}]",
    ]


addresses = st.integers(0x01000000, 0xDFFFFFFF).map(ipaddress.IPv4Address)


@given(address=addresses, port=st.sampled_from(("", ":80", ":443", ":8080")), effect=st.sampled_from(("deny", "ask")))
@examples(100)
def test_a_rule_on_an_address_covers_every_spelling_of_it(address: ipaddress.IPv4Address, port: str, effect: str):
    gate = gate_of(Path("/nowhere"), {"web": ["allow", {"allow": "private:*"}, {effect: str(address)}]})
    for spelling in spellings(address):
        host = Host.parse(f"{spelling}{port}")
        for text in (host.text, f"private:{host.text}"):
            assert isinstance(gate.capability("web", text), Denied if effect == "deny" else NeedsApproval), spelling


@given(address=addresses)
@examples(100)
def test_the_resolver_agrees_on_what_a_spelling_means(address: ipaddress.IPv4Address):
    """The canonical host is the address that the system connects to."""
    for spelling in spellings(address)[:9]:
        resolved = socket.inet_ntoa(socket.inet_aton(spelling.rstrip(".")))
        assert canonical_host(spelling) == resolved == str(address)


LOOPBACK = [
    *spellings(ipaddress.IPv4Address("127.0.0.1")),
    *("127.1", "127.2.3.4", "0", "0.0.0.0", "localhost", "LOCALHOST", "localhost.", "a.localhost", "[::1]", "[::]"),
    *("[0:0:0:0:0:0:0:1]", "[::ffff:0:0]"),
]


@pytest.mark.parametrize("denied", ["localhost", "127.0.0.1", "::1", "[::1]", "0.0.0.0", "127.1", "LocalHost."])
@pytest.mark.parametrize("port", ["", ":1", ":8080"])
def test_one_name_of_this_machine_stands_for_all_on_every_port(denied: str, port: str):
    gate = gate_of(Path("/nowhere"), {"web": [{"allow": ["*", "private:*"]}, {"deny": denied}]})
    for spelling in LOOPBACK:
        assert isinstance(gate.capability("web", f"{spelling}{port}"), Denied), spelling
    assert isinstance(gate.capability("web", f"example.org{port}"), Allowed)


@pytest.mark.parametrize(
    ("pattern", "covered", "others"),
    [
        ("example.org", ["EXAMPLE.org", "example.org.", "example.org:8443"], ["sub.example.org", "example.com"]),
        ("bücher.example", ["xn--bcher-kva.example", "BÜCHER.example:8080"], ["bucher.example"]),
        ("xn--bcher-kva.example", ["bücher.example"], ["bucher.example"]),
        ("*.bücher.example", ["a.xn--bcher-kva.example"], ["xn--bcher-kva.example"]),
        ("example.org:8080", ["example.org:8080"], ["example.org", "example.org:8081"]),
        ("example.org:443", ["example.org", "example.org:443"], ["example.org:8443"]),
        ("[2001:4860::8888]", ["[2001:4860:0:0::8888]", "[2001:4860::8888]:81"], ["[2001:4860::8889]"]),
        ("2001:4860::8888", ["[2001:4860:0000::8888]"], []),
        ("[2001:4860::8888]:81", ["[2001:4860::8888]:81"], ["[2001:4860::8888]:82"]),
        ("9.9.9.0/24", ["9.9.9.1", "0x09090902", "[::ffff:9.9.9.3]"], ["9.9.8.1", "example.org"]),
        ("9.9.*", ["9.9.9.9", "9.592137"], ["9.8.9.9"]),
        ("[ab].example", ["a.example"], ["c.example"]),
    ],
)
def test_a_rule_on_a_host_covers_its_spellings_and_no_other_host(pattern: str, covered: list[str], others: list[str]):
    for effect in ("deny", "ask"):
        gate = gate_of(Path("/nowhere"), {"web": ["allow", {effect: pattern}]})
        for host in covered:
            assert not isinstance(gate.capability("web", host), Allowed), host
        for host in others:
            assert isinstance(gate.capability("web", host), Allowed), host


@pytest.mark.parametrize("pattern", ["https://example.org", "example.org/path", "user@example.org", "1.2.3.4.5"])
def test_a_pattern_that_can_match_no_host_is_an_error(pattern: str):
    for effect in ("deny", "allow"):
        with pytest.raises(RuleError):
            parse_rules({"web": [{effect: pattern}]}, KEYS)


def test_an_op_that_names_no_host_is_restricted_by_a_rule_on_any_host():
    """A program with the network can connect to the host that is denied."""
    network = AnyTarget("sandboxed_exec")
    rule = {"web": [{"allow": "sandboxed_exec"}]}
    assert isinstance(gate_of(Path("/nowhere"), rule).capability("web", network), Allowed)
    for restricted in ({"deny": "example.org"}, {"ask": "localhost"}):
        rules = {"web": ["allow", {"allow": "sandboxed_exec"}, restricted]}
        verdict = gate_of(Path("/nowhere"), rules).capability("web", network)
        assert isinstance(verdict, Denied if "deny" in restricted else NeedsApproval)


@pytest.mark.sockets
@pytest.mark.parametrize("pattern", ["", "*", "?*", "s*", "sandboxed_[e]xec", "private:*", "*:*", "0.0.0.0/0", "::/0"])
def test_no_pattern_of_hosts_grants_an_op_that_names_none(tmp_path: Path, listener: Listener, pattern: str):
    """A program with the network reaches private addresses, which a pattern of hosts does not grant."""
    requests = "permissions: {exec: [python3], web: true}\n"
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "sandboxed_exec"}, skill_keys=requests)
    code = f"import socket; socket.create_connection(('127.0.0.1', {listener.port})).sendall(b'x')"
    op = {"kind": "sandboxed_exec", "argv": ["python3", "-c", code], "network": True}
    rules = {"exec": [{"allow": "python3"}], "web": [{"allow": pattern}] if pattern else "allow"}
    result = Project(tmp_path).run("s", [act(op), finish()], permissions=rules)
    assert (result.status, listener.connections) == ("waiting", 0)
    verdict = gate_of(tmp_path, rules).capability("web", AnyTarget("sandboxed_exec"))
    assert isinstance(verdict, NeedsApproval)
    assert "`- allow: sandboxed_exec` to the list `web`" in verdict.reason


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    yield found
    found.close()


class Listener:
    """A server on this machine that counts connections."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.connections = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok")

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self._thread.join()


def fetch(root: Path, rules: list[Any], *urls: str) -> list[dict[str, Any]]:
    write_skill(root, "s", {"a": ["end"]}, ops={"a": "web_fetch"}, skill_keys="permissions: {web: true}\n")
    project = Project(root)
    ops = [{"kind": "web_fetch", "url": url} for url in urls]
    result = project.run("s", [act(*ops), finish()], permissions={"web": rules})
    assert result.status == "finished"
    return project.results()


ALLOW = [{"allow": ["*", "private:*"]}]


@pytest.mark.sockets
@pytest.mark.parametrize("denied", ["127.0.0.1", "localhost"])
def test_no_spelling_of_a_denied_address_is_connected_to(tmp_path: Path, listener: Listener, denied: str):
    urls = [f"http://{spelling}:{listener.port}/" for spelling in LOOPBACK]
    found = fetch(tmp_path, [*ALLOW, {"deny": denied}], *urls)
    assert {one["status"] for one in found} == {"denied"}
    assert (len(found), listener.connections) == (len(urls), 0)


@pytest.mark.sockets
def test_the_listener_is_reached_without_the_rule(tmp_path: Path, listener: Listener):
    found = fetch(tmp_path, ALLOW, f"http://127.1:{listener.port}/")
    assert (found[0]["status"], listener.connections) == ("ok", 1)


@pytest.mark.sockets
@pytest.mark.parametrize("restricted", [{"deny": "127.0.0.1"}, {"deny": "localhost"}, {"ask": "127.0.0.0/8"}])
def test_a_name_that_resolves_to_a_restricted_address_is_not_connected_to(
    tmp_path: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch, restricted: dict[str, str]
):
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        return real("127.0.0.1" if host == "harmless.example" else host, port, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    url = f"http://harmless.example:{listener.port}/"
    [found] = fetch(tmp_path, [*ALLOW, restricted], url)
    assert (found["status"], listener.connections) == ("denied", 0)
    assert "127.0.0.1" in found["error"]
    [found] = fetch(tmp_path / "second", ALLOW, url)
    assert (found["status"], listener.connections) == ("ok", 1)


# -- public addresses -----------------------------------------------------------------------------------------

# IANA's registries of special-purpose addresses, IPv4 and IPv6: what is not globally reachable.
SPECIAL = (
    "0.0.0.0/8 0.0.0.0/32 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.0.0/29 "
    "192.0.0.8/32 192.0.0.170/32 192.0.0.171/32 192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 "
    "198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 255.255.255.255/32 "
    "::1/128 ::/128 ::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001::/32 2001:2::/48 2001:10::/28 "
    "2001:db8::/32 2002::/16 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8 4000::/3 8000::/1"
)


@pytest.mark.parametrize("text", SPECIAL.split())
def test_no_address_of_a_special_purpose_network_is_public(text: str):
    network = ipaddress.ip_network(text)
    for address in (network[0], network[-1], network[network.num_addresses // 2]):
        assert not is_public(str(address))
        if address.version == 4:
            assert not is_public(f"::ffff:{address}")
            assert not is_public(str(ipaddress.IPv6Address(int(ipaddress.IPv6Address("64:ff9b::")) + int(address))))


@pytest.mark.parametrize("text", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "2a00:1450::1", "64:ff9b::101:101"])
def test_addresses_of_the_internet_are_public(text: str):
    assert is_public(text)


# -- files ----------------------------------------------------------------------------------------------------


def test_other_names_of_a_denied_file_are_denied(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"})
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "one.txt").write_text("secret one")
    (tmp_path / "two.txt").write_text("secret two")
    os.link(tmp_path / "keys" / "one.txt", tmp_path / "copy-one.txt")
    os.link(tmp_path / "two.txt", tmp_path / "copy-two.txt")
    (tmp_path / "link.txt").symlink_to("keys/one.txt")
    (tmp_path / "folder").symlink_to("keys")
    (tmp_path / "public.txt").write_text("public")
    os.link(tmp_path / "public.txt", tmp_path / "copy-public.txt")
    project = Project(tmp_path)
    names = ["copy-one.txt", "copy-two.txt", "link.txt", "folder/one.txt", "./keys//one.txt", "copy-public.txt"]
    rules = {"file.read": [{"deny": ["keys/", "two.txt"]}]}
    project.run("s", [act(*(file("read", name) for name in names)), finish()], permissions=rules)
    found = project.results()
    assert [one["status"] for one in found] == ["denied"] * 5 + ["ok"]
    assert not any("secret" in str(one.get("content")) for one in found)
    assert (tmp_path / "copy-one.txt").read_text() == "secret one"


WILDCARDS = {
    "*.key": "a.key",
    "n*/private/": "now/private/key.txt",
    "clients/*/private/": "clients/latest/private/key.txt",
    "clients/**/key.*": "clients/latest/private/key.txt",
    "cl*/latest": "clients/latest/private/key.txt",
    "[c]hain": "chain",
    "mid*": "chain",
    "in*/*.key": "inner/b.key",
}
"""Patterns, and a path through a symlink that each of them covers."""


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A project whose links lead to files that no pattern of `WILDCARDS` names."""
    (tmp_path / "store" / "2024" / "private").mkdir(parents=True)
    (tmp_path / "store" / "2024" / "private" / "key.txt").write_text("secret")
    (tmp_path / "store" / "blob").write_text("secret")
    for name, target in {
        "a.key": "store/blob",
        "clients/latest": "../store/2024",
        "now": "clients/latest",
        "chain": "middle",
        "middle": str(tmp_path / "store" / "blob"),
        "inner": "store",
        "store/b.key": "blob",
        "harmless": "store/2024",
        "harmless.txt": "store/blob",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(target)
    requests = "permissions: {exec: [cat, ls]}\n"
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file, sandboxed_exec"}, skill_keys=requests)
    return tmp_path


@pytest.mark.parametrize("pattern", WILDCARDS)
def test_a_rule_with_a_wildcard_covers_links_by_their_names(linked: Path, pattern: str):
    assert (linked / WILDCARDS[pattern]).read_text() == "secret"
    path = WILDCARDS[pattern]
    paths = [path, f"./{path}", f"store/../{path}", str(linked / path)]
    ops = [file("read", one) for one in paths]
    folder = path.partition("/")[0]
    ops += [{"kind": "sandboxed_exec", "argv": ["cat", path], "read_paths": [read]} for read in (".", folder)]
    ops += [file("grep", path, pattern="secret"), file("read", "harmless/private/key.txt")]
    ops.append({"kind": "sandboxed_exec", "argv": ["cat", "harmless.txt"], "read_paths": ["."]})
    project = Project(linked)
    rules = {"file.read": [{"deny": pattern}], "exec": [{"allow": "*"}]}
    project.run("s", [act(*ops), finish()], permissions=rules)
    *found, harmless, shown = project.results()
    assert {one["status"] for one in found[: len(paths)]} == {"denied"}
    assert not any("secret" in str(one.get(key)) for one in found for key in ("content", "stdout", "matches"))
    assert harmless["content"] == "secret"
    assert shown["stdout"] == "secret"


# -- programs -------------------------------------------------------------------------------------------------


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with a program under several names."""
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/sh", tmp_path / "bin" / "tool")
    os.link(tmp_path / "bin" / "tool", tmp_path / "bin" / "hard")
    (tmp_path / "bin" / "soft").symlink_to("tool")
    (tmp_path / "alias").symlink_to("bin")
    shutil.copy("/bin/sh", tmp_path / "bin" / "other")
    return tmp_path


def test_a_rule_on_a_program_covers_the_file_however_it_is_called(programs: Path):
    names = [
        "bin/tool",
        "/bin/tool",
        "bin/../bin/tool",
        "bin/./tool",
        "bin//tool",
        "alias/tool",
        "bin/hard",
        "bin/soft",
    ]
    called = [f"{programs}/{name}" for name in names]
    for effect in ("deny", "ask"):
        for pattern in (called[0], called[-1], called[-2], f"{programs}/alias/hard", f"{programs}/bin/t*", "tool"):
            gate = gate_of(programs, {"exec": ["allow", {effect: pattern}]})
            for name in called if pattern != f"{programs}/bin/t*" and pattern != "tool" else called[:6]:
                assert not isinstance(gate.capability("exec", name), Allowed), (pattern, name)
            assert isinstance(gate.capability("exec", f"{programs}/bin/other"), Allowed)


def test_a_program_of_the_search_path_is_the_file_that_it_leads_to():
    path = shutil.which("env", path="/usr/bin:/bin")
    assert path is not None
    for pattern in ("env", path, "/bin/env", "/usr/bin/env"):
        gate = gate_of(Path("/nowhere"), {"exec": ["allow", {"deny": pattern}]})
        for name in ("env", path, f"/{path}", "/usr/bin/../bin/env", "/bin/env", "//usr//bin/./env"):
            assert isinstance(gate.capability("exec", name), Denied), (pattern, name)
        assert isinstance(gate.capability("exec", "another-program"), Allowed)


def test_a_grant_of_a_folder_of_programs_does_not_lead_out_of_it(programs: Path):
    gate = gate_of(programs, {"exec": [{"allow": f"{programs}/bin/*"}]})
    assert isinstance(gate.capability("exec", f"{programs}/bin/tool"), Allowed)
    assert isinstance(gate.capability("exec", f"{programs}/alias/tool"), Allowed)
    assert isinstance(gate.capability("exec", f"{programs}/bin/../outside"), Denied)
    assert isinstance(gate.capability("exec", f"{programs}/alias/../outside"), Denied)


PROJECT_PROGRAMS = ("bin/tool", "./bin/tool", "bin//tool", "bin/./tool")
RUN_PROGRAMS = tuple(f"workspace:{name}" for name in PROJECT_PROGRAMS)


@pytest.mark.parametrize(
    ("pattern", "granted"),
    [
        *((pattern, PROJECT_PROGRAMS) for pattern in (*PROJECT_PROGRAMS, "bin/*", "*/tool", "bin/")),
        *(
            (pattern, RUN_PROGRAMS)
            for pattern in (*RUN_PROGRAMS, "workspace:bin/*", "workspace:*/tool", "workspace:bin/")
        ),
        ("*", (*PROJECT_PROGRAMS, *RUN_PROGRAMS, "tool", "workspace:tool", "/bin/tool")),
        ("tool", ("tool",)),
        ("workspace:tool", ("workspace:tool", "workspace:./tool")),
        *((pattern, ()) for pattern in ("workspace*", "workspace:", "../bin/tool", "bin/\0")),
    ],
)
def test_a_relative_path_of_a_grant_is_one_of_the_project(pattern: str, granted: tuple[str, ...], programs: Path):
    every = {*PROJECT_PROGRAMS, *RUN_PROGRAMS, "tool", "workspace:tool", "workspace:./tool", "/bin/tool"}
    requesting = gate_of(programs, {"exec": [{"allow": pattern}]})
    denying = gate_of(programs, {"exec": ["allow", {"deny": pattern}]})
    for name in every:
        assert isinstance(requesting.capability("exec", name), Allowed) == (name in {*granted} or pattern == "*"), name
    for name in granted:
        assert isinstance(denying.capability("exec", name), Denied), name


@pytest.mark.skipif(all(backend.problem for backend in BACKENDS), reason="no process sandbox")
@pytest.mark.parametrize(
    ("program", "paths", "output"),
    [
        ("tools/fmt", ["tools/"], "of the project\n"),
        ("tools/fmt", ["tools/", "workspace:"], "of the project\n"),
        ("tools/fmt", ["workspace:"], None),
        ("workspace:tools/fmt", ["workspace:"], "of the run\n"),
        ("workspace:tools/fmt", ["tools/"], None),
        ("tools/none", ["workspace:"], None),
    ],
)
def test_the_program_that_starts_is_the_one_that_the_rule_names(
    program: str, paths: list[str], output: str | None, tmp_path: Path
):
    """A grant of `tools/fmt` also started `workspace:tools/fmt`, which the run may have written itself."""
    granted = "[tools/fmt, workspace:tools/fmt, tools/none]"
    write_skill(
        tmp_path, "s", {"a": ["end"]}, ops={"a": "sandboxed_exec"}, skill_keys=f"permissions: {{exec: {granted}}}\n"
    )
    for folder, owner in ((tmp_path, "project"), (tmp_path / ".reyn/workspace/k", "run")):
        for name in ("fmt", "none") if owner == "run" else ("fmt",):
            file = folder / "tools" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"#!/bin/sh\necho of the {owner}\n")
            file.chmod(0o755)
    project = Project(tmp_path)
    call = {"kind": "sandboxed_exec", "argv": [program], "read_paths": paths}
    permissions = {"exec": [{"allow": ["tools/*", "workspace:tools/fmt"]}]}
    assert project.run("s", [act(call), finish()], permissions=permissions, run_id="k").ok
    [result] = project.results()
    assert (result["stdout"] if result["status"] == "ok" else None) == output


def test_a_rule_on_a_shell_command_covers_what_it_can_see():
    gate = gate_of(Path("/nowhere"), {"shell": ["allow", {"deny": "rm *"}]})
    for command in ("rm -rf x", "rm  -rf x", "/bin/rm x", "sh -c true; rm x", "sh -c $(echo rm) x"):
        assert isinstance(gate.capability("shell", command), Denied)
    assert isinstance(gate.capability("shell", "ls -l"), Allowed)


def test_patterns_and_hosts_have_one_spelling():
    assert HostPattern.parse("private:LOCALHOST.:8080").text == "private:localhost:8080"
    assert Host.parse("[::FFFF:1.2.3.4]:81").text == "1.2.3.4:81"


def test_names_of_files_are_compared_in_any_case(tmp_path: Path):
    """A file system may fold case: `SECRETS/a` is the file that a rule on `secrets/` means."""
    gate = gate_of(tmp_path, {"file.read": [{"deny": "secrets/"}], "memory": "deny", "skill.write": "deny"})
    for path in ("SECRETS/a", "Secrets/x/y", "reyn/memory/a.md", "Reyn/Memory/bot/a.md"):
        assert isinstance(gate.read(locate(path, gate.roots)), Denied), path
    assert isinstance(gate.write(locate("Reyn/LOCAL/x/skill.md", gate.roots)), Denied)
