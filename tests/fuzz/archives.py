"""Hostile archives: exports that were changed by someone who can recompute every hash.

Nothing outside the state directory changes, whatever is imported and whatever is then done with it; a refused import
stores nothing; a run that is already there takes no result from an imported one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from reyn import SyncRuntime
from reyn.journal.registry import GENESIS, link
from reyn.models.protocol import ModelAnswer
from tests.fuzz.harness import Case
from tests.fuzz.oracles import World, check_command, check_files, check_state_size, tree
from tests.fuzz.project import command, make_surroundings
from tests.support import act, file, finish, go, question, write_skill

GOLDENS = Path(__file__).parent.parent / "goldens"
_MOST_RUNS = 5
"""How many imported runs are used; a file can hold thousands."""
PLANTED = "PLANTED-51c2"
EVIL = b"#!/bin/sh\nid\n"
PATHS = [
    ".git/hooks/pre-commit",
    "reyn.yaml",
    "reyn.local.yaml",
    "conftest.py",
    "reyn/__init__.py",
    "reyn/evil.txt",
    "output/evil.txt",
    "notes.txt",
    "../outside/secret.txt",
    "/etc/reyn-fuzz",
    "out/secret.txt",
    "reyn/out/new.txt",
    "workspace:../order/kept.txt",
    ".reyn/workspace/order/kept.txt",
    "workspace:a/../../order/kept.txt",
    "workspace:.full/1",
    "",
    ".",
    "a\x00b",
    "\ud800",
    "x" * 300,
    "workspace:" + "d/" * 3000 + "x",
    "workspace:",
    "workspace:/x",
    "./workspace:x",
]
CURRENT = {
    "reyn.yaml": b"max_phase_visits: 25\n",
    "notes.txt": b"a note\n" * 20,
    "../outside/secret.txt": b"CANARY-outside-5f81",
    "out/secret.txt": b"CANARY-outside-5f81",
}
"""What files of the surroundings contain, as an attacker may know or guess."""
NUMBERS: list[Any] = [2**80, 2**70, 2**63, 2**64 - 1, -1, 0, 1.5, 1e300, -(2**63), True, None, "1", 10**400]
VALUES: list[Any] = [
    *NUMBERS,
    "",
    "\x00",
    "x\n# FORGED",
    "a/../b",
    ".",
    "\x1b]0;x\x07",
    [],
    {},
    ["x"],
    {"x": {}},
    "y" * 70_000,
]
RUN_IDS = ["order", "order.1.2.1", "order.1.2.2", "..", "../x", "a/b", "", "x" * 500, ".", "k\x00", "-", "order.", "é"]


class Archive:
    """An export as entries that can be changed. `lines` computes hashes and the seal anew."""

    def __init__(self, content: bytes) -> None:
        values = [json.loads(line) for line in content.splitlines()]
        self.header: dict[str, Any] = values[0]
        self.blobs: dict[str, bytes] = {value["blob"]: _content_of(value) for value in values if "blob" in value}
        self.events: list[dict[str, Any]] = [value for value in values if "kind" in value]

    def of_kind(self, *suffixes: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"].endswith(suffixes)]

    def add_blob(self, content: bytes) -> str:
        name = hashlib.sha256(content).hexdigest()
        self.blobs[name] = content
        return name

    def run_events(self, run: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["run"] == run]

    def renumber(self) -> None:
        """Give every run's events consecutive numbers, from the first that it had."""
        for run in {event["run"] for event in self.events}:
            own = self.run_events(run)
            for number, event in enumerate(own, own[0]["seq"] if isinstance(own[0]["seq"], int) else 1):
                event["seq"] = number

    def lines(self) -> list[bytes]:
        whole, found = hashlib.sha256(), []
        heads: dict[str, str] = {}
        entries: list[dict[str, Any]] = [self.header]
        for name, content in self.blobs.items():
            try:
                entries.append({"blob": name, "text": content.decode()})
            except UnicodeDecodeError:
                entries.append({"blob": name, "base64": base64.b64encode(content).decode()})
        for event in self.events:
            entries.append(event | {"hash": self._hash(event, heads)})
            heads[event["run"]] = entries[-1]["hash"]
        for entry in entries:
            line = _json(entry) + b"\n"
            whole.update(line)
            found.append(line)
        return [*found, _json({"seal": whole.hexdigest()}) + b"\n"]

    @staticmethod
    def _hash(event: dict[str, Any], heads: dict[str, str]) -> str:
        data, prev = event["data"], heads.get(event["run"], "")
        if not prev:
            point = data.get("point") if isinstance(data, dict) else None
            prev = point.get("hash", GENESIS) if isinstance(point, dict) else GENESIS
        try:
            return link(event["seq"], event["ts"], event["kind"], event["v"], _json(data), prev)
        except (TypeError, UnicodeEncodeError, AttributeError):  # a number that is none: no hash fits
            return GENESIS


