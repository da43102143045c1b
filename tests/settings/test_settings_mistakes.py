"""What a person reads after a mistake: everything at once, each with its line and the nearest known key."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skidpad.errors import SettingsError
from skidpad.settings.schema import EvalKnobs
from skidpad.settings.suite import EvaluatorType, load_suite

Refusal = Callable[..., str]

TYPES = {"realism": EvaluatorType("realism", EvalKnobs, {"action_selection": "sample"})}
LIVE = 'type = "realism"\nenv.scenes = "data"\n'


class TestUnknown:
    """E10, EF1, F1: an evaluation that silently never runs, or a knob that does nothing, is found hours later."""

    def test_unknown_type_lists_types(self, refusal: Refusal) -> None:
        """unknown_type_lists_types: a type that does not exist is answered with those that do."""
        known = "multi_scenario, human_replay, realism"
        assert refusal('[eval.x]\ntype = "realsm"\nenv.scenes = "data"', name="s.toml") == (
            f"s.toml:2: unknown type \"realsm\"; known types: {known}; did you mean 'realism'?"
        )

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("intervall = 3", "unknown key 'intervall' in [eval.x]; did you mean 'interval'?"),
            ("horizont = 3", "unknown key 'horizont' in [eval.x]; did you mean 'horizon'?"),
            ("eval.horizont = 3", "unknown key 'eval.horizont' in [eval.x]; did you mean 'eval.horizon'?"),
            ("env.goal_radios = 3", "unknown key 'env.goal_radios' in [eval.x]; did you mean 'env.goal_radius'?"),
            ("env.idm.headwy = 3", "unknown key 'env.idm.headwy' in [eval.x]; did you mean 'env.idm.headway'?"),
            ("env.headway = 3", "unknown key 'env.headway' in [eval.x]; it belongs under `env.idm.`: env.idm.headway"),
            ("env.num_scenarios = 3", "it belongs under `eval.`: eval.num_scenarios"),
            ("goal_radius = 3", "unknown key 'goal_radius' in [eval.x]; it belongs under `env.`: env.goal_radius"),
            ("eval.interval = 3", "it belongs in the section itself, without a group: interval"),
            ("envv.foo = 3", "unknown key 'envv.foo' in [eval.x]; did you mean 'env'?"),
            ("env.idm = 3", "unknown key 'env.idm' in [eval.x]; it is a table, not a value"),
            ("env.dt.x = 3", "unknown key 'env.dt.x' in [eval.x]; 'env.dt' is a value, not a table"),
            ("interval.x = 3", "unknown key 'interval.x' in [eval.x]; 'interval' is a value, not a table"),
            ("env.idmm = {}", "unknown key 'env.idmm' in [eval.x]; did you mean 'env.idm'?"),
            ("blockin = true", "unknown key 'blockin' in [eval.x]; did you mean 'blocking'?"),
            ("mode = 'polo'", "did you mean 'pool'?"),
            ("inherit = 'y'", "unknown key 'inherit' in [eval.x]; did you mean 'inherits'?"),
            ("zzz = 1", "unknown key 'zzz' in [eval.x]"),
        ],
    )
    def test_unknown_key_suggests(self, refusal: Refusal, line: str, message: str) -> None:
        """unknown_key_suggests: type, group, key and nested key; a key of another group is sent there."""
        found = refusal(f"[eval.x]\n{line}\n{LIVE}", name="s.toml")
        assert found.startswith("s.toml:2: ")
        assert found.endswith(message)

    def test_group_that_is_a_value(self, refusal: Refusal) -> None:
        """`env = 3` in a section, alone and against a key that needs the table."""
        text = '[eval.x]\ntype = "realism"\nenv = 3\n'
        assert "s.toml:3: unknown key 'env' in [eval.x]; it is a table, not a value" in refusal(text, name="s.toml")
        message = refusal(text + "env.dt = 0.1\n", name="s.toml")
        assert message == "s.toml:4: 'eval.x.env' is written twice, first in line 3; keep one"

    def test_knob_of_another_type(self, refusal: Refusal) -> None:
        """`horizon` is realism's: in another type it would be a knob without effect."""
        message = refusal('[eval.x]\ntype = "human_replay"\nhorizon = 3.0\nenv.scenes = "data"', name="s.toml")
        assert message == "s.toml:3: unknown key 'horizon' in [eval.x] (type 'human_replay')"

    def test_unknown_base_keys(self, refusal: Refusal) -> None:
        """Outside sections too, whether or not there is a section."""
        message = refusal("[env]\ndtt = 1\n[vec]\nthread = 1\n[eval]\nbenchmark_sed = 1\n[env.foo]\n", name="s.toml")
        assert message == (
            "s.toml:2: unknown key 'env.dtt'; did you mean 'env.dt'?\n"
            "s.toml:4: unknown key 'vec.thread'; did you mean 'vec.threads'?\n"
            "s.toml:6: unknown key 'eval.benchmark_sed'; did you mean 'eval.benchmark_seed'?\n"
            "s.toml:7: unknown key 'env.foo'"
        )

    def test_keys_of_training(self, refusal: Refusal) -> None:
        """A key of [train] that does not exist is refused with its line, and [policy] alone sizes nothing (E4)."""
        said = refusal("[train]\nsteps = 1\nenv.scenes = 'library:Town01'\n")
        assert said == "suite.toml:2: unknown key 'train.steps'; did you mean 'train.total_steps'?"
        assert "there is no [train]" in refusal("[policy]\nencoder = 8\n")
        assert "needs env.scenes" in refusal("[train]\nseed = 1\n")


