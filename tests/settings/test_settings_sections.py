"""Discovery, inheritance, templates: what a section is made of."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skidpad.artifacts.digests import digest_value
from skidpad.errors import SettingsError
from skidpad.settings.leaves import Problems, Text, laid_over
from skidpad.settings.sections import OrderError, lineage, read_sections, without
from skidpad.settings.suite import Suite, load_suite
from skidpad.settings.suite_file import SuiteFile

Load = Callable[..., Suite]
Refusal = Callable[..., str]

LIVE = 'type = "realism"\nenv.scenes = "data"\n'


class TestDiscovery:
    """E1: every child table of [eval] is a section, scalars are the manager's."""

    def test_two_tables_and_a_scalar(self, load: Load) -> None:
        """A stray scalar crashed the peer's discovery."""
        suite = load(f"[eval]\nbenchmark_seed = 7\n[eval.b]\n{LIVE}[eval.a]\n{LIVE}")
        assert suite.names == ("b", "a")
        assert suite.manager.benchmark_seed == 7
        assert suite.spec("a").benchmark_seed == 7

    def test_no_eval_is_no_evaluator(self, load: Load) -> None:
        """A suite for training only is legal."""
        assert load("[env]\ndt = 0.1\n").names == ()

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("eval = 3", "s.toml:1: 'eval' must be a table, not a value"),
            ("env = 3", "s.toml:1: 'env' must be a table, not a value"),
            ('perturbations = "clean"', "s.toml:1: 'perturbations' must be a table, not a value"),
            ("[perturbations]\nmild = 1", "s.toml:2: 'perturbations.mild' must be a table, not a value"),
            (f'[eval."../x"]\n{LIVE}', "s.toml:1: section name '../x'"),
            (f'[eval."A b"]\n{LIVE}', "s.toml:1: section name 'A b'"),
            (f"[eval.{'a' * 65}]\n{LIVE}", "s.toml:1: section name 'aaa"),
            (f"[eval.fail_fast]\n{LIVE}", "s.toml:1: section name 'fail_fast': it is a setting of the manager"),
            (f"[eval.env]\n{LIVE}", "s.toml:1: section name 'env': it is the name of a group"),
            ("[evall.x]\n", "s.toml:1: unknown key 'evall' at the top of the file; did you mean 'eval'?"),
            ("interval = 3", "s.toml:1: unknown key 'interval' at the top of the file; it belongs in a section"),
            ("[extends]\nx = 1", "s.toml:1: 'extends' must be a path or a list of paths, not a table"),
        ],
    )
    def test_what_is_no_section(self, refusal: Refusal, text: str, message: str) -> None:
        """A name with `/` escaped the render folder; a group that is a value was skipped in silence."""
        assert refusal(text, name="s.toml").startswith(message)

    def test_longest_name(self, load: Load) -> None:
        """64 characters are allowed, so the pattern's bound is not off by one."""
        assert load(f"[eval.{'a' * 64}]\n{LIVE}").names == ("a" * 64,)

    def test_section_of_dotted_keys_only(self, load: Load) -> None:
        """No header is needed: `eval.x.type` at the top of the file opens the section."""
        assert load('eval.x.type = "realism"\neval.x.env.scenes = "data"').names == ("x",)