def _content_of(value: dict[str, Any]) -> bytes:
    return value["text"].encode() if "text" in value else base64.b64decode(value["base64"])


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


class Agreeable:
    """A model that finishes wherever it can, and else goes on."""

    name = "scripted"
    takes_time = False

    async def complete(self, request: Any) -> ModelAnswer:
        answers = [finish("imported"), go("build"), go("check"), go("second")]
        return ModelAnswer(json.dumps(answers[request.answered % len(answers)]))


class Exchangeable:
    """A model that answers as another one does, which can be exchanged while a runtime is open."""

    name = "scripted"
    takes_time = False

    def __init__(self, now: Any) -> None:
        self.now = now

    async def complete(self, request: Any) -> ModelAnswer:
        answer: ModelAnswer = await self.now.complete(request)
        return answer


def target(case: Case) -> None:
    chance = case.random
    root = make_surroundings(case.folder)
    victim = _start_victim(root)
    kept = root / ".reyn" / "workspace" / "order" / "kept.txt"
    make = chance.choices([maker for maker, _ in MIXES], [weight for _, weight in MIXES])[0]
    case.label(make.__name__)
    if make is endless:
        path = chance.choice(["/dev/zero", str(_endless_file(case.folder))])
        check_command(case, "import", *command(root, "import", path))
        return
    lines = make(chance, case.folder)
    world, stored, files = World(case.folder, root), _stored(root), tree(root / ".reyn" / "workspace")
    model = Exchangeable(Agreeable())
    with SyncRuntime.open(root, model=model) as rt:
        imported: list[str] = []
        try:
            with case.guarded("import"):
                imported = [*rt.runs.import_(iter(lines)).imported]
        finally:
            check_files(case, world, "import")
        if not imported and (_stored(root) != stored or tree(root / ".reyn" / "workspace") != files):
            case.found("refused-import-stores-runs", sorted(_stored(root) - stored))
        for run in sorted({row.run_id for row in _rows(case, rt)} - stored)[:_MOST_RUNS]:
            _use(case, rt, world, run)
        model.now = Ordering("honest")
        _use_victim(case, rt, victim)
    if kept.read_text() != "kept":
        case.found("writes-files-of-another-run", kept.read_text())
    check_state_size(case, root / ".reyn")


def _rows(case: Case, rt: SyncRuntime) -> list[Any]:
    with case.guarded("runs"):
        return rt.runs.all()
    return []


def _use(case: Case, rt: SyncRuntime, world: World, run: str) -> None:
    """Everything that an operator may do with an imported run."""
    head = case.random.randint(1, 30)
    actions: dict[str, Callable[[], Any]] = {
        "result": lambda: rt.runs.result(run),
        "events": lambda: [event.as_json() for event in rt.runs.events(run)],
        "frame": lambda: rt.runs.prompt_at(run),
        "next": lambda: [
            rt.runs.display_status(rt.runs.find(run)),
            rt.runs.next_action(rt.runs.find(run)),
            rt.runs.open_question(rt.runs.find(run)),
        ],
        "verify": lambda: rt.runs.verify(run),
        "replay": lambda: rt.runs.replay(run),
        "touched": lambda: rt.runs.changed_files(run),
        "fork": lambda: rt.fork(run, at=head if head < 20 else None, run_id=f"fork-{case.random.randrange(10**9)}"),
        "resume": lambda: rt.resume(run),
        "retry": lambda: rt.resume(run, retry=True),
        "undo": lambda: rt.runs.undo(run),
        "rerun": lambda: rt.rerun(run, run_id=f"rerun-{case.random.randrange(10**9)}"),
        "export": lambda: list(rt.runs.export(run)),
    }
    for name, action in actions.items():
        with case.guarded(name):
            action()
        check_files(case, world, name)
    for words in (("show", run), ("runs",)):
        check_command(case, " ".join(words), *command(rt.project.root, *words))


