"""A requirements file is refused before pip sees it, unless it pins packages of the index with hashes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.errors import RequirementsInvalid
from reyn.packages.requirements import check_locked, check_plain

HASH = f"--hash=sha256:{'a1' * 32}"


def test_pinned_packages_with_hashes_are_accepted():
    text = f"""
# Locked.
--only-binary=:all:
pypdf==5.1.0 \\
    {HASH} \\
    --hash=sha256:{"b2" * 32}
Pillow[xmp] == 11.0.0 ; python_version >= "3.11" {HASH}  # an image library
et_xmlfile===2.0.0 {HASH}
"""
    found = check_locked(text, "office.txt")
    assert [(one.name, one.line) for one in found] == [("pypdf", 4), ("pillow", 7), ("et-xmlfile", 8)]


def test_names_alone_can_be_locked():
    found = check_plain("pypdf\nopenpyxl>=3,<4  # spreadsheets\npillow ~= 11.0 ; os_name == 'posix'\n", "office.in")
    assert [one.name for one in found] == ["pypdf", "openpyxl", "pillow"]


NOT_A_RELEASE = {
    "a path": (
        "./pypdf",
        "../pypdf.whl",
        "/opt/pypdf",
        "~/pypdf",
        "pypdf-5.1.0-py3-none-any.whl",
        "dist/p.tar.gz",
        "C:\\p",
    ),
    "an address": (
        *("https://example.com/pypdf.whl", "pypdf @ https://example.com/p.whl", "git+https://example.com/p.git"),
        *("file:///opt/pypdf", "pypdf@file:///opt/p.whl", "git+ssh://git@example.com/p.git#egg=p", "http:p"),
    ),
    "the option": (
        *("-e .", "-r more.txt", "--index-url https://example.com/simple", "-i https://example.com", "-c limits.txt"),
        *("--extra-index-url=https://example.com", "--find-links /opt/wheels", "-f .", "--trusted-host example.com"),
        *("--editable=.", "--no-index", "--pre", "--no-binary=:all:", "--config-settings=a=b"),
    ),
}


@pytest.mark.parametrize("check", [check_locked, check_plain])
@pytest.mark.parametrize(("what", "line"), [(what, line) for what, lines in NOT_A_RELEASE.items() for line in lines])
def test_a_path_an_address_and_an_option_are_refused(check, what, line):
    hashes = "" if check is check_plain or line.startswith("-") else f" {HASH}"
    with pytest.raises(RequirementsInvalid) as caught:
        check(f"# first\n{line}{hashes}\n", "office.txt")
    assert caught.value.message.startswith("office.txt, line 2: ")
    assert what in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("pypdf==5.1.0", "has no hash"),
        ("pypdf", "has no hash"),
        (f"pypdf>=5 {HASH}", "names no exact version"),
        (f"pypdf {HASH}", "names no exact version"),
        (f"pypdf==5.* {HASH}", "names no exact version"),
        (f"pypdf==5,==6 {HASH}", "names no exact version"),
        ("pypdf==5 --hash=md5:0123", "no SHA-256 hash"),
        ("pypdf==5 --hash=sha256:0123", "no SHA-256 hash"),
        (f"pypdf==${{VERSION}} {HASH}", "has a variable"),
        (f"pypdf==5 {HASH} --no-deps", "is no requirement"),
        (f"pypdf 5 {HASH}", "is no requirement"),
        ("pypdf==5 \\", "ends with"),
        ("", "names no package"),
        ("# nothing", "names no package"),
    ],
)
def test_the_message_names_the_line_and_the_reason(line, reason):
    with pytest.raises(RequirementsInvalid, match=reason) as caught:
        check_locked(line, "office.txt")
    assert caught.value.hint


LINES = st.text(alphabet="abz0159.-_=<>!~@:/\\[];# '\"$%{}\t", max_size=40)


@given(st.lists(LINES, max_size=6))
def test_no_text_gets_past_the_check_with_a_path_an_address_or_an_option(lines):
    try:
        found = check_locked("\n".join(f"{line} {HASH}" for line in lines), "office.txt")
    except RequirementsInvalid:
        return
    for one in found:
        requirement = one.text.partition(";")[0]
        assert not set("/\\@:~$") & set(requirement)
        assert not requirement.startswith("-")
        assert " --" not in requirement