class TestInheritance:
    """E5, E6: nearest wins per key, tables merge, everything else is replaced whole."""

    def test_chain_of_three(self, load: Load) -> None:
        """chain_of_three, chain_nearest_wins: per key, not per table."""
        suite = load(f"""
            [eval.g]
            abstract = true
            interval = 1
            env.idm.headway = 1
            env.idm.min_gap = 1
            env.goal_radius = 1
            [eval.p]
            abstract = true
            inherits = "g"
            env.idm.headway = 2
            env.goal_radius = 2
            [eval.s]
            inherits = "p"
            env.goal_radius = 3
            {LIVE.replace(chr(10), chr(10) + " " * 12)}
        """)
        spec = suite.spec("s")
        assert (spec.env.goal_radius, spec.env.idm.headway, spec.env.idm.min_gap, spec.interval) == (3, 2, 1, 1)

    def test_child_wins(self, load: Load) -> None:
        """child_wins: whatever the order in the file; the child may stand first."""
        suite = load(f'[eval.s]\ninherits = "p"\ninterval = 2\n{LIVE}[eval.p]\ninterval = 1\nat_start = true\n')
        assert suite.spec("s").interval == 2
        assert suite.spec("s").at_start is True

    @pytest.mark.parametrize(
        ("parents", "p2", "radius"),
        [('["p1", "p2"]', "", 1), ('["p2", "p1"]', "", 1), ('["p1", "p2"]', "2", 2), ('["p2", "p1"]', "2", 1)],
    )
    def test_diamond_order(self, load: Load, parents: str, p2: str, radius: float) -> None:
        """diamond_order, diamond_is_not_a_cycle E5, E7: merging *resolved* parents lets p2's inherited value overwrite
        p1's explicit one."""
        suite = load(f"""
[eval.g]
env.goal_radius = 9
[eval.p1]
inherits = "g"
env.goal_radius = 1
[eval.p2]
inherits = "g"
{f"env.goal_radius = {p2}" if p2 else ""}
[eval.s]
inherits = {parents}
{LIVE}""")
        assert suite.spec("s").env.goal_radius == radius

    def test_contradicting_list_is_refused(self, refusal: Refusal) -> None:
        """E5, EF3: `[child, parent]` asks for the parent to beat its own child."""
        message = refusal(f'[eval.g]\n[eval.p]\ninherits = "g"\n[eval.s]\ninherits = ["p", "g"]\n{LIVE}', name="s.toml")
        assert message == "s.toml:5: [eval.s] inherits in a list that contradicts the ancestry of g, p (s -> [p, g])"

    def test_parent_named_twice_is_refused(self, refusal: Refusal) -> None:
        """E5: applied once means that a second mention is a mistake."""
        assert "names a parent twice (s -> [g, g])" in refusal(f'[eval.g]\n[eval.s]\ninherits = ["g", "g"]\n{LIVE}')

    def test_eval_knobs_inherit(self, load: Load) -> None:
        """eval_knobs_inherit E6: the evaluator's own knobs and header keys inherit like everything else."""
        suite = load(f"""
[eval.p]
abstract = true
eval.worst_n = 3
eval.baselines = ["stationary", "constant_velocity", "random", "idm", "log"]
keep_traces = "all"
[eval.s]
inherits = "p"
eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
{LIVE}""")
        spec = suite.spec("s")
        assert spec.eval.worst_n == 3
        assert spec.eval.baselines == ("stationary", "constant_velocity", "idm", "log")
        assert spec.keep_traces == "all"

    def test_unset_takes_away(self, load: Load) -> None:
        """E6: a key or a whole table returns to its default, from whatever weaker layer it came."""
        suite = load(f"""
[env]
dt = 0.3
[eval.p]
env.goal_radius = 9
env.idm.headway = 9
worst_n = 9
interval = 9
[eval.s]
inherits = "p"
unset = ["env.goal_radius", "env.idm", "worst_n", "interval", "env.dt"]
env.idm.min_gap = 4
{LIVE}""")
        spec = suite.spec("s")
        assert (spec.env.goal_radius, spec.env.idm.headway, spec.eval.worst_n, spec.interval) == (2, 1.5, 8, 0)
        assert spec.env.dt is None
        assert spec.env.idm.min_gap == 4

    def test_unset_of_an_unknown_key_is_refused(self, refusal: Refusal) -> None:
        """E6: a typo would leave the inherited value standing."""
        message = refusal(f'[eval.s]\nunset = "env.goal_radios"\n{LIVE}', name="s.toml")
        assert message == "s.toml:2: unset: unknown key 'env.goal_radios' in [eval.s]; did you mean 'env.goal_radius'?"


class TestCycles:
    """E7, F4, EF3: a cycle is printed as a chain, once, whoever finds it."""

    @pytest.mark.parametrize("length", [1, 2, 5])
    def test_cycle_self_two_five(self, refusal: Refusal, length: int) -> None:
        """cycle_self_two_five: each member finds the circle from its own end."""
        names = "abcde"[:length]
        text = "".join(f'[eval.{one}]\ninherits = "{names[(i + 1) % length]}"\n{LIVE}' for i, one in enumerate(names))
        chain = " -> ".join([*names, "a"])
        assert refusal(text, name="s.toml") == f"s.toml:2: [eval.a] inherits in a circle ({chain})"

    def test_unknown_parent_named(self, refusal: Refusal) -> None:
        """unknown_parent_named: the child and the nearest section."""
        message = refusal(f'[eval.behaviors_defaults]\n[eval.s]\ninherits = "behavior_defaults"\n{LIVE}')
        assert (
            "[eval.s] inherits 'behavior_defaults', which is no section; did you mean 'behaviors_defaults'?" in message
        )

    def test_many_generations_are_refused(self, refusal: Refusal) -> None:
        """EF5: a chain of thousands of sections must not end in a RecursionError."""
        text = "[eval.s0]\n" + "".join(f'[eval.s{i}]\ninherits = "s{i - 1}"\n' for i in range(1, 2000))
        assert "more than 32 generations" in refusal(text)


