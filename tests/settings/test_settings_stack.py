"""The six layers, their origins, what is printed and what is hashed."""

from __future__ import annotations

import copy
import pickle
import re
import types
import typing
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from skidpad.errors import SettingsError
from skidpad.settings.checking import fields_of, section_fields
from skidpad.settings.render_rules import DRAWN, DRAWN_KNOBS
from skidpad.settings.schema import (
    ARCHITECTURE_KEYS,
    PERTURBATIONS_OFF,
    PERTURBATIONS_STRESS,
    EvalKnobs,
    ManagerSettings,
    PerturbationSettings,
)
from skidpad.settings.suite import EvaluatorType, Suite, load_suite

Load = Callable[..., Suite]
Refusal = Callable[..., str]

LIVE = 'type = "human_replay"\nenv.scenes = "data"\n'


class TestProfiles:
    """E14: a named profile instead of a hidden macro."""

    TRAINING = "[env.perturbation]\nblindness = 0.5\nlane_dropout = 0.3\nedge_dropout = 0.4\nphantom_braking = 0.1\n"

    def test_profile_clean_by_default(self, load: Load) -> None:
        """profile_clean_by_default: training's perturbations must not reach an evaluation unasked."""
        spec = load(f"{self.TRAINING}[eval.x]\n{LIVE}").spec("x")
        assert spec.profile == "clean"
        assert spec.env.perturbation == PerturbationSettings()
        assert spec.origins["env.perturbation.blindness"].where == "profile clean"

    def test_clean_switches_everything_off(self) -> None:
        """A perturbation added to the schema must join the profile: every share is in it, and at zero."""
        shares = {name for name in PerturbationSettings.model_fields if not name.endswith(("_rate", "_seconds"))}
        assert set(PERTURBATIONS_OFF) == shares
        assert not any(PERTURBATIONS_OFF.values())

    @pytest.mark.parametrize(
        "line", ['perturbations = "train"', "clean = false", 'clean = false\nperturbations = "train"']
    )
    def test_profile_off(self, load: Load, line: str) -> None:
        """profile_off: "train" keeps training's values, in both spellings."""
        spec = load(f"{self.TRAINING}[eval.x]\n{line}\n{LIVE}").spec("x")
        assert (spec.profile, spec.env.perturbation.blindness, spec.env.perturbation.lane_dropout) == (
            "train",
            0.5,
            0.3,
        )

    def test_named_profile(self, load: Load) -> None:
        """A profile's values lie over training's; what it does not name falls through."""
        text = f"{self.TRAINING}[perturbations.mild]\nblindness = 0.01\n[eval.x]\nperturbations = 'mild'\n{LIVE}"
        spec = load(text).spec("x")
        assert (spec.env.perturbation.blindness, spec.env.perturbation.lane_dropout) == (0.01, 0.3)
        assert spec.origins["env.perturbation.blindness"].layer == "profile"

    def test_profile_stress(self, load: Load) -> None:
        """S108: `stress` sets every share to what one trains against, whatever training itself says."""
        spec = load(f"{self.TRAINING}[eval.x]\nperturbations = 'stress'\n{LIVE}").spec("x")
        shares = {name: getattr(spec.env.perturbation, name) for name in PERTURBATIONS_OFF}
        assert shares == PERTURBATIONS_STRESS
        assert (spec.profile, shares["blindness"], shares["edge_dropout"]) == ("stress", 0.02, 0.4)
        assert spec.origins["env.perturbation.blindness"].where == "profile stress"

    @pytest.mark.parametrize("level", ["section", "template", "command line"])
    def test_explicit_beats_profile_at_any_level(self, load: Load, level: str) -> None:
        """explicit_beats_profile_at_any_level: three templates up, in the section, and on the command line."""
        line = "env.perturbation.blindness = 0.25\n"
        text = (
            f"{self.TRAINING}[eval.g]\n{line if level == 'template' else ''}"
            '[eval.p]\ninherits = "g"\n[eval.q]\ninherits = "p"\n'
            f'[eval.x]\ninherits = "q"\n{line if level == "section" else ""}{LIVE}'
        )
        overrides = ["eval.x.env.perturbation.blindness=0.25"] if level == "command line" else []
        spec = load(text, *overrides).spec("x")
        assert (spec.profile, spec.env.perturbation.blindness, spec.env.perturbation.lane_dropout) == (
            "clean",
            0.25,
            0.0,
        )

    def test_child_may_use_the_other_spelling(self, load: Load) -> None:
        """`clean` and `perturbations` are one key: the nearer section wins, whichever spelling it uses."""
        suite = load(f'[eval.p]\nperturbations = "train"\n[eval.x]\ninherits = "p"\nclean = true\n{LIVE}')
        assert suite.spec("x").profile == "clean"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('clean = true\nperturbations = "train"\n', "'perturbations' says again what 'clean' says in s.toml:2"),
            (
                'perturbations = "mlid"\n',
                "unknown profile 'mlid'; there are clean, train, stress, mild; did you mean 'mild'?",
            ),
            ("clean = 1\n", "clean = 1 in [eval.x] should be a valid boolean"),
            ("perturbations = 3\n", "perturbations = 3 in [eval.x] should be a valid string"),
        ],
    )
    def test_refused(self, refusal: Refusal, text: str, message: str) -> None:
        """Disagreeing spellings, unknown names, wrong types."""
        assert message in refusal(f"[eval.x]\n{text}{LIVE}[perturbations.mild]\n", name="s.toml")

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("offroad = 'area'", "[perturbations.mild] 'offroad' is no perturbation, and a profile holds nothing else"),
            ("env.offroad = 'area'", "'env.offroad' is no perturbation"),
            ("traffic_lights = 0", "'traffic_lights' is no perturbation"),
            ("blindnes = 0", "did you mean 'blindness'?"),
            ("blindness.x = 1", "'perturbations.mild.blindness' is a table"),
            ("x = {}", "'perturbations.mild.x' is a table; a profile holds the perturbations themselves"),
            ("blindness = 2", "blindness = 2 should be less than or equal to 1"),
        ],
    )
    def test_a_profile_holds_no_rule(self, refusal: Refusal, line: str, message: str) -> None:
        """The peer's macro also changed the traffic-light rule; refused even when no section uses the profile."""
        assert message in refusal(f"[perturbations.mild]\n{line}\n")

    def test_built_in_profiles_are_not_redefined(self, refusal: Refusal) -> None:
        """A `clean` that is not clean would be read as clean by everyone."""
        assert "[perturbations.clean] is built in" in refusal("[perturbations.clean]\nblindness = 0.1\n")


