"""Gymnasium environments: the library's own checks, its contract of autoreset, and the Simulator's errors (S117)."""

from __future__ import annotations

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from skidpad.adapters import SkidpadEnv, SkidpadVectorEnv
from skidpad.errors import ActionError, CaseError, ProtocolError, SettingsError
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import CompatSettings, EnvSettings
from skidpad.simulation.training import training_settings

SCENES = [synthetic(name) for name in ("straight", "curve", "crossing")]
EGO = training_settings(control="sdc", scenario_length=14)
SELF_PLAY = training_settings(
    simulation_mode="gigaflow", min_agents_per_world=2, max_agents_per_world=4, scenario_length=30
)


def random_steps(env, steps, seed=0):
    """Random actions for so many steps, across episodes; returns how many ended by (terminated, truncated)."""
    ends = {(True, False): 0, (False, True): 0}
    env.action_space.seed(seed)
    observation, _ = env.reset(seed=seed)
    for _ in range(steps):
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert observation in env.observation_space
        assert np.isfinite(reward)
        if terminated or truncated:
            assert info["episode_rows"][0]["kind"] == "world"
            ends[terminated, truncated] += 1
            observation, _ = env.reset()
            assert observation in env.observation_space
    return ends


@pytest.mark.parametrize("keys", [{}, {"action_type": "discrete"}, {"obs_dtype": "float16"}, {"obs_dtype": "int8"}])
def test_the_official_checker_is_content(keys):
    """S117: check_env, made through a spec so that it also compares two runs of one seed bit by bit."""
    spec = EnvSpec(
        "Skidpad-v0",
        entry_point=SkidpadEnv,
        kwargs={"scenes": SCENES, "settings": EGO.model_copy(update=keys)},
        disable_env_checker=True,
        order_enforce=False,
    )
    env = gymnasium.make(spec)
    check_env(env.unwrapped)
    env.close()


def test_random_steps():
    """S117: 500 random steps over three scenes stay within the declared spaces, and both kinds of end occur."""
    ends = random_steps(SkidpadEnv(SCENES, EGO), 500)
    assert all(ends.values()), ends


@pytest.mark.slow
def test_ten_thousand_random_steps():
    """S117: the same for 10,000 steps, continuous and discrete."""
    for action_type in ("continuous", "discrete"):
        ends = random_steps(SkidpadEnv(SCENES, EGO.model_copy(update={"action_type": action_type})), 10_000)
        assert sum(ends.values()) > 200


def test_seeds_decide_the_order_of_scenes():
    """S117, S67: a seed begins its order of scenes, each once per pass; without one the order goes on."""

    def order(seed, count=6):
        env = SkidpadEnv(SCENES, EGO)
        names = [env.reset(seed=seed)[1]["scene"]]
        return [*names, *(env.reset()[1]["scene"] for _ in range(count - 1))]

    assert order(3) == order(3)
    assert len({tuple(order(seed)) for seed in range(8)}) > 1
    names = {scene.meta.scene_id for scene in SCENES}
    assert set(order(3)[:3]) == set(order(3)[3:]) == names


def test_factors_of_the_jerk_table():
    """S44, S117: an action of several factors is a MultiDiscrete, and is taken."""
    settings = EGO.model_copy(
        update={"dynamics": "jerk", "action_type": "discrete", "compat": CompatSettings(dynamics="v2")}
    )
    env = SkidpadEnv(SCENES[:1], settings)
    assert env.action_space.nvec.tolist() == [4, 3]
    random_steps(env, 5)


