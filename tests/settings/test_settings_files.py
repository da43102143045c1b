"""Reading one file: formats, limits, keys written twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skidpad.errors import SettingsError
from skidpad.settings import suite_file
from skidpad.settings.checking import typed
from skidpad.settings.leaves import Problems, Text, nested
from skidpad.settings.schema import BASELINE_NAMES
from skidpad.settings.suite import Suite
from skidpad.settings.suite_file import read_file, toml_text

Load = Callable[..., Suite]
Refusal = Callable[..., str]

TOML = """
[eval]
benchmark_seed = 3
[env]
dt = 0.2
[eval.x]
type = "realism"
interval = 4
at_end = false
env.scenes = "data"
env.idm.headway = 2
eval.label = "50%"
eval.num_scenarios = 2
eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
[eval.x.vec]
threads = 2
"""
INI = """
# a comment
[eval]
benchmark_seed = 3
[env]
dt = 0.2
[eval.x]
type = realism      # a comment
interval = 4
at_end = False
env.idm.headway = 2
eval.label = 50%
eval.num_scenarios = 2
eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
[eval.x.vec]
threads = 2
[eval.x.env]
scenes = 'data'
"""


def test_ini_and_toml_same_digest(load: Load) -> None:
    """E2 ini_and_toml_same_digest: one suite in both formats is one evaluation; text must become the schema's types."""
    toml, ini = load(TOML).spec("x"), load(INI, name="suite.ini").spec("x")
    assert toml.tree == ini.tree
    assert toml.section_digest(["d"]) == ini.section_digest(["d"])
    assert ini.benchmark_seed == 3
    assert ini.origins["env.scenes"].line == 18


class TestIniPitfalls:
    """E2, F7 ini_pitfalls: each is a way in which Python's own INI reader surprises."""

    def test_key_case_is_kept(self, refusal: Refusal) -> None:
        """Lower-casing would make `Type` a legal key."""
        assert "suite.ini:2: unknown key 'Type'" in refusal("[eval.x]\nType = realism\n", name="suite.ini")

    def test_percent_is_text(self, load: Load) -> None:
        """Interpolation would refuse or change `50%`."""
        assert load(INI, name="suite.ini").spec("x").eval.label == "50%"

    @pytest.mark.parametrize(
        ("written", "value"),
        [
            ("a#b", "a#b"),
            ("a #b", "a"),
            ("a\t# b", "a"),
            ('"a # b" # c', "a # b"),
            ("'a'", "a"),
            ("\"a'", "\"a'"),
            ("a;b", "a;b"),
            ("don't", "don't"),
        ],
    )
    def test_comments_need_white_space(self, load: Load, written: str, value: str) -> None:
        """A comment kept inside a value, or a `#` of a value taken for a comment, is a different setting."""
        text = f"[eval.x]\ntype = realism\nenv.scenes = data\nlabel = {written}\n"
        assert load(text, name="suite.ini").spec("x").eval.label == value

    def test_default_is_an_ordinary_section(self, refusal: Refusal) -> None:
        """[DEFAULT] leaking into every section is the format's oldest trap."""
        text = "[DEFAULT]\ninterval = 3\n[eval.x]\ntype = realism\nenv.scenes = data\n"
        assert refusal(text, name="suite.ini") == "suite.ini:1: unknown key 'DEFAULT' at the top of the file"

    def test_doubled_key_and_section_name_both_lines(self, refusal: Refusal) -> None:
        """F1: the reader keeps the last silently otherwise."""
        message = refusal("[eval.x]\ntype = realism\ninterval = 1\ninterval = 2\n", name="suite.ini")
        assert "suite.ini:4: 'eval.x.interval' is written twice, first in line 3" in message
        assert (
            refusal("[env]\n[vec]\n[env]\n", name="s.ini")
            == "s.ini:3: 'env' is written twice, first in line 1; keep one"
        )

    def test_missing_file_is_refused(self, folder: Path) -> None:
        """configparser reads a missing file as an empty one."""
        with pytest.raises(SettingsError, match=r"none\.ini: cannot be read \(No such file or directory\)"):
            read_file(folder / "none.ini", Problems())

    @pytest.mark.parametrize("line", ["no equals sign", "; semicolon", "= 3", "[open", "key"])
    def test_other_lines_are_refused(self, refusal: Refusal, line: str) -> None:
        """A line that is neither header, setting nor comment must not be skipped."""
        assert refusal(f"[env]\n{line}\n", name="s.ini").startswith("s.ini:2: expected [section], key = value")

    def test_values_are_never_evaluated(self, refusal: Refusal) -> None:
        """Text that Python would evaluate stays text and is refused by the type."""
        message = refusal("[eval.x]\ntype = realism\ninterval = 1 + 1\nenv.scenes = data\n", name="s.ini")
        assert 's.ini:3: interval = "1 + 1" in [eval.x] should be a valid integer' in message


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("3", int, 3),
        ("0x10", int, 16),
        ("3", float, 3),
        ("1e-3", float, 1e-3),
        ("True", bool, True),
        ("false", bool, False),
        ("None", int | None, None),
        ("None", str, "None"),
        ("3", str, "3"),
        ('"3"', int, "3"),
        ("'a b'", str, "a b"),
        ('["a", "b"]', str | tuple[str, ...], ("a", "b")),
        ("[ab]*.scene", str | tuple[str, ...], "[ab]*.scene"),
        ("1\nx = 2", int, "1\nx = 2"),
        ("٣", int, "٣"),
        ("1__0", int, "1__0"),
        ("9" * 30, int, "9" * 30),
        ("[" * 10_000, tuple[int, ...], "[" * 10_000),
    ],
)
def test_text_is_typed_by_its_field(text: str, annotation: Any, value: Any) -> None:
    """E2, F6, EF7: the field decides what text is; what fits none stays text for the schema to refuse."""
    assert typed(Text(text), annotation) == value
    assert type(typed(Text(text), annotation)) is type(value)