KINDS = {
    "t": EvaluatorType("t", EvalKnobs, {"action_selection": "deterministic", "env.num_goals": 4, "eval.worst_n": 4}),
    "u": EvaluatorType("u", EvalKnobs, {"action_selection": "deterministic", "env.perturbation.blindness": 0.4}),
}


class TestStackOrder:
    """stack_order_pairwise E15: one key per adjacent pair, asserting value and origin; the peer had four orders."""

    def test_architecture_over_base(self, load: Load) -> None:
        """1 < 2"""
        spec = load(f"env.num_goals = 3\n[eval.x]\n{LIVE}", architecture={"env.num_goals": 7}).spec("x")
        origin = spec.origins["env.num_goals"]
        assert (spec.env.num_goals, origin.layer, origin.where) == (7, "architecture", "checkpoint")
        assert origin.replaced is not None
        assert origin.replaced.origin.layer == "base"

    def test_baseline_over_architecture(self, load: Load) -> None:
        """2 < 3, seen as the refusal of E16, for the two disagree."""
        with pytest.raises(SettingsError, match=r"type t: env\.num_goals = 4 for \[eval\.x\], but the checkpoint .* 7"):
            load('[eval.x]\ntype = "t"\nenv.scenes = "data"', types=KINDS, architecture={"env.num_goals": 7})

    def test_profile_over_baseline(self, load: Load) -> None:
        """3 < 4"""
        spec = load('[eval.x]\ntype = "u"\nenv.scenes = "data"', types=KINDS).spec("x")
        origin = spec.origins["env.perturbation.blindness"]
        assert (spec.env.perturbation.blindness, origin.layer) == (0, "profile")
        assert origin.replaced is not None
        assert (origin.replaced.value, origin.replaced.origin.where) == (0.4, "type u")

    def test_section_over_profile(self, load: Load) -> None:
        """4 < 5"""
        spec = load(f"[eval.x]\nenv.perturbation.blindness = 0.2\n{LIVE}").spec("x")
        origin = spec.origins["env.perturbation.blindness"]
        assert (spec.env.perturbation.blindness, origin.layer, origin.line, origin.section) == (0.2, "section", 2, "x")

    def test_command_line_over_section(self, load: Load) -> None:
        """5 < 6"""
        spec = load(f"[eval.x]\nenv.dt = 0.2\n{LIVE}", "eval.x.env.dt=0.3").spec("x")
        origin = spec.origins["env.dt"]
        assert (spec.env.dt, origin.layer, origin.where) == (0.3, "override", "command line")
        assert origin.replaced is not None
        assert origin.replaced.origin.line == 2

    def test_what_no_layer_sets_falls_through(self, load: Load) -> None:
        """A layer replaces leaves, never tables: neighbours of a replaced key survive from every layer."""
        text = f"env.idm.headway = 9\n[eval]\nworst_n = 3\n[eval.x]\nenv.idm.min_gap = 8\n{LIVE}"
        spec = load(text, "env.idm.max_acceleration=7").spec("x")
        idm = spec.env.idm
        assert (idm.headway, idm.min_gap, idm.max_acceleration, idm.desired_speed) == (9, 8, 7, 10)
        assert (spec.eval.worst_n, spec.origins["eval.worst_n"].where) == (5, "type human_replay")
        assert spec.origins["env.idm.desired_speed"].layer == "default"

    def test_base_knob_reaches_only_types_that_have_it(self, load: Load) -> None:
        """`eval.<knob>` at the top is the base of every section, so it must not break types without that knob."""
        text = (
            f'[eval]\nhorizon = 3.0\nreplicates = 2\n[eval.x]\n{LIVE}[eval.y]\ntype = "realism"\nenv.scenes = "data"\n'
        )
        suite = load(text)
        assert suite.spec("y").eval.model_dump()["horizon"] == 3.0
        assert [suite.spec(name).eval.replicates for name in suite.names] == [2, 2]

    def test_header_from_baseline(self, load: Load) -> None:
        """E51: action selection has no default of its own; types set it, sections may change it."""
        suite = load(
            '[eval.x]\ntype = "realism"\nenv.scenes = "data"\n[eval.y]\ninherits = "x"\naction_selection = "expected"'
        )
        assert [suite.spec(name).action_selection for name in suite.names] == ["sample", "expected"]

    def test_at_end_follows_the_interval(self, load: Load) -> None:
        """E24: without `at_end`, an evaluator that is never scheduled must not run at the end either."""
        text = "".join(f"[eval.s{i}]\n{line}\n{LIVE}" for i, line in enumerate(["", "interval = 2", "at_end = true"]))
        suite = load(f"{text}[eval.s3]\ninterval = 2\nat_end = false\n{LIVE}")
        assert [suite.spec(name).at_end for name in suite.names] == [False, True, True, False]

    @pytest.mark.parametrize(
        ("baseline", "message"),
        [
            ({"env.dtt": 0.1}, "type t: unknown key 'env.dtt'; did you mean 'env.dt'?"),
            ({"env.dt": 9.0}, "type t: env.dt = 9.0 should be less than or equal to 0.5"),
        ],
    )
    def test_a_wrong_baseline_is_refused(self, refusal: Refusal, baseline: dict[str, Any], message: str) -> None:
        """A type's own typo must not be dropped: it would be a default that does nothing."""
        kinds = {"t": EvaluatorType("t", EvalKnobs, {"action_selection": "sample", **baseline})}
        assert message in refusal('[eval.x]\ntype = "t"\nenv.scenes = "data"', types=kinds)

    def test_baseline_may_say_none(self, load: Load) -> None:
        """None is a value: "all scenes", against a base that says how many."""
        kinds = {"t": EvaluatorType("t", EvalKnobs, {"action_selection": "sample", "eval.num_scenarios": None})}
        spec = load('[eval]\nnum_scenarios = 2\n[eval.x]\ntype = "t"\nenv.scenes = "data"', types=kinds).spec("x")
        assert spec.eval.num_scenarios is None

    def test_action_selection_is_required(self, refusal: Refusal) -> None:
        """E51: a type that sets none, in a section that sets none."""
        bare = {"t": EvaluatorType("t", EvalKnobs, {})}
        message = refusal('\n[eval.x]\ntype = "t"\nenv.scenes = "data"', name="s.toml", types=bare)
        assert message == "s.toml:2: [eval.x] needs action_selection"