def test_what_a_single_environment_refuses():
    """S115, S117: each misuse is a typed error with its reason, never an assertion of a library or a wrong step."""
    with pytest.raises(ProtocolError, match="no scene"):
        SkidpadEnv([])
    with pytest.raises(SettingsError, match="bfloat16"):
        SkidpadEnv(SCENES, EGO.model_copy(update={"obs_dtype": "bfloat16"}))
    several = SkidpadEnv(SCENES[:1], training_settings())
    with pytest.raises(SettingsError, match=r'control = "sdc"'):
        several.reset()
    nobody = SkidpadEnv([synthetic("straight", traffic=False)])
    with pytest.raises(CaseError, match="no episode on any of"):
        nobody.reset()
    env = SkidpadEnv(SCENES, EGO)
    with pytest.raises(ProtocolError, match="call reset"):
        env.step(np.zeros(2, np.float32))
    with pytest.raises(ProtocolError, match="seed is -1"):
        env.reset(seed=-1)
    env.reset(seed=0)
    with pytest.raises(ProtocolError, match="due are numbers"):
        env.step(np.zeros(3, np.float32))
    with pytest.raises(ProtocolError, match="due are numbers"):
        env.step("left")
    with pytest.raises(ActionError, match="is NaN at step 0"):
        env.step(np.array([np.nan, 0.0]))
    while not any(env.step(np.zeros(2, np.float32))[2:4]):
        pass
    with pytest.raises(ProtocolError, match="has ended"):
        env.step(np.zeros(2, np.float32))
    env.close()
    env.close()
    with pytest.raises(ProtocolError, match="closed"):
        env.reset()
    whole = SkidpadEnv(SCENES, EGO.model_copy(update={"action_type": "discrete"}))
    whole.reset(seed=0)
    with pytest.raises(ProtocolError, match="whole numbers"):
        whole.step(1.5)
    for index in (63, -1, 2**40):
        with pytest.raises(ActionError, match="outside the table of 63"):
            whole.step(index)


# ------------------------------------------------------------------------------------------------- vector


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("settings", [EGO, SELF_PLAY], ids=["ego", "self_play"])
def test_vector_random_steps(mode, settings):
    """S117: 500 random steps of 8 rows: everything within the declared spaces, in the declared mode, and the library's
    own statistics wrapper can follow."""
    env = SkidpadVectorEnv(SCENES, settings, rows=8, autoreset=mode, seed=1)
    assert env.metadata["autoreset_mode"] == (
        AutoresetMode.NEXT_STEP if mode == "next_step" else AutoresetMode.SAME_STEP
    )
    wrapped = RecordEpisodeStatistics(env)
    wrapped.action_space.seed(0)
    observations, _ = wrapped.reset(seed=1)
    assert observations in env.observation_space
    ended = 0
    for _ in range(500):
        observations, rewards, terminated, truncated, _infos = wrapped.step(wrapped.action_space.sample())
        assert observations in env.observation_space
        assert observations.shape == env.observation_space.shape
        assert rewards.dtype == np.float64
        assert not (terminated & truncated).any()
        ended += int((terminated | truncated).sum())
    assert ended > 50
    wrapped.close()
    wrapped.close()


def test_vector_same_step_shows_the_last_row():
    """S66, S117: under "same_step" `final_obs` is what a run without autoreset ends with, and the observation is that
    of the next episode; under "next_step" the observation of the end is the last row itself."""
    one = EGO.model_copy(update={"scenario_length": 5})
    ends = {}
    for mode in ("same_step", "next_step", "off"):
        env = SkidpadVectorEnv(SCENES, one, rows=3, autoreset=mode)
        first, _ = env.reset(seed=4)
        for _ in range(5):
            last, _, _, truncated, infos = env.step(np.zeros((3, 2), np.float32))
        assert truncated.all()
        ends[mode] = infos["final_obs"] if mode == "same_step" else last
        if mode == "same_step":
            assert infos["_final_obs"].all()
            assert (last == first).all()
        if mode == "next_step":
            again, reward, terminated, truncated, infos = env.step(np.full((3, 2), 1.0, np.float32))
            assert (again == first).all()
            for told in (reward, terminated, truncated, infos["mask"]):
                assert not told.any()
    assert (ends["same_step"] == ends["off"]).all()
    assert (ends["next_step"] == ends["off"]).all()


def test_vector_seeds():
    """S117, S34: one seed, one run; another seed, another; without a seed the next episodes, which differ."""

    def run(env, seed):
        shown = [env.reset(seed=seed)[0]]
        for step in range(20):
            shown.append(env.step(np.full((8, 2), 0.1 * (step % 5), np.float32))[0])
        return np.array(shown)

    env = SkidpadVectorEnv(SCENES, SELF_PLAY, rows=8)
    first = run(env, 7)
    assert (run(env, None)[0] != first[0]).any()
    assert (run(env, 7) == first).all()
    assert (run(SkidpadVectorEnv(SCENES, SELF_PLAY, rows=8, threads=2), 7) == first).all()
    assert (run(env, 8)[0] != first[0]).any()