def as_classes(parents: dict[str, list[str]]) -> dict[str, type | None]:
    """Python's own method resolution as the oracle: each section a class, its bases strongest first."""
    classes: dict[str, type | None] = {}
    for name, names in parents.items():
        bases = [classes[one] for one in reversed(names)]
        try:
            classes[name] = None if None in bases else type(name, tuple(bases), {})  # type: ignore[arg-type]
        except TypeError:
            classes[name] = None
    return classes


@st.composite
def inheritance(draw: st.DrawFn) -> dict[str, list[str]]:
    """Random graphs without cycles; some of their lists contradict each other."""
    names = [f"s{i}" for i in range(draw(st.integers(1, 7)))]
    return {
        name: draw(st.lists(st.sampled_from(names[:i]), max_size=3, unique=True)) if i else []
        for i, name in enumerate(names)
    }


@settings(deadline=None)
@given(inheritance())
@example({"a": [], "b": [], "p": ["a"], "q": ["b"], "s": ["p", "q"]})
def test_lineage_is_python_s(parents: dict[str, list[str]]) -> None:
    """E5: the order of ancestors is the one Python gives to classes, and what Python refuses is refused."""
    for name, cls in as_classes(parents).items():
        try:
            found = lineage(name, parents.__getitem__)
        except OrderError:
            assert cls is None
        else:
            assert cls is not None
            assert found == [one.__name__ for one in reversed(cls.__mro__[:-1])]


LEAVES = {
    "env.dt": ["0.1", "0.2"],
    "env.goal_radius": ["1.0", "3.0"],
    "env.idm.headway": ["1.0", "2.0"],
    "env.idm.min_gap": ["1.0", "2.0"],
    "env.scenes": ['"data/a.scene"', '["data/b.scene", "data/c.scene"]'],
    "eval.worst_n": ["1", "2"],
    "eval.baselines": ['["stationary", "constant_velocity", "idm", "log"]'],
    "interval": ["1", "2"],
}


@settings(max_examples=40, deadline=None)
@given(graph=inheritance(), data=st.data())
def test_resolve_is_pure_random_graphs(
    tmp_path_factory: pytest.TempPathFactory, graph: Any, data: st.DataObject
) -> None:
    """resolve_is_pure_random_graphs E8, EF4: any order of asking gives equal specs, the parsed files stay as they were,
    and no two specs share a mutable object; the peer's shared table made twelve evaluators score one class."""
    own = {name: data.draw(st.dictionaries(st.sampled_from(list(LEAVES)), st.integers(0, 1))) for name in graph}
    text = ""
    for name, parents in graph.items():
        lines = [f"{key} = {LEAVES[key][choice % len(LEAVES[key])]}" for key, choice in own[name].items()]
        text += "\n".join([f"[eval.{name}]", f"inherits = {parents}", 'type = "realism"', *lines, ""])
    folder = tmp_path_factory.getbasetemp()
    (folder / "graph.toml").write_text(text)
    problems = Problems()
    sections = read_sections(folder / "graph.toml", {}, problems)
    problems.raise_if_any()
    before = digest_value({name: _plain(section.leaves) for name, section in sections.named.items()}, "t")

    def resolved(name: str) -> dict[Any, Any]:
        leaves: dict[Any, Any] = {}
        for section in sections.lineage(name):
            leaves = laid_over(without(leaves, section.unset), section.leaves)
        return leaves

    classes = as_classes(graph)
    names = [name for name, cls in classes.items() if cls is not None]
    first = {name: resolved(name) for name in names}
    again = {name: resolved(name) for name in data.draw(st.permutations(names))}
    assert first == again
    assert digest_value({name: _plain(section.leaves) for name, section in sections.named.items()}, "t") == before
    for name in names:
        order = [one.__name__ for one in classes[name].__mro__[:-1]]  # type: ignore[union-attr]
        for key in LEAVES:
            giver = next((one for one in order if key in own[one]), None)
            leaf = first[name].get(tuple(key.split(".")))
            assert (leaf is None) == (giver is None)
            if leaf is not None:
                assert leaf.origin.section == giver
    for one, other in itertools.combinations(names, 2):
        assert _mutable_ids(first[one]).isdisjoint(_mutable_ids(first[other]))


