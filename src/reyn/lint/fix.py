"""Rewrite a skill from the older form to the documented one, and its graph with edge texts.

Where the descriptions of artifacts say when to choose each successor of a phase, they become the texts of its edges.
Files are written only if the rewritten skill loads as an equal value and offers the model equal candidates. Comments
and prose are preserved: a comment whose key disappears moves to the top of its block, and an unknown key becomes a
comment.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from msgspec.structs import replace
from yaml.nodes import MappingNode, SequenceNode

from reyn.contract import Candidate, candidates_of
from reyn.documents import DocumentError, read_raw
from reyn.errors import FixImpossible
from reyn.folders import inside, replace_beneath
from reyn.lint.yaml_writer import write_nodes
from reyn.ops import standard_ops
from reyn.skills import USER_MESSAGE, Library, Skill, pin, read_skill
from reyn.skills.values import END
from reyn.skills.yaml_nodes import YamlNodes, node_at, yaml_entries

if TYPE_CHECKING:
    from reyn.skills.folder import SkillFolder
    from reyn.vocabulary import Vocabulary

EdgeTexts = dict[str, dict[str, str]]
"""When to choose each successor, by phase and successor."""


def fix_skill(folder: Path, library: Library, vocabulary: Vocabulary | None = None) -> list[str]:
    """Rewrite a skill in the documented form, with edge texts.

    Args:
        folder: The skill's folder.
        library: Where sub-skills and shared files are found.
        vocabulary: The known ops; by default, the built-in and installed ones.

    Returns:
        The files that changed; none if the skill is in the documented form already.

    Raises:
        FixImpossible: the skill has errors, or cannot be rewritten without changing it. No file was changed.
    """
    vocabulary = vocabulary or standard_ops().vocabulary
    before = read_skill(folder, vocabulary, library)
    texts = _edge_texts(before.skill) if before.skill else {}
    if not before.folder.is_older and not texts:
        return []
    if before.skill is None:
        raise FixImpossible(f"skill `{folder.name}` has errors")
    files = ["skill.md", *before.folder.own_files("phases", ".md"), *before.folder.own_files("artifacts", ".yaml")]
    paths = {file: before.folder.path_of(file) for file in files}
    rewritten: dict[str, bytes] = {}
    for file in files:
        new = _rewrite(before.folder, file, texts if file == "skill.md" else {})
        if new is not None:
            rewritten[file] = new
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / folder.name
        modules = {path.name: path for path in folder.glob("*.py") if path.is_file()}
        for file, path in (paths | modules).items():
            target = copy / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(rewritten.get(file) or _read(path, file, folder))
        after = read_skill(copy, vocabulary, library)
    if not _are_equal(before.skill, after.skill) or after.folder.is_older:
        problems = [f"{finding.file}:{finding.line}: {finding.message}" for finding in after.findings[:3]]
        reason = "; ".join(problems) or "its value would change"
        raise FixImpossible(f"skill `{folder.name}` cannot be rewritten without changing it: {reason}")
    for file, content in rewritten.items():
        replace_beneath(folder.resolve(), _relative(paths[file], folder), content)
    return sorted(rewritten)


def _edge_texts(skill: Skill) -> EdgeTexts:
    """Return the artifact descriptions as edge texts, for phases whose successors they distinguish."""
    texts_of: EdgeTexts = {}
    for node, targets in skill.graph.items():
        if node not in skill.phases or node in skill.rules or node in skill.edge_texts or len(targets) < 2:
            continue
        candidates = [one for one in candidates_of(skill, node) if one.next_phase in targets]
        texts = {
            candidate.next_phase: candidate.description for candidate in candidates if _is_written(skill, candidate)
        }
        are_distinct = len({text.casefold() for text in texts.values()}) == len(candidates) == len(targets)
        if are_distinct and not any("\n" in text for text in texts.values()):
            texts_of[node] = texts
    return texts_of


def _is_written(skill: Skill, candidate: Candidate) -> bool:
    """Return whether the author wrote a candidate's description."""
    if candidate.next_phase == END:
        return bool(skill.final_output_description or skill.final_output.description)
    return any(one.description for one in skill.inputs_of(candidate.next_phase) if one != USER_MESSAGE)


def _are_equal(before: Skill, after: Skill | None) -> bool:
    """Return whether two skills are the same but for edge texts, and offer the model the same candidates."""
    if after is None or pin(replace(after, edge_texts={})) != pin(replace(before, edge_texts={})):
        return False
    return all(candidates_of(before, phase) == candidates_of(after, phase) for phase in before.phases)


def _read(path: Path, file: str, folder: Path) -> bytes:
    try:
        return read_raw(path, file, inside=folder)
    except DocumentError as error:
        raise FixImpossible(f"`{file}` cannot be read: {error.finding.message}") from error


def _relative(path: Path, folder: Path) -> str:
    """Return where a file of the skill is. It was read there: a link that leads out of the folder is refused before."""
    relative = inside(folder, path)
    if relative is None:
        raise FixImpossible(f"`{path.name}` points outside the skill's folder")
    return relative


def _rewrite(folder: SkillFolder, file: str, texts: EdgeTexts) -> bytes | None:
    """Return the new content of a file, or `None` if it does not change; line ends and byte-order marks stay."""
    raw = _read(folder.path_of(file), file, folder.path)
    text = raw.decode("utf-8-sig")
    old = text.replace("\r\n", "\n")
    try:
        new = _rewrite_text(folder, file, old, texts)
    except (ValueError, yaml.YAMLError) as error:
        raise FixImpossible(f"`{file}` cannot be rewritten: {error}") from error
    if new == old:
        return None
    if "\r\n" in text:
        new = new.replace("\n", "\r\n")
    return (b"\xef\xbb\xbf" if raw.startswith(b"\xef\xbb\xbf") else b"") + new.encode()


def _rewrite_text(folder: SkillFolder, file: str, text: str, texts: EdgeTexts) -> str:
    if folder.read(file) is None:
        raise ValueError("it has errors")
    head, body = _split(text) if file.endswith(".md") else (text, "")
    converted = folder.conversions.get(file)
    nodes = converted.nodes if converted else YamlNodes(head)
    if file.endswith(".md") and not isinstance(nodes.root, MappingNode):
        raise ValueError("its front matter is not a mapping")
    if "input" in (keys := yaml_entries(nodes.root)) and keys["input"][0].start_mark is None:
        raise ValueError("it has no `input`, which the documented form requires")
    _add_edge_texts(nodes, texts)
    if nodes.is_original:
        return text
    new = write_nodes(nodes, converted.dropped if converted else ())
    return f"---\n{new}---\n{body}" if file.endswith(".md") else new


def _add_edge_texts(nodes: YamlNodes, texts: EdgeTexts) -> None:
    """Turn lists of successors into mappings to when to choose each."""
    graph = node_at(nodes.root, "graph")
    for name, (_, targets) in yaml_entries(graph).items():
        if graph is not None and name in texts and isinstance(targets, SequenceNode):
            entries = ((target, nodes.scalar(texts[name][target.value])) for target in targets.value)
            nodes.put(graph, name, nodes.mapping(entries, targets))


def _split(text: str) -> tuple[str, str]:
    """Return the front matter and the body, both verbatim."""
    lines = text.split("\n")
    end = next(number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---")
    return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :])