def test_vector_views_and_copies():
    """S111, S117: `copy=False` hands out the simulator's own memory, the default does not."""
    zero = np.zeros((8, 2), np.float32)
    views = SkidpadVectorEnv(SCENES, SELF_PLAY, rows=8, copy=False)
    shown, _ = views.reset()
    assert np.shares_memory(shown, views.step(zero)[0])
    copies = SkidpadVectorEnv(SCENES, SELF_PLAY, rows=8)
    shown, _ = copies.reset()
    assert not np.shares_memory(shown, copies.step(zero)[0])


def test_vector_partial_resets():
    """S109, S117: with autoreset off a mask names rows whose worlds start; the others are untouched, and half a world
    cannot start."""
    env = SkidpadVectorEnv(SCENES, EGO, rows=3, autoreset="off")
    env.reset(seed=0)
    moved, *_ = env.step(np.ones((3, 2), np.float32))
    shown, _ = env.reset(options={"reset_mask": np.array([True, False, False])})
    assert (shown[1:] == moved[1:]).all()
    assert (shown[0] != moved[0]).any()
    assert env.simulator.steps_taken.tolist() == [0, 1, 1]
    shared = SkidpadVectorEnv(SCENES, SELF_PLAY, rows=8, worlds=2, autoreset="off")
    shared.reset()
    with pytest.raises(ProtocolError, match="starts as a whole"):
        shared.reset(options={"reset_mask": np.arange(8) == 0})
    with pytest.raises(ProtocolError, match="no bool array"):
        shared.reset(options={"reset_mask": [True] * 8})
    with pytest.raises(ProtocolError, match="not both"):
        shared.reset(seed=1, options={"reset_mask": np.ones(8, bool)})
    with pytest.raises(ProtocolError, match="needs autoreset"):
        SkidpadVectorEnv(SCENES, EGO, rows=3).reset(options={"reset_mask": np.ones(3, bool)})


def test_what_a_vector_environment_refuses():
    """S53, S115, S117: impossible budgets at construction, wrong actions with world and agent, use after close."""
    with pytest.raises(SettingsError, match="budget of 1 agents in worlds of 2 to 4"):
        SkidpadVectorEnv(SCENES, SELF_PLAY, rows=1)
    with pytest.raises(ProtocolError, match="autoreset is 'always'"):
        SkidpadVectorEnv(SCENES, SELF_PLAY, rows=4, autoreset="always")
    with pytest.raises(ProtocolError, match="no scene"):
        SkidpadVectorEnv([], rows=4)
    env = SkidpadVectorEnv(SCENES, SELF_PLAY, rows=4, worlds=2)
    env.reset()
    with pytest.raises(ProtocolError, match=r"shape \(4, 2\)"):
        env.step(np.zeros((3, 2), np.float32))
    bad = np.zeros((4, 2), np.float32)
    bad[2, 1] = np.nan
    with pytest.raises(ActionError, match=r"world 1 .*agent 0 \(row 2, track 0\) is NaN"):
        env.step(bad)
    env.close()
    for call in (env.reset, lambda: env.step(np.zeros((4, 2), np.float32))):
        with pytest.raises(ProtocolError, match="closed"):
            call()


def test_a_missing_extra_is_named():
    """S117, S118: without the libraries the names say which extra brings them; torch's adapter needs none."""
    code = (
        "import sys\n"
        "sys.modules['gymnasium'] = sys.modules['pettingzoo'] = None\n"
        "import skidpad.adapters as adapters\n"
        "from skidpad.errors import MissingExtraError\n"
        "for name in ('SkidpadEnv', 'SkidpadVectorEnv', 'SkidpadParallelEnv'):\n"
        "    try:\n"
        "        getattr(adapters, name)\n"
        "    except MissingExtraError as error:\n"
        "        assert str(error).endswith(\"pip install 'skidpad[gym]'\"), error\n"
        "    else:\n"
        "        raise SystemExit(name)\n"
        "adapters.TorchSimulator\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_warning_is_hidden():
    """Warnings are errors here, also those of Gymnasium's logger: a checker that only warns would pass unseen."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        check_env(SkidpadEnv(SCENES, EGO), skip_render_check=True)
    assert [str(warning.message) for warning in seen] == []


def test_evaluation_settings_drive_on():
    """S120: in training an infraction stops the driver; under evaluation's defaults it does not."""
    for settings, stops in ((training_settings(), True), (EnvSettings(), False)):
        values = {settings.collision_behaviour, settings.offroad_behaviour, settings.red_light_behaviour}
        assert values == ({"stop"} if stops else {"ignore"})
    assert training_settings(collision_behaviour="ignore").collision_behaviour == "ignore"