def _plain(leaves: Any) -> dict[str, Any]:
    return {".".join(key): [leaf.value, leaf.origin.where] for key, leaf in leaves.items()}


def _mutable_ids(value: Any) -> set[int]:
    if isinstance(value, dict):
        return {id(value)}.union(*(_mutable_ids(one.value) for one in value.values()))
    assert isinstance(value, (str, int, float, bool, tuple, type(None))), "leaves hold immutable values only"
    return set().union(*(_mutable_ids(one) for one in value)) if isinstance(value, tuple) else set()


def test_siblings_never_alias(load: Load) -> None:
    """siblings_never_alias E8, F4: the worst bug of the peer's #420 wrote each child's scenes into the parent."""
    text = '[eval.p]\nabstract = true\ntype = "realism"\nenv.idm.headway = 1\n'
    for name in "abc":
        text += f'[eval.{name}]\ninherits = "p"\nenv.scenes = ["data/{name}.scene"]\n'
    suite = load(text)
    specs = [suite.spec(name) for name in suite.names]
    assert [[scene.name for scene in spec.scenes] for spec in specs] == [["a.scene"], ["b.scene"], ["c.scene"]]
    specs[0].tree["env"]["idm"]["headway"] = 99
    specs[0].origins.clear()
    assert specs[0].tree["env"]["idm"]["headway"] == specs[1].tree["env"]["idm"]["headway"] == 1
    assert specs[0].origins


class TestTemplates:
    """E9 templates_never_built: what may run and what may only be inherited."""

    @pytest.mark.parametrize(
        ("abstract", "is_typed", "names"),
        [(True, True, ("s",)), (True, False, ("s",)), (False, True, ("p", "s")), (False, False, ("s",))],
    )
    def test_four_combinations(self, load: Load, abstract: bool, is_typed: bool, names: tuple[str, ...]) -> None:
        """Deciding from the merged section only makes a template with a type a live evaluator."""
        suite = load(f"""
[eval.p]
{"abstract = true" if abstract else ""}
{'type = "realism"' if is_typed else ""}
env.scenes = "data"
[eval.s]
inherits = "p"
type = "multi_scenario"
""")
        assert suite.names == names
        if "p" not in names:
            with pytest.raises(SettingsError, match="'p' is a template and cannot run"):
                suite.spec("p")

    def test_child_of_an_abstract_typed_parent_is_live(self, load: Load) -> None:
        """`abstract` is never inherited, the type is."""
        suite = load(f'[eval.p]\nabstract = true\n{LIVE}[eval.s]\ninherits = "p"\n')
        assert suite.names == ("s",)
        assert suite.spec("s").type == "realism"

    def test_untyped_and_not_inherited_is_refused(self, refusal: Refusal) -> None:
        """An evaluation that silently never runs is found hours later."""
        message = refusal("[eval.p]\ninterval = 3\n", name="s.toml")
        known = "multi_scenario, human_replay, realism"
        assert message == f"s.toml:1: [eval.p] has no type, and no section inherits it; one of {known}"

    def test_a_mistake_in_a_template_is_found_without_children(self, refusal: Refusal) -> None:
        """E10: templates are checked for unknown keys too."""
        assert "s.toml:3: unknown key 'intervall' in [eval.p]" in refusal(
            "[eval.p]\nabstract = true\nintervall = 3\n", name="s.toml"
        )