class TestTogether:
    """E10: one message with all mistakes, at most 20."""

    def test_errors_come_together(self, refusal: Refusal) -> None:
        """errors_come_together: ten errors of ten kinds, in the order of their lines."""
        message = refusal(
            """\
intervall = 3
[env]
dtt = 1
[perturbations.mild]
red_light = 1
[eval.a]
type = "realsm"
interval = -1
[eval.b]
inherits = "c"
worst_n = true
eval.worst_n = 3
env.scenes = "nowhere"
type = "realism"
env.goal_radius = 0
[eval.d]
env.scenes = "nowhere"
type = "realism"
num_scenarios = "3"
[eval.E]
""",
            "env.foo=1",
            name="s.toml",
        )
        starts = [line.split(" ", 1)[0] for line in message.split("\n")]
        lines = [1, 3, 5, 7, 8, 10, 12, 15, 19, 20]
        assert starts == [*(f"s.toml:{line}:" for line in lines), "command"]

    def test_at_most_twenty(self, refusal: Refusal) -> None:
        """A wall of text helps nobody; the count of the rest is said."""
        lines = refusal("[eval.x]\n" + "".join(f"k{i} = 1\n" for i in range(30)) + LIVE).split("\n")
        assert len(lines) == 21
        assert lines[-1] == "... and 10 more problems"
        assert len(refusal("[eval.x]\n" + "".join(f"k{i} = 1\n" for i in range(20)) + LIVE).split("\n")) == 20
        assert "... and 1 more problem" in refusal("[eval.x]\n" + "".join(f"k{i} = 1\n" for i in range(21)) + LIVE)

    def test_an_inherited_mistake_is_one_mistake(self, refusal: Refusal) -> None:
        """Twelve children of one template must not fill the list with one line."""
        text = "[eval.p]\nabstract = true\nenv.goal_radius = 0\nintervall = 1\n"
        text += "".join(f'[eval.s{i}]\ninherits = "p"\n{LIVE}' for i in range(12))
        assert len(refusal(text).split("\n")) == 2


BAD_VALUES = [
    # (line, the reason, after "should be " or verbatim)
    ("interval = -1", "greater than or equal to 0"),
    ("interval = true", "a valid integer"),
    ("interval = 2.0", "a valid integer"),
    ('interval = "3"', "a valid integer"),
    ("interval = [3]", "a valid integer"),
    ("enabled = 1", "a valid boolean"),
    ('enabled = "true"', "a valid boolean"),
    ("at_start = 0", "a valid boolean"),
    ("at_end = 'no'", "a valid boolean"),
    ("abstract = 0", "a valid boolean"),
    ("inherits = 3", "a valid string or should be a valid tuple"),
    ("unset = [1]", "a valid string"),
    ("seed = -1", "greater than or equal to 0"),
    ("seed = 1.0", "a valid integer"),
    ("record = 'everything'", "'states'"),
    ("keep_traces = 'al'", "'selected', 'all' or 'none'; did you mean 'all'?"),
    ("action_selection = 'sampled'", "did you mean 'sample'?"),
    ("perturbations = true", "a valid string"),
    ("num_scenarios = 0", "greater than 0"),
    ("replicates = 0", "greater than 0"),
    ("replicates = 10001", "less than or equal to 10000"),
    ("egos = 'every'", "'scene' or 'each'"),
    ("primary = ''", "String should have at least 1 character"),
    ("primary_margin = -0.1", "greater than or equal to 0"),
    ("worst_n = -1", "greater than or equal to 0"),
    ("resamples = 99", "greater than or equal to 100"),
    ("interval_method = 'bootstrap'", "'bca' or 'percentile'"),
    (
        'baselines = ["idm", "log"]',
        "must keep stationary, constant_velocity; only random and log_actions may be dropped",
    ),
    ('baselines = ["stationary", "constant_velocity", "idm", "log", "log"]', "names a baseline twice"),
    ('baselines = "idm"', "a valid tuple"),
    ('reference = "expert"', "is not among eval.baselines, stationary"),
    ("env.dt = 0", "greater than 0"),
    ("env.dt = 0.6", "less than or equal to 0.5"),
    ("env.dt = '0.1'", "a valid number"),
    ("env.num_goals = 21", "less than or equal to 20"),
    ("env.goal_radius = 0.0", "greater than 0"),
    ("env.perturbation.blindness = 1.5", "less than or equal to 1"),
    ("env.idm.headway = false", "a valid number"),
    ("env.control = 'vehicle'", "did you mean 'vehicles'?"),
    ("env.init_step = -1", "greater than or equal to 0"),
    ("env.scenario_length = 0", "greater than 0"),
    ("env.scenes = 3", "a valid string or should be a valid tuple"),
    ("env.scenes = [3]", "a valid string"),
    ("vec.num_worlds = 0", "greater than 0"),
    ("vec.threads = 4096", "less than or equal to 1024"),
    ("eval.horizon = nan", "nan is not a finite number"),
]

