"""The line locator against tomllib: it must find every key where it stands, whatever the values look like."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skidpad.settings.leaves import Key
from skidpad.settings.toml_lines import statements

BARE = st.text("abcXYZ019_-", min_size=1, max_size=4)
NAMES = BARE | st.text("ab .#[]{}='\t\u00e9\"\\", min_size=0, max_size=5)
VALUES = st.sampled_from(
    [
        "1",
        "1_000.5",
        "true",
        "1979-05-27T07:32:00Z",
        '"plain"',
        r'"a \" # ] } \\"',
        "'a # \" ]'",
        '"""\n[not.a.table]\nkey = 1\n"""',
        '"""a "quoted" \\""" b\n"""',
        '"""ends in two quotes"""""',
        '"""ends in one quote""""',
        "'''ends in one quote''''",
        "'''\n[x] # '' \n'''''",
        '""""""',
        '[1, # ]\n [2, "]"],\n\n 3,\n]',
        "{ a = 1, b = { c = ']' }, \"}\" = [ '}' ] }",
        "[]",
        "{}",
    ]
)


def spelled(name: str, quoted: bool) -> str:
    is_bare = name != "" and all(one in "abcXYZ019_-" for one in name)
    if is_bare and not quoted:
        return name
    if quoted and not any(one in name for one in "'\t"):
        return f"'{name}'"
    escaped = name.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    return f'"{escaped}"'


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[Key, int]]:
    """A legal document and the line of each of its headers and keys, known because it was written line by line."""
    lines: list[str] = []
    where: dict[Key, int] = {}
    taken: set[str] = set()
    for index in range(draw(st.integers(0, 5))):
        table: Key = ()
        if index:
            table = (f"t{index}", *draw(st.lists(NAMES, max_size=2)))
            dots = draw(st.sampled_from([".", " . ", "\t."]))
            header = dots.join(spelled(name, draw(st.booleans())) for name in table)
            lines.append(f"{draw(st.sampled_from(['', '  ']))}[ {header} ]{draw(st.sampled_from(['', ' # [c]']))}")
            where[table] = len(lines)
            taken = set()
        for _ in range(draw(st.integers(0, 3))):
            key = tuple(draw(st.lists(NAMES, min_size=1, max_size=3)))
            if key[0] in taken or (not index and key[0].startswith("t")):
                continue
            taken.add(key[0])
            lines += draw(st.sampled_from([[], [""], ["# a = [comment"], ["\t"]]))
            name = draw(st.sampled_from([".", " . "])).join(spelled(one, draw(st.booleans())) for one in key)
            where[table + key] = len(lines) + 1
            lines += f"{name} = {draw(VALUES)}{draw(st.sampled_from(['', ' # c', '  ']))}".split("\n")
    return "\n".join(lines) + draw(st.sampled_from(["", "\n", "\n\n# end"])), where


@settings(deadline=None)
@given(documents())
def test_lines_agree_with_tomllib(document: tuple[str, dict[Key, int]]) -> None:
    """E10, E17: every key tomllib finds is found at its own line; strings, arrays and comments that look like keys
    are where a locator breaks."""
    text, where = document
    tree = tomllib.loads(text)
    found = list(statements(text))
    assert {one.key: one.line for one in found} == where
    for one in found:
        node: Any = tree
        for name in one.key:
            node = node[name]
        assert isinstance(node, dict) or not one.is_table


@settings(deadline=None)
@given(st.text(st.sampled_from("ab=.[]{}\"'#\\\n ,"), max_size=60))
def test_any_text_ends(text: str) -> None:
    """F5: the locator also sees the part before a syntax error, so it must stop on anything without raising."""
    assert all(1 <= one.line <= text.count("\n") + 1 for one in statements(text))


def test_arrays_of_tables_do_not_shift_later_lines() -> None:
    """E17: settings refuse arrays of tables, but keys behind one must still be found for the other messages."""
    found = list(statements("[[a]]\nx = 1\n[[a]]\nx = 2\n[b]\ny = 3\n"))
    assert found[-1] == (("b", "y"), 6, False)


@pytest.mark.parametrize("name", ['"\\u0065nv"', "'env'", '"env"', "env"])
def test_quoted_names_are_unquoted_by_toml_rules(name: str) -> None:
    """E3: a quoted spelling is the same key, so its line must be found under the plain name."""
    assert [one.key for one in statements(f"{name}.dt = 1")] == [("env", "dt")]