class TestOverrides:
    """E81, F6, EF7: what `key.path=value` reaches."""

    def test_general_and_particular(self, load: Load) -> None:
        """`env.dt` means every section, `eval.NAME.env.dt` one of them, and is stronger wherever it stands."""
        text = f"[eval.x]\n{LIVE}[eval.y]\nenv.dt = 0.4\n{LIVE}"
        suite = load(
            text, "eval.x.env.dt=0.1", "env.dt=0.2", "vec.threads=3", "eval.replicates=5", "eval.benchmark_seed=11"
        )
        assert [suite.spec(name).env.dt for name in "xy"] == [0.1, 0.2]
        assert [suite.spec(name).vec.threads for name in "xy"] == [3, 3]
        assert [suite.spec(name).eval.replicates for name in "xy"] == [5, 5]
        assert suite.manager == ManagerSettings(benchmark_seed=11)

    def test_header_keys_reach_every_section(self, load: Load) -> None:
        """`--seed` is `seed=v`: it must beat a section's own seed, which the manager's benchmark seed does not."""
        text = f"[eval.x]\nseed = 4\n{LIVE}[eval.y]\n{LIVE}"
        suite = load(text, "seed=9", "clean=false", "replicates=3", "eval.y.seed=2")
        assert [suite.spec(name).benchmark_seed for name in "xy"] == [9, 2]
        assert [suite.spec(name).profile for name in "xy"] == ["train", "train"]
        assert [suite.spec(name).eval.replicates for name in "xy"] == [3, 3]
        assert [load(text, "eval.benchmark_seed=9").spec(name).benchmark_seed for name in "xy"] == [4, 9]

    def test_header_plain_knob_and_type(self, load: Load) -> None:
        """Everything a section may say can be said for it: header keys, plain knobs, even its type."""
        suite = load(
            "[eval.x]\n" + LIVE,
            "eval.x.type=realism",
            "eval.x.label=two words",
            "eval.x.enabled=False",
            "eval.x.clean=false",
        )
        spec = suite.spec("x")
        assert (spec.type, spec.eval.model_dump()["label"], spec.enabled, spec.profile) == (
            "realism",
            "two words",
            False,
            "train",
        )

    def test_values_are_typed_by_the_field(self, load: Load, folder: Path) -> None:
        """Spaces, quotes, None and lists as in `.ini`."""
        spec = load(
            f"[eval.x]\neval.worst_metric = 'm'\n{LIVE}",
            "eval.x.eval.worst_metric=None",
            "eval.x.primary = 'two  words' ",
            'eval.x.env.scenes=["${D}/a.scene", "${D}/b.scene"]',
            "env.goal_radius=3",
            environ={"D": str(folder / "data")},
        ).spec("x")
        assert (spec.eval.worst_metric, spec.eval.primary, spec.env.goal_radius) == (None, "two  words", 3.0)
        assert [scene.name for scene in spec.scenes] == ["a.scene", "b.scene"]

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("env.dtt=1", "command line: unknown key 'env.dtt'; did you mean 'env.dt'?"),
            ("eval.x.env.dtt=1", "command line: unknown key 'eval.x.env.dtt'; did you mean 'env.dt'?"),
            ("eval.y.env.dt=1", "command line: 'eval.y.env.dt': no section 'y'; there are x"),
            ("x.env.dt=1", "command line: unknown key 'x.env.dt'; did you mean 'eval.x.env.dt'?"),
            ("env.dt=", "command line: 'env.dt=' has no value"),
            ("env.dt", "command line: 'env.dt' has no value"),
            ("env.dt=a b", 'command line: env.dt = "a b" should be a valid number'),
            ('env.num_goals="3"', 'command line: env.num_goals = "3" should be a valid integer'),
            ("eval.x=3", "command line: unknown key 'eval.x'"),
            ("eval.x.inherits=y", "command line: 'eval.x.inherits': inherits shapes the inheritance"),
            ("eval.p.env.dt=1", "command line: 'eval.p.env.dt': 'p' is a template"),
            ("eval.x.env.idm=1", "command line: unknown key 'eval.x.env.idm'; it is a table, not a value"),
            ("intervall=1", "command line: unknown key 'intervall'; did you mean 'interval'?"),
            ("inherits=x", "command line: unknown key 'inherits'"),
            ("extends=1", "command line: unknown key 'extends'"),
            ("eval.fail_fast=1", "command line: eval.fail_fast = 1 should be a valid boolean"),
        ],
    )
    def test_refused(self, refusal: Refusal, override: str, message: str) -> None:
        """EF7, F6: an override that reaches nothing must not be accepted."""
        text = f"[eval.x]\n{LIVE}[eval.p]\nabstract = true\n"
        if override.startswith("eval.y"):
            text = f"[eval.x]\n{LIVE}"
        assert refusal(text, override).startswith(message)

    def test_given_twice_is_refused(self, refusal: Refusal) -> None:
        """F1: the same key twice is a mistake on the command line too."""
        assert "'env.dt' is given twice" in refusal(f"[eval.x]\n{LIVE}", "env.dt=0.1", "env.dt=0.2")