def _stored(root: Path) -> set[str]:
    import sqlite3

    base = sqlite3.connect(f"file:{root / '.reyn' / 'journal.db'}?mode=ro", uri=True)
    try:
        return {row[0] for row in base.execute("select run_id from runs")}
    finally:
        base.close()


# -- the victim: a run that waits, and whose next op is a sub-run ---------------------------------------


def _write_order(root: Path) -> None:
    write_skill(root, "inner", {"x": ["end"]})
    write_skill(root, "order", {"plan": ["end"]}, ops={"plan": "file, ask_user, run_skill"})


class Ordering:
    """Asks, runs `inner`, finishes. `inner` answers with a text."""

    name = "scripted"
    takes_time = False

    def __init__(self, inner: str) -> None:
        self._inner = inner

    async def complete(self, request: Any) -> ModelAnswer:
        if any("Do what x does" in message.text for message in request.messages):
            return ModelAnswer(json.dumps(finish(self._inner)))
        run = {"kind": "run_skill", "skill": "inner", "input": {"text": "for inner"}}
        write = file("write", "workspace:kept.txt", content="kept")
        answers = [act(write, question("Go on?")), act(run), finish("ordered")]
        return ModelAnswer(json.dumps(answers[min(request.answered, 2)]))


def _start_victim(root: Path) -> str:
    _write_order(root)
    with SyncRuntime.open(root, model=Ordering("honest")) as rt:
        result = rt.run("order", {"text": "in"}, run_id="order")
        assert result.question is not None
        return result.question.id


def _use_victim(case: Case, rt: SyncRuntime, wait: str) -> None:
    with case.guarded("resume the victim"):
        rt.answer("order", wait, "yes")
        rt.resume("order")
    with case.guarded("read the victim"):
        for event in rt.runs.events("order"):
            artifact = event.data.get("artifact") if event.kind == "child_ended" else None
            if artifact and PLANTED.encode() in rt.runs.content(artifact["hash"]):
                case.found("takes-planted-sub-run", event.data["run"])


# -- archives -----------------------------------------------------------------------------------------


@cache
def _goldens() -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in sorted(GOLDENS.glob("rules-*/*.jsonl"))}


def _golden(chance: random.Random, *, with_changes: bool = False) -> Archive:
    return Archive(_goldens()["rich" if with_changes else chance.choice(list(_goldens()))])


def forged_change(chance: random.Random, folder: Path) -> list[bytes]:
    """A recorded change of a file that no op made; perhaps cut where it would be restored, or not performed yet."""
    archive = _golden(chance, with_changes=True)
    evil = archive.add_blob(EVIL)
    path = chance.choice(PATHS if chance.random() < 0.3 else PATHS[:8])
    change: dict[str, Any] = {"path": path, "before": evil, "mode": 0o755}
    if path in CURRENT:  # a change is only reverted if the file is as the change left it
        change["after"] = archive.add_blob(CURRENT[path])
        if chance.random() < 0.3:
            del change["before"]
    if chance.random() < 0.2:
        change["made"] = [chance.choice(PATHS)]
    match chance.choice(["updated", "restore", "intent", "any", "undo"]):
        case "updated":
            event = chance.choice(archive.of_kind("workspace_updated"))
            event["data"]["change"] = change
        case "restore":
            event = chance.choice(archive.of_kind("restore_started"))
            event["data"]["changes"] = [change]
            _cut_after(archive, event)
        case "intent":
            event = chance.choice([event for event in archive.of_kind("file_started") if event["data"].get("changes")])
            event["data"]["changes"] = [{"path": path, "after": evil} if "after" not in change else _turned(change)]
            _cut_after(archive, event)
        case "undo":
            last = archive.run_events(archive.header["run"])[-1]
            data = {"changes": [change]}
            archive.events.insert(
                archive.events.index(last) + 1,
                last | {"seq": last["seq"] + 1, "kind": "undo_started", "v": 1, "data": data},
            )
        case "any":
            for event in archive.events:
                if "change" in event["data"]:
                    event["data"]["change"] = change
                if event["data"].get("changes"):
                    event["data"]["changes"] = [change]
    return archive.lines()


def _turned(change: dict[str, Any]) -> dict[str, Any]:
    return change | {"before": change["after"], "after": change.get("before")}