def test_bom_and_crlf_are_accepted(folder: Path, load: Load) -> None:
    """E2, EF5, F5: an editor on another system writes both; lines must still count."""
    (folder / "windows.toml").write_bytes(b"\xef\xbb\xbf" + TOML.replace("\n", "\r\n").encode())
    leaves = read_file(folder / "windows.toml", Problems()).leaves
    assert {key: leaf.value for key, leaf in leaves.items()} == {
        key: leaf.value for key, leaf in _leaves(folder, TOML).items()
    }
    assert leaves["env", "dt"].origin.line == 5
    (folder / "windows.ini").write_bytes(b"\xef\xbb\xbf[env]\r\ndt = 0.2\r\n")
    assert read_file(folder / "windows.ini", Problems()).leaves["env", "dt"].value == "0.2"


def _leaves(folder: Path, text: str, name: str = "s.toml") -> Any:
    (folder / name).write_text(text, "utf-8")
    return _read(folder / name)


def _read(path: Path) -> Any:
    problems = Problems()
    leaves = read_file(path, problems).leaves
    problems.raise_if_any()
    return leaves


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'a = 1\nb = "\xe9"\n', r"s\.toml:2: not UTF-8"),
        ("a = 1\n".encode("utf-16"), r"s\.toml:1: not UTF-8"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, r"s\.toml: nested deeper than 32 levels"),
        (b"a = " + b"{a = " * 5000 + b"1" + b"}" * 5000, r"s\.toml: nested deeper than 32 levels"),
        (b".".join([b"a"] * 5000) + b" = 1", r"s\.toml:1: nested deeper than 32 levels"),
        (b"x = 1\n[" + b".".join([b"a"] * 33) + b"]", r"s\.toml:2: nested deeper than 32 levels"),
        (b"a = " + b"9" * 5000, r"s\.toml: "),
        (b"a = 9223372036854775808", r"s\.toml:1: a: an integer beyond 64 bits"),
        (b"\na = nan", r"s\.toml:2: a: nan is not a finite number"),
        (b"a = [1.0, [-inf]]", r"s\.toml:1: a: -inf is not a finite number"),
        (b"a = 1979-05-27", r"s\.toml:1: a: a date is not a setting"),
        (b"[[a]]\nb = 1", r"s\.toml:1: a: a dict is not a setting"),
        (b"a = 1\nb = = 2", r"s\.toml:2: Invalid value"),
        (b"a = 1\nb = [1,\n", r"s\.toml:2: Invalid value|s\.toml:2: Unclosed array"),
    ],
)
def test_hostile_files_are_refused_by_name(folder: Path, data: bytes, message: str) -> None:
    """E2, E3, EF2, EF5, F3, F5: each used to end in a RecursionError, a foreign exception, or in no error at all."""
    (folder / "s.toml").write_bytes(data)
    with pytest.raises(SettingsError, match=message):
        _read(folder / "s.toml")


def test_integers_of_64_bits_are_accepted(folder: Path) -> None:
    """E2: the limit is beyond 64 bits, so both ends of the range are numbers."""
    leaves = _leaves(folder, "a = -9223372036854775808\nb = 9223372036854775807\n")
    assert [leaf.value for leaf in leaves.values()] == [-(2**63), 2**63 - 1]


def test_size_limit_is_checked_before_parsing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """EF5, F5: a file of 100 MB must not reach the parser."""
    (folder / "big.toml").write_bytes(b"#" * (suite_file.MAX_BYTES + 1))
    monkeypatch.setattr(suite_file.tomllib, "loads", lambda text: pytest.fail("parsed"))
    with pytest.raises(SettingsError, match=r"big\.toml: larger than 4 MiB"):
        read_file(folder / "big.toml", Problems())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("env.dt = 1\nenv.dt = 2", "s.toml:2: 'env.dt' is written twice, first in line 1"),
        ("env = 1\nenv.dt = 2", "s.toml:2: 'env' is written twice, first in line 1"),
        ("[env]\ndt = 1\n\n[env]", "s.toml:4: 'env' is written twice, first in line 1"),
        ("[env]\ndt = 1\n'dt' = 2", "s.toml:3: 'env.dt' is written twice, first in line 2"),
        ('env.dt = 1\n"env.dt" = 2', "s.toml:2: 'env.dt' is written twice, first in line 1"),
        ('[eval.x]\n"env.dt" = 1\n[eval.x.env]\ndt = 2', "s.toml:4: 'eval.x.env.dt' is written twice, first in line 2"),
        ("env.dt = 1\n[env]\nx = 1", "s.toml:2: 'env' is written twice, first in line 1"),
        ('"env.dt" = 1\n[env.dt]\nx = 2', "s.toml:2: 'env.dt' cannot be both a value and a table; see"),
    ],
)
def test_doubled_keys_name_both_lines(folder: Path, text: str, message: str) -> None:
    """E3, F1: TOML sees neither quoted dotted keys nor, in its message, the first of the two lines."""
    with pytest.raises(SettingsError) as caught:
        _leaves(folder, text)
    assert message in str(caught.value)