class TestArchitecture:
    """E16: what the weights were trained with."""

    def test_layout_key_conflict_refused(self, refusal: Refusal) -> None:
        """layout_key_conflict_refused: observations packed otherwise give bad numbers and no error."""
        message = refusal(
            f'[eval.x]\nenv.action_type = "discrete"\n{LIVE}',
            name="s.toml",
            architecture={"env.action_type": "continuous"},
        )
        assert message.startswith('s.toml:2: env.action_type = "discrete" for [eval.x], but the checkpoint was trained')
        assert 'with "continuous"' in message

    def test_unset_does_not_escape_it(self, refusal: Refusal) -> None:
        """Taking the key away leaves the default, which differs as well."""
        text = f'[eval.x]\nunset = "env.num_goals"\n{LIVE}'
        assert "env.num_goals = 3 for [eval.x]" in refusal(text, architecture={"env.num_goals": 7})

    def test_agreeing_layers_pass(self, load: Load) -> None:
        """Saying the same is no conflict."""
        spec = load(f"[eval.x]\nenv.num_goals = 7\n{LIVE}", architecture={"env.num_goals": 7}).spec("x")
        assert spec.origins["env.num_goals"].layer == "section"

    @pytest.mark.parametrize(
        "key", ["env.simulation_mode", "env.scenes", "env.goal_radius", "env.offroad", "vec.threads"]
    )
    def test_rules_are_never_taken_from_a_checkpoint(self, refusal: Refusal, key: str) -> None:
        """Mode, scenes, rewards and rules belong to the evaluation."""
        assert f"checkpoint: {key!r} is not architecture" in refusal(f"[eval.x]\n{LIVE}", architecture={key: 1})

    def test_keys_exist(self) -> None:
        """A renamed setting must be renamed in the list."""
        known = {".".join(key) for key in section_fields([EvalKnobs])}
        assert set(ARCHITECTURE_KEYS) <= known