def _cut_after(archive: Archive, event: dict[str, Any]) -> None:
    """Drop what came later, in every run."""
    at = (event["ts"], event["seq"])
    run = event["run"]
    archive.events = [
        other
        for other in archive.events
        if (other["run"] == run and other["seq"] <= event["seq"]) or (other["run"] != run and other["ts"] <= at[0])
    ]
    archive.header["runs"] = [name for name in archive.header["runs"] if archive.run_events(name)]


def planted_sub_run(chance: random.Random, folder: Path) -> list[bytes]:
    """The sub-run that the victim is about to start, with a result of the attacker's choice."""
    root = folder / "attacker"
    _write_order(root)
    with SyncRuntime.open(root, model=Ordering(PLANTED)) as rt:
        result = rt.run("order", {"text": "in"}, run_id="order")
        assert result.question is not None
        rt.answer("order", result.question.id, "yes")
        rt.resume("order")
        archive = Archive(b"".join(rt.runs.export("order")))
    child = next(run for run in archive.header["runs"] if run != "order")
    archive.events = archive.run_events(child)
    archive.header |= {"run": child, "runs": [child]}
    if chance.random() < 0.3:
        archive.events = archive.events[: chance.randint(1, len(archive.events))]
    return archive.lines()


def numbers(chance: random.Random, folder: Path) -> list[bytes]:
    """Numbers that no journal holds."""
    archive = _golden(chance)
    for _ in range(chance.randint(1, 2)):
        event = chance.choice(archive.events)
        match chance.randrange(5):
            case 0:
                event[chance.choice(["ts", "seq", "v"])] = chance.choice(NUMBERS)
            case 1:
                archive.header["reyn_export"] = chance.choice(NUMBERS)
            case 2:
                event["data"]["rules"] = chance.choice(NUMBERS)
            case _:
                spots = list(_spots(event["data"], int | float))
                if spots:
                    holder, key = chance.choice(spots)
                    holder[key] = chance.choice(NUMBERS)
    if chance.random() < 0.3:
        first = next(event for event in archive.events if event["kind"] == "run_started")
        first["data"]["rules"] = chance.choice(NUMBERS)
    return archive.lines()


def fields(chance: random.Random, folder: Path) -> list[bytes]:
    """Any value in any place of an event."""
    archive = _golden(chance)
    for _ in range(chance.randint(1, 3)):
        event = chance.choice(archive.events)
        spots = [(event["data"], key) for key in event["data"]] + list(_spots(event["data"], object))
        if spots:
            holder, key = chance.choice(spots)
            holder[key] = chance.choice(VALUES if chance.random() < 0.7 else [*archive.blobs])
    return archive.lines()


def contents(chance: random.Random, folder: Path) -> list[bytes]:
    """Other content under a right name: settings, skills, arguments, results, frames."""
    archive = _golden(chance)
    for _ in range(chance.randint(1, 3)):
        name = chance.choice([*archive.blobs])
        content = archive.blobs.pop(name)
        other = archive.add_blob(_mutated(chance, content))
        archive.events = json.loads(json.dumps(archive.events).replace(name, other))
    return archive.lines()


def _mutated(chance: random.Random, content: bytes) -> bytes:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):  # it may be mutated already
        return chance.choice([b"", b"\xff\xfe", content * 2, b"null", content[:-1]])
    spots = list(_spots(value, object)) if isinstance(value, dict | list) else []
    if not spots or chance.random() < 0.2:
        return chance.choice([b"", b"{}", b"[]", b"null", b"7", content[:-1], b"[" * 5000, b"\xff"])
    holder, key = chance.choice(spots)
    holder[key] = chance.choice(VALUES)
    return _json(value)


def order_of_events(chance: random.Random, folder: Path) -> list[bytes]:
    """Events removed, repeated, exchanged, moved to another run; the file cut anywhere."""
    archive = _golden(chance)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(archive.events))
        match chance.choice(["drop", "repeat", "swap", "cut", "adopt"]):
            case "drop" if len(archive.events) > 1:
                archive.events.pop(at)
            case "repeat":
                archive.events.insert(at, json.loads(json.dumps(archive.events[at])))
            case "swap":
                other = chance.randrange(len(archive.events))
                events = archive.events
                events[at], events[other] = events[other], events[at]
            case "cut":
                _cut_after(archive, archive.events[at])
            case "adopt":
                archive.events[at]["run"] = chance.choice(archive.header["runs"])
    if chance.random() < 0.8:
        archive.renumber()
    archive.header["runs"] = list(dict.fromkeys(event["run"] for event in archive.events))
    return archive.lines()