PROBE = """
import json, sys
from pathlib import Path
from skidpad.errors import SettingsError
from skidpad.settings.schema import EvalKnobs
from skidpad.settings.suite import EvaluatorType, load_suite
class Knobs(EvalKnobs):
    horizon: float = 8.0
types = {"realism": EvaluatorType("realism", Knobs, {"action_selection": "sample"})}
messages = []
for path in sys.argv[1:]:
    try:
        load_suite(Path(path), types=types)
        messages.append("")
    except SettingsError as error:
        messages.append(str(error))
heavy = [name for name in ("torch", "numba", "ray", "numpy", "scipy") if name in sys.modules]
print(json.dumps([heavy, messages]))
"""


def test_bad_values_before_heavy_imports(folder: Path) -> None:
    """E11, EF2, F2, F3: forty bad values, each refused by the schema with its line and the allowed range, in a process
    that has not even imported numpy; the peer raised its first such error after the metric pass was paid for."""
    import json

    paths = []
    for index, (line, _) in enumerate(BAD_VALUES):
        template = LIVE.replace('env.scenes = "data"\n', "") if line.startswith("env.scenes") else LIVE
        paths.append(folder / f"bad{index}.toml")
        paths[-1].write_text(f"[eval.x]\n{line}\n{template}", "utf-8")
    done = subprocess.run([sys.executable, "-c", PROBE, *map(str, paths)], capture_output=True, text=True, check=True)
    heavy, messages = json.loads(done.stdout)
    assert heavy == []
    for path, (line, reason), message in zip(paths, BAD_VALUES, messages, strict=True):
        key = line.split(" = ")[0]
        assert message.startswith(f"{path}:2: "), (line, message)
        assert key in message.split("\n")[0], (line, message)
        assert reason in message, (line, message)


def test_good_values_pass(folder: Path) -> None:
    """The table above must refuse for its reason: the same suite without the bad line loads."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(_written(folder / "good.toml", f"[eval.x]\n{LIVE}"))],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == '[[], [""]]'


def _written(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_whole_number_is_a_float_but_not_the_reverse(refusal: Refusal) -> None:
    """F2: 2 may stand where 2.0 is meant; 2.0 for a count is refused."""
    assert refusal(f"[eval.x]\nenv.goal_radius = 2\nworst_n = 2.0\n{LIVE}", name="s.toml") == (
        "s.toml:3: worst_n = 2.0 in [eval.x] should be a valid integer"
    )


def test_disabled_sections_are_checked_but_for_paths(refusal: Refusal) -> None:
    """E11, E13: switching a section off must not hide its typos."""
    text = '[eval.x]\nenabled = false\ntype = "realism"\nenv.scenes = "nowhere"\nintervall = 1\n'
    assert refusal(text, name="s.toml") == "s.toml:5: unknown key 'intervall' in [eval.x]; did you mean 'interval'?"


PARTS = """
    eval env vec . .x x x.env type inherits abstract unset extends clean perturbations mild realism dt scenes idm
    headway interval = = = [ ] [eval.x] [eval.y] [env] [perturbations.mild] { } 1 -1 0.1 true nan [] {} # $ ${ ~
    "x" "data" "
"""
WORDS = st.sampled_from([*re.findall(r"\S+", PARTS), "\n", "\n", "\n", "'", "\\", "\0", "\u00e9"])


@settings(deadline=None)
@given(
    st.lists(WORDS, max_size=25), st.sampled_from(["toml", "ini"]), st.lists(st.lists(WORDS, max_size=5), max_size=2)
)
def test_any_text_loads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], suffix: str, overrides: list[list[str]]
) -> None:
    """F5, EF5: whatever stands in a file or on the command line, the answer is a suite or a SettingsError."""
    path = _written(tmp_path_factory.getbasetemp() / f"fuzz.{suffix}", " ".join(words))
    with contextlib.suppress(SettingsError):
        load_suite(path, ["".join(one) for one in overrides], types=TYPES, environ={})


def test_error_is_a_usage_error() -> None:
    """Exit code 2 without a traceback hangs on the class."""
    assert SettingsError.exit_code == 2
    assert issubclass(SettingsError, ValueError)