class TestExtends:
    """E5: whole files merge by the rules of sections."""

    def test_files_merge_and_know_their_lines(self, load: Load, folder: Path) -> None:
        """The extending file wins per key; origins and relative paths are those of the file that wrote the key."""
        (folder / "sub").mkdir()
        (folder / "sub" / "data").mkdir()
        (folder / "sub" / "data" / "z.scene").touch()
        (folder / "sub" / "base.toml").write_text(f"env.dt = 0.3\n[eval.x]\ninterval = 3\n{LIVE}")
        suite = load('extends = "sub/base.toml"\n[eval.x]\ninterval = 4\n[eval.w]\ninherits = "x"\n')
        assert suite.names == ("x", "w")
        spec = suite.spec("w")
        assert (spec.interval, spec.env.dt) == (4, 0.3)
        assert [scene.name for scene in spec.scenes] == ["z.scene"]
        assert Path(spec.origins["env.dt"].source).name == "base.toml"
        replaced = spec.origins["interval"].replaced
        assert replaced is not None
        assert (replaced.value, replaced.origin.line) == (3, 3)

    def test_diamond_of_files(self, load: Load, folder: Path) -> None:
        """Each file once: G's value must not come back through P2. `.ini` and TOML may be mixed."""
        (folder / "g.toml").write_text("env.goal_radius = 9\nenv.dt = 0.4\n")
        (folder / "p1.toml").write_text('extends = "g.toml"\nenv.goal_radius = 1\n')
        (folder / "p2.ini").write_text("extends = g.toml\n[eval.x]\ntype = realism\nenv.scenes = data\n")
        spec = load('extends = ["p1.toml", "p2.ini"]\n').spec("x")
        assert (spec.env.goal_radius, spec.env.dt) == (1, 0.4)

    def test_unset_reaches_into_the_extended_file(self, load: Load, folder: Path) -> None:
        """By the same rules: the section of the extended file is weaker than the one of this file."""
        (folder / "g.toml").write_text(f"[eval.x]\nworst_n = 3\ninterval = 3\n{LIVE}")
        spec = load('extends = "g.toml"\n[eval.x]\nunset = ["worst_n"]\n').spec("x")
        assert (spec.eval.worst_n, spec.interval) == (8, 3)

    def test_cycle_missing_and_variable(self, refusal: Refusal, folder: Path) -> None:
        """E7, E12: the chain of files; the line that names a missing one; a variable that is not set."""
        (folder / "a.toml").write_text('extends = "s.toml"\n')
        message = refusal('extends = "a.toml"\n', name="s.toml")
        assert message == "s.toml: extends makes a circle (s.toml -> a.toml -> s.toml)"
        assert refusal('\nextends = "no.toml"\n', name="s.toml") == "s.toml:2: extends 'no.toml', which is not there"
        message = refusal('extends = "${NO}/b.toml"', name="s.toml", environ={})
        assert message.startswith("s.toml:1: extends: '${NO}/b.toml': NO is not set")
        assert "s.toml:1: extends = 3 should be a valid string" in refusal("extends = 3", name="s.toml")

    def test_leaf_against_table_across_files(self, refusal: Refusal, folder: Path) -> None:
        """E3: two files can disagree about what a key is; both lines are named."""
        (folder / "g.toml").write_text("\nenv.idm = 3\n")
        message = refusal('extends = "g.toml"\nenv.idm.headway = 3', name="s.toml")
        assert "'env.idm' cannot be both a value and a table; see " in message
        assert "g.toml:2" in message
        assert "s.toml:2" in message

    def test_a_sibling_in_another_folder_is_read_once(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two spellings of one path are one file, else a diamond would apply it twice."""
        (folder / "sub").mkdir()
        (folder / "g.toml").write_text("env.dt = 0.4\n")
        (folder / "p.toml").write_text('extends = "sub/../g.toml"\nenv.dt = 0.3\n')
        (folder / "s.toml").write_text('extends = ["p.toml", "./g.toml"]\n')
        with pytest.raises(SettingsError, match="contradicts the ancestry"):
            load_suite(folder / "s.toml", types={})


def test_text_in_structure_keys(load: Load) -> None:
    """E2: `.ini` text becomes lists and booleans where the inheritance is read, before any type is known."""
    suite = load(
        "[eval.p]\nabstract = True\ntype = realism\nworst_n = 3\n"
        "[eval.q]\nabstract = true\nenv.dt = 0.1\nclean = False\n"
        '[eval.s]\ninherits = ["p", "q"]\nunset = worst_n\nenv.scenes = data\n',
        name="s.ini",
    )
    spec = suite.spec("s")
    assert (suite.names, spec.eval.worst_n, spec.env.dt, spec.profile) == (("s",), 8, 0.1, "train")


def test_suite_file_holds_no_nested_containers(folder: Path) -> None:
    """E8: aliasing is impossible by construction because a parsed file is flat; keep it so."""
    from skidpad.settings.suite_file import read_file

    (folder / "s.toml").write_text("env.idm = {headway = 1}\n[eval.x]\neval.baselines = [['a'], ['b']]\n")
    file: SuiteFile = read_file(folder / "s.toml", Problems())
    assert file.leaves["env", "idm", "headway"].value == 1
    assert file.leaves["eval", "x", "eval", "baselines"].value == (("a",), ("b",))
    _mutable_ids(dict(file.leaves))
    assert isinstance(Text("x"), str)