def names(chance: random.Random, folder: Path) -> list[bytes]:
    """Run ids, parents, origins and workspaces that belong to others."""
    archive = _golden(chance)
    run, other = chance.choice(archive.header["runs"]), chance.choice(RUN_IDS)
    for event in archive.run_events(run):
        event["run"] = other
        if event["kind"] in ("run_started", "run_forked"):
            event["data"]["run_id"] = other
            match chance.randrange(5):
                case 0:
                    event["data"]["workspace"] = chance.choice(RUN_IDS)
                case 1:
                    event["data"]["parent"] = {
                        "run": chance.choice(RUN_IDS),
                        "call": "1.2.1",
                        "depth": chance.choice([1, -1, 99]),
                    }
                case 2:
                    event["data"]["source"] = chance.choice(["../outside/secret.txt", "/etc", "\x00", "~"])
                case 3:
                    event["data"]["rerun_of"] = chance.choice(RUN_IDS)
    runs = [other if name == run else name for name in archive.header["runs"]]
    archive.header |= {"run": chance.choice(runs), "runs": runs}
    return archive.lines()


def two_runs(chance: random.Random, folder: Path) -> list[bytes]:
    """A good run, and one behind it that cannot be stored."""
    good, bad = _golden(chance), _golden(chance)
    for event in bad.events:
        event["run"] = f"second-{event['run']}"
    for event in bad.events:
        if event["kind"] == "run_started":
            event["data"]["run_id"] = event["run"]
    event = chance.choice(bad.events)
    match chance.randrange(4):
        case 0:
            event["kind"] = "no_such_kind"
        case 1:
            event["seq"] += 5
        case 2:
            event["ts"] = chance.choice([2**80, -1, 2**63])
        case 3:
            event["data"]["unknown"] = 1
    good.events += bad.events
    good.blobs |= bad.blobs
    good.header["runs"] = list(dict.fromkeys(event["run"] for event in good.events))
    return good.lines()


def raw_bytes(chance: random.Random, folder: Path) -> list[bytes]:
    """Bytes changed anywhere, nothing recomputed."""
    content = bytearray(b"".join(_golden(chance).lines()))
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(content))
        match chance.randrange(4):
            case 0:
                content[at] = chance.randrange(256)
            case 1:
                del content[at : at + chance.randint(1, 500)]
            case 2:
                content[at:at] = chance.choice([b"[" * 100_000, b"\n", b"\x00", b"\xff", b'"', b"9" * 5000, b"{}\n"])
            case 3:
                content[at:at] = content[at : at + 2000]
    return bytes(content).splitlines(keepends=True)


def heavy(chance: random.Random, folder: Path) -> list[bytes]:
    """Small files that could become large: many runs, deep data, long lines."""
    archive = _golden(chance)
    first = archive.events[0]
    match chance.randrange(4):
        case 0:
            archive.add_blob(b"x" * 30_000_000)
        case 1:
            deep: Any = 0
            for _ in range(900):
                deep = [deep]
            first["data"]["skill"] = deep
        case 2:
            archive.events += [
                first | {"run": f"r{n}", "data": first["data"] | {"run_id": f"r{n}"}} for n in range(2000)
            ]
            archive.header["runs"] = list(dict.fromkeys(event["run"] for event in archive.events))
        case 3:
            archive.header["runs"] = archive.header["runs"] * 100_000
    return archive.lines()


def endless(chance: random.Random, folder: Path) -> list[bytes]:
    """A file without an end of line, larger than memory."""
    raise AssertionError("read by the command line")


def _endless_file(folder: Path) -> Path:
    path = folder / "endless.jsonl"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    return path


MIXES = [
    (forged_change, 6),
    (planted_sub_run, 2),
    (numbers, 4),
    (fields, 5),
    (contents, 4),
    (order_of_events, 5),
    (names, 3),
    (two_runs, 3),
    (raw_bytes, 3),
    (heavy, 1),
    (endless, 1),
]


def _spots(value: Any, kind: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value that holds a value of some kind."""
    found: list[tuple[Any, Any]] = []
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in entries:
        if isinstance(item, kind) and not (kind is not object and isinstance(item, bool)):
            found.append((value, key))
        found += _spots(item, kind)
    return found