def test_leaf_where_a_table_is_needed_ini(folder: Path) -> None:
    """E3: `.ini` has no parser of its own to notice, in either order."""
    for text in ("[env]\nidm = 3\nidm.headway = 2\n", "[env]\nidm.headway = 2\nidm = 3\n"):
        with pytest.raises(
            SettingsError, match=r"s\.ini:3: 'env\.idm' cannot be both a value and a table; see .*s\.ini:2"
        ):
            _leaves(folder, text, "s.ini")


def test_table_and_dotted_both_orders(folder: Path) -> None:
    """E3 table_and_dotted_both_orders: whichever came first used to lose; only .ini can write both orders."""
    table, dots = "[eval.x.env]\ndt = 1\n", "[eval.x]\nenv.idm.headway = 2\n"
    for text in (table + dots, dots + table):
        leaves = _leaves(folder, text, "s.ini")
        assert {key: leaf.value for key, leaf in leaves.items()} == {
            ("eval", "x", "env", "dt"): "1",
            ("eval", "x", "env", "idm", "headway"): "2",
        }


PART = st.text("abcdXY_1", min_size=1, max_size=3)


@st.composite
def spelled_trees(draw: st.DrawFn) -> tuple[dict[tuple[str, ...], int], str, str]:
    """Leaves of a random tree, and that tree written as TOML and as .ini in some legal spelling and order."""
    leaves: dict[tuple[str, ...], int] = {}
    for key in draw(st.lists(st.lists(PART, min_size=2, max_size=5).map(tuple), max_size=8, unique=True)):
        if not any(key[: len(one)] == one or one[: len(key)] == key for one in leaves):
            leaves[key] = draw(st.integers(-5, 5))
    written = draw(st.permutations(list(leaves.items())))
    quoted = [draw(st.booleans()) for _ in written]
    if draw(st.booleans()):
        lines = [
            f'"{".".join(key)}" = {value}' if q else f"{'.'.join(key)} = {value}"
            for (key, value), q in zip(written, quoted, strict=True)
        ]
    else:
        tables: dict[tuple[str, ...], list[str]] = {}
        for (key, value), q in zip(written, quoted, strict=True):
            tables.setdefault(key[:-1], []).append(f"'{key[-1]}' = {value}" if q else f"{key[-1]} = {value}")
        lines = [line for table, rows in tables.items() for line in [f"[{'.'.join(table)}]", *rows]]
    sections: dict[tuple[str, ...], list[str]] = {}
    for key, value in written:
        cut = draw(st.integers(1, len(key) - 1))
        sections.setdefault(key[:cut], []).append(f"{'.'.join(key[cut:])} = {value}")
    ini = [line for table, rows in sections.items() for line in [f"[{'.'.join(table)}]", *rows]]
    return leaves, "\n".join(lines), "\n".join(ini)


@settings(max_examples=60, deadline=None)
@given(spelled_trees())
def test_dotted_keys_any_depth(tmp_path_factory: pytest.TempPathFactory, spelled: Any) -> None:
    """E3 dotted_keys_any_depth: any legal spelling and order of a tree is that tree, in both formats; splitting at
    the first dot only, or letting the later of table and dotted key win, loses leaves."""
    leaves, toml, ini = spelled
    folder = tmp_path_factory.getbasetemp()
    read = {key: leaf.value for key, leaf in _leaves(folder, toml).items()}
    assert nested(read) == nested(leaves)
    assert {key: leaf.value for key, leaf in _leaves(folder, ini, "s.ini").items()} == {
        key: str(value) for key, value in leaves.items()
    }


SCALARS = (
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)


@settings(deadline=None)
@given(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6))
def test_written_toml_reads_back(value: Any) -> None:
    """E17: what --print-config writes must be legal TOML with the same value, for control characters and 1e22 too."""
    assert repr(typed(Text(f"[{toml_text(value)}]"), tuple[Any, ...])) == repr((value,))


def test_baseline_names_are_the_schema_s() -> None:
    """E71: the names are a contract with the evaluators; dropping one from the list changes every default run."""
    assert BASELINE_NAMES == ("stationary", "constant_velocity", "random", "idm", "log", "log_actions")