SUITE = """
env.dt = 0.2
[eval]
benchmark_seed = 5
[perturbations.mild]
blindness = 0.01
[eval.p]
abstract = true
type = "human_replay"
interval = 10
env.idm.headway = 1.25
[eval.x]
inherits = "p"
env.scenes = ["data/*.scene", "${D:-data}/a.scene"]
at_end = false
[eval.y]
inherits = "p"
perturbations = "mild"
env.scenes = "data"
primary = "quote \\" and \\u0007 bell"
enabled = false
"""


class TestPrintConfig:
    """print_config_round_trip E17."""

    def test_round_trip(self, load: Load, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
        """Fed back from another folder, the printed suite is the same evaluation, fixed point included."""
        suite = load(SUITE, "eval.x.env.dt=0.3")
        printed = suite.print_config()
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        again = load_suite(_write(elsewhere / "printed.toml", printed), types=_types())
        assert again.names == suite.names
        assert again.manager == suite.manager
        for name in suite.names:
            assert again.spec(name).scenes == suite.spec(name).scenes
            assert again.spec(name).section_digest(["d"]) == suite.spec(name).section_digest(["d"])
            assert replace(again.spec(name), origin_items=(), scenes_text=()) == replace(
                suite.spec(name), origin_items=(), scenes_text=()
            )
        assert _without_comments(again.print_config()) == _without_comments(printed)

    def test_origin_of_an_inherited_key_is_the_ancestor_s_line(self, load: Load, folder: Path) -> None:
        """The comment names file, line and section, and the value it replaced."""
        printed = load(SUITE, "eval.x.env.dt=0.3").print_config("x").replace(f"{folder}/", "")
        assert re.search(r"^env\.idm\.headway = 1\.25 +# suite\.toml:11 \[eval\.p\]$", printed, re.M)
        assert re.search(r"^env\.dt = 0\.3 +# command line, over 0\.2 from suite\.toml:2$", printed, re.M)
        assert re.search(r"^env\.goal_radius = 2\.0 +# default$", printed, re.M)
        assert re.search(r"^# env\.max_controlled = None +# default$", printed, re.M)
        assert "[eval.y]" not in printed

    def test_none_over_a_baseline_survives(self, load: Load, tmp_path_factory: pytest.TempPathFactory) -> None:
        """TOML cannot write None, so the printed suite must take the weaker value away instead."""
        kinds = {"t": EvaluatorType("t", EvalKnobs, {"action_selection": "sample", "eval.num_scenarios": 2})}
        suite = load("[eval.x]\ntype = t\nenv.scenes = data\nnum_scenarios = None\n", name="s.ini", types=kinds)
        assert suite.spec("x").eval.num_scenarios is None
        path = _write(tmp_path_factory.mktemp("none") / "s.toml", suite.print_config())
        assert load_suite(path, types=kinds).spec("x").eval.num_scenarios is None

    def test_hostile_folder_names(self, tmp_path: Path) -> None:
        """A folder called `a[b]$c` with a line break: globs, dollars and comments must not read it as theirs."""
        folder = tmp_path / "a[b]$c\nd"
        (folder / "data").mkdir(parents=True)
        (folder / "data" / "a.scene").touch()
        text = f"[eval.x]\n{LIVE}[eval.y]\ninherits = 'x'\nenv.scenes = 'data/*.scene'\n"
        suite = load_suite(_write(folder / "s.toml", text), types=_types())
        again = load_suite(_write(tmp_path / "printed.toml", suite.print_config()), types=_types())
        assert [again.spec(name).scenes for name in "xy"] == [suite.spec(name).scenes for name in "xy"]

    def test_disabled_section_with_unset_variable_prints(self, load: Load) -> None:
        """Printing needs no path to exist: it is how one finds out what to set."""
        text = '[eval.x]\ntype = "realism"\nenabled = false\nenv.scenes = "${NO_SUCH}/a"\n'
        assert '"${NO_SUCH}/a"' in load(text, environ={}).print_config()

    def test_unknown_names(self, load: Load) -> None:
        """E9, E26: a template is refused as such, an unknown name with the list."""
        suite = load(SUITE)
        for call in (suite.print_config, suite.spec):
            with pytest.raises(SettingsError, match="'p' is a template"):
                call("p")
            with pytest.raises(SettingsError, match=r"no evaluator 'xx'; did you mean 'x'\?; there are: x, y"):
                call("xx")


def _write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def _types() -> dict[str, EvaluatorType]:
    """The type SUITE uses, as in conftest."""
    baseline = {"action_selection": "deterministic", "env.control": "sdc", "eval.worst_n": 5}
    return {"human_replay": EvaluatorType("human_replay", EvalKnobs, baseline)}


def _without_comments(text: str) -> str:
    return re.sub(r"  #.*", "", text)


class TestDigest:
    """E18: what makes two evaluations the same."""

    def test_digest_ignores_machine_paths(self, load: Load, tmp_path_factory: pytest.TempPathFactory) -> None:
        """digest_ignores_machine_paths: folder, comments, spelling, order and inheritance do not count; scenes do."""
        one = load(SUITE).spec("x")
        other = tmp_path_factory.mktemp("other")
        (other / "q.scene").touch()
        text = """
        [eval]   # another spelling of the same
        benchmark_seed = 5
        [eval.renamed]
        at_end = true
        env = {scenes = "q.scene", idm = {headway = 1.250}, dt = 2e-1}
        replicates = 1
        type = "human_replay"
        """
        two = load_suite(_write(other / "b.toml", text), types=_types()).spec("renamed")
        assert one.section_digest(["d1", "d2"]) == two.section_digest(["d2", "d1"])
        assert one.section_digest(["d1", "d2"]) != two.section_digest(["d1", "d3"])
        assert one.section_digest(["d1", "d1"]) != two.section_digest(["d1"])

    def test_resuming_with_other_workers_is_the_same_evaluation(self, load: Load) -> None:
        """E101: how many worlds and threads share the work, and when it runs, is no part of the identity."""
        text = f"[eval.x]\n{LIVE}"
        plain = load(text).spec("x").section_digest([])
        same = load(text, "vec.threads=2", "vec.num_worlds=3", "eval.x.interval=4", "eval.x.at_start=true").spec("x")
        assert same.section_digest([]) == plain
        assert load(text, "vec.infer_batch=3").spec("x").section_digest([]) != plain

    def test_seed_counts_however_it_is_said(self, load: Load) -> None:
        """The benchmark seed decides every case; a section's own seed equal to it is no difference."""
        text = f"[eval.x]\n{LIVE}"
        digests = [
            load(text, *overrides).spec("x").section_digest([])
            for overrides in (
                [],
                ["eval.benchmark_seed=0"],
                ["eval.x.seed=0"],
                ["eval.x.seed=1"],
                ["eval.benchmark_seed=1"],
            )
        ]
        assert digests[0] == digests[1] == digests[2]
        assert digests[3] == digests[4] != digests[0]
        zero = load(text, "eval.benchmark_seed=1", "eval.x.seed=0").spec("x")
        assert zero.section_digest([]) == digests[0], "seed 0 is a seed (E61)"


ALTERNATIVES = """
    env.simulation_mode = "gigaflow"
    env.scenario_length = 7
    env.init_step = 1
    env.init_spread = true
    env.horizon_min = 20
    env.allow_beyond_log = true
    env.init = "controllable"
    env.max_agents = 9
    env.min_agents_per_world = 3
    env.max_agents_per_world = 40
    env.drop_static_in_path = true
    env.spawn_sizes = "training"
    env.spawn_speed = 5.0
    env.goal_source = "route"
    env.goal_behaviour = "new"
    env.goal_spacing = [30.0, 90.0]
    env.gate_all = true
    env.end_on_goal = true
    env.collision_behaviour = "stop"
    env.offroad_behaviour = "remove"
    env.red_light_behaviour = "stop"
    env.stop_sign_behaviour = "stop"
    env.inactive_threshold = 0.9
    env.yellow_counts = true
    env.limit_rank = "drawn"
    env.pdm.horizon_seconds = 3.0
    env.pdm.step_seconds = 0.25
    env.compat.idm = "rails"
    env.compat.lights = "independent"
    env.perturbation.light_randomisation = true
    env.dt = 0.2
    env.control = "tracks_to_predict"
    env.max_controlled = 3
    env.sdc_controller = "replay"
    env.vehicle_controller = "idm"
    env.other_controller = "static"
    env.dynamics = "jerk"
    env.reset_accel_on_stop = true
    env.action_type = "discrete"
    env.layout = "wide/1"
    env.obs_dtype = "float16"
    env.own_size_margin = 0.1
    env.num_goals = 4
    env.goal_radius = 4.0
    env.goal_speed = 1.0
    env.beyond_log = "stay"
    env.offroad = "area"
    env.level_gate = 5.0
    env.map_tolerance = 0.0
    env.max_segment = 5.0
    env.conditioning = true
    env.randomise = true
    env.log_coefficients = true
    env.reward.collision = 1.0
    env.reward.offroad = 1.0
    env.reward.stop_line = 0.5
    env.reward.goal = 2.0
    env.reward.lane_align = 0.01
    env.reward.velocity_align = 0.5
    env.reward.lane_centre = 0.002
    env.reward.centre_bias = 0.1
    env.reward.velocity = 0.001
    env.reward.comfort = 0.01
    env.reward.overspeed = 0.1
    env.reward.reverse = 0.001
    env.reward.timestep = 0.0
    env.reward.not_yielding = 0.5
    env.reward.progress = 0.5
    env.reward.ade = -0.5
    env.reward.collision_each_step = true
    env.compat.dynamics = "v2b"
    env.compat.types = "car"
    env.compat.reward = "v3"
    env.idm.max_acceleration = 2.0
    env.idm.comfortable_deceleration = 2.0
    env.idm.min_gap = 2.0
    env.idm.headway = 2.0
    env.idm.desired_speed = 2.0
    env.perturbation.lane_dropout = 0.5
    env.perturbation.edge_dropout = 0.5
    env.perturbation.blindness = 0.5
    env.perturbation.blindness_rate = 0.5
    env.perturbation.phantom_braking = 0.5
    env.perturbation.phantom_braking_rate = 0.5
    env.perturbation.perturbation_seconds = 2.0
    vec.infer_batch = 3
    eval.num_scenarios = 2
    eval.replicates = 2
    eval.egos = "each"
    eval.primary = "p"
    eval.primary_margin = 0.5
    eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
    eval.reference = "idm"
    eval.cluster = "map"
    eval.worst_metric = "w"
    eval.worst_n = 2
    eval.max_failed_cases = 2
    eval.resamples = 199
    eval.interval_method = "percentile"
    eval.skip_metrics = ["pet"]
    eval.plan_reference = "pdm"
    action_selection = "sample"
    record = "observations"
    keep_traces = "all"
    seed = 4
"""


def _alternatives() -> dict[str, str]:
    """A value away from the default for every key but those that have one legal value only."""
    pairs = (line.strip().split(" = ") for line in ALTERNATIVES.strip().split("\n"))
    return dict(pairs)


def _is_single(annotation: Any) -> bool:
    return typing.get_origin(annotation) is typing.Literal and len(typing.get_args(annotation)) == 1


def test_randomised_coefficients_must_be_shown(load: Load) -> None:
    """S100: a policy that is not told its coefficients cannot follow them; and fixed weights cannot be drawn."""
    with pytest.raises(SettingsError, match="conditioning = true"):
        load(f"[eval.x]\nenv.randomise = true\n{LIVE}").spec("x")
    both = 'env.randomise = true\nenv.conditioning = true\nenv.compat.reward = "v2"\n'
    with pytest.raises(SettingsError, match="fixed weights"):
        load(f"[eval.x]\n{both}{LIVE}").spec("x")


def test_every_knob_reaches_the_loop(load: Load) -> None:
    """every_knob_reaches_the_loop E4: every key of the schema, set away from its default, arrives in the spec under its
    own name and makes another evaluation; a key added to the schema without a line here fails."""
    unhashed = {"type", "enabled", "interval", "at_start", "at_end", "perturbations", "env.scenes"}
    unhashed |= {"vec.num_worlds", "vec.threads", "env.lists", "env.list_budget_mib"}
    unhashed |= {
        "mode",
        "blocking",
        "timeout_seconds",
        "vec.workers",
        "vec.memory_gib",
    }  # tests/evaluation/test_modes.py
    unhashed |= {*DRAWN, *(f"eval.{key}" for key in DRAWN_KNOBS)}  # tests/settings/test_settings_render.py
    keys = {".".join(key) for key, kind in section_fields([EvalKnobs]).items() if not _is_single(kind)}
    assert set(_alternatives()) == keys - unhashed
    plain = load(f"[eval.x]\n{LIVE}").spec("x")
    for key, text in _alternatives().items():
        needs = {"env.randomise": "env.conditioning = true\n", "eval.cluster": 'env.simulation_mode = "gigaflow"\n'}
        spec = load(f"[eval.x]\n{key} = {text}\n{needs.get(key, '')}{LIVE}").spec("x")
        value: Any = spec
        for name in key.split("."):
            value = getattr(value, name)
        wanted = eval(text, {"true": True})
        assert value == wanted or list(value) == wanted
        assert spec.section_digest([]) != plain.section_digest([]), key
        assert spec.origins[key].line == 2


class TestIndependence:
    """E19 training_config_untouched."""

    def test_specs_are_frozen(self, load: Load) -> None:
        """Frozen down to the nested models, and what `tree` hands out is a copy."""
        spec = load(f"[eval.x]\n{LIVE}").spec("x")
        with pytest.raises(FrozenInstanceError):
            spec.interval = 3  # type: ignore[misc]
        with pytest.raises(ValidationError):
            spec.env.idm.headway = 3  # type: ignore[misc]
        hash(spec)

    def test_a_b_a(self, load: Load) -> None:
        """One evaluator's overrides leaked into the next and into training."""
        suite = load(f"env.dt = 0.2\n[eval.a]\nenv.dt = 0.3\n{LIVE}[eval.b]\n{LIVE}")
        first, b, second = suite.spec("a"), suite.spec("b"), suite.spec("a")
        assert first == second
        assert (first.env.dt, b.env.dt) == (0.3, 0.2)

    def test_inputs_are_not_changed(self, load: Load) -> None:
        """Types, architecture and environment belong to the caller."""
        baseline: dict[str, Any] = {
            "action_selection": "sample",
            "eval.baselines": ["stationary", "constant_velocity", "idm", "log"],
        }
        kinds = {"t": EvaluatorType("t", EvalKnobs, baseline)}
        architecture = {"env.num_goals": 3}
        before = copy.deepcopy((baseline, architecture))
        spec = load('[eval.x]\ntype = "t"\nenv.scenes = "data"\n', types=kinds, architecture=architecture).spec("x")
        spec.tree["eval"]["baselines"].append("x")
        assert (baseline, architecture) == before
        assert spec.eval.baselines == ("stationary", "constant_velocity", "idm", "log")

    def test_specs_cross_processes(self, load: Load) -> None:
        """A spec is handed to workers; what cannot be pickled would be read again there."""
        spec = load(f"[eval.x]\n{LIVE}").spec("x")
        assert pickle.loads(pickle.dumps(spec)) == spec


def test_one_loader() -> None:
    """E20: a second TOML or INI parser drifts from the first; only the settings may import one."""
    package = Path(__file__).resolve().parents[2] / "src" / "skidpad"
    pattern = re.compile(r"^\s*(?:import|from)\s+(tomllib|tomli|toml|tomlkit|configparser)\b", re.M)
    users = {
        str(path.relative_to(package)) for path in package.rglob("*.py") if pattern.search(path.read_text("utf-8"))
    }
    # The pages of metrics are the package's own text, written as TOML, and no suite.
    pages = {"evaluation/metrics/explain.py"}
    assert users - pages == {"settings/checking.py", "settings/suite_file.py", "settings/toml_lines.py"}


def test_manager_keys_and_knobs_do_not_collide() -> None:
    """E1: `[eval] K` is the manager's or the base of a knob; no name may be both, nor a header key and a knob."""
    knobs, manager = set(EvalKnobs.model_fields), set(ManagerSettings.model_fields)
    header = {key[0] for key in section_fields([]) if len(key) == 1}
    assert knobs.isdisjoint(manager)
    assert knobs.isdisjoint(header | {"env", "vec", "eval", "inherits", "abstract", "unset", "clean"})


def test_fields_are_cached_and_read_only() -> None:
    """The list of keys is shared by all loads, so nobody may change it."""
    assert fields_of(EvalKnobs) is fields_of(EvalKnobs)
    assert isinstance(fields_of(EvalKnobs), types.MappingProxyType)
