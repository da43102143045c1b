"""Promises of the loop that no single module keeps: worlds are closed, episodes do not mix, nothing is tuned by what a
driver sees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from skidpad.errors import ProtocolError
from skidpad.evaluation.rollout import Labels, rollout
from skidpad.evaluation.worlds import Worlds
from skidpad.policies.baselines import ConstantVelocity
from skidpad.runs.trace import Trace
from skidpad.scenes.case import Case
from skidpad.scenes.map_cache import memory_cache
from skidpad.scenes.scene import Scene
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.simulator import Simulator

LABELS = Labels("test", "policy", "clean")
ENV = EnvSettings(scenario_length=8)
BARE = EnvSettings(
    simulation_mode="gigaflow",
    min_agents_per_world=2,
    max_agents_per_world=2,
    scenario_length=8,
    inactive_threshold=9.0,
)


@pytest.fixture(scope="module")
def scenes() -> dict[str, Scene]:
    return {scene.digest: scene for scene in (synthetic("straight"), synthetic("crossing"))}


def cases_of(scenes: dict[str, Scene]) -> list[Case]:
    return [Case(digest, scene.meta.scene_id, 5) for digest, scene in scenes.items()]


def driven(cases: Sequence[Case], env: EnvSettings, scenes: dict[str, Scene]) -> list[Trace]:
    with Simulator(cases, env, scenes=scenes) as simulator:
        outcomes = rollout(
            simulator, cases, ConstantVelocity("continuous"), env=env, selection="deterministic", labels=LABELS
        )
    traces = [outcome.trace for outcome in outcomes if outcome.trace is not None]
    assert len(traces) == len(cases)
    return traces


def test_worlds_are_closed_when_a_policy_raises(scenes: dict[str, Scene]) -> None:
    """E37: an exception in the loop leaves no open simulator behind, and none that is used again half way through its
    cases; the peer's jobs ran out of memory that way."""
    worlds = Worlds()
    cases = cases_of(scenes)[:1]

    def taken():
        return worlds.taken(cases, ENV, scenes, threads=1, cache=memory_cache(), substitute=None)

    with pytest.raises(RuntimeError, match="on purpose"), taken() as broken:
        raise RuntimeError("on purpose")
    with pytest.raises(ProtocolError, match="closed"):
        broken.reset()
    with taken() as first:
        first.reset()
    with taken() as again:
        assert again is first
    assert worlds.built == 2
    worlds.close()
    with pytest.raises(ProtocolError, match="closed"):
        first.reset()


@pytest.mark.parametrize("env", [ENV, BARE], ids=["replay", "gigaflow"])
def test_past_two_resamples_every_mode(scenes: dict[str, Scene], env: EnvSettings) -> None:
    """past_two_resamples_every_mode E59, E54 (real): worlds that were resampled twice are the worlds that are built of
    the same cases, and what a row shows at a boundary is the new episode, its predecessor's last row kept apart; the
    peer's resampling forgot an argument that building passed on."""
    cases = cases_of(scenes)
    policy = ConstantVelocity("continuous")
    options = {"autoreset": "same_step", "resample_every": 5}
    with Simulator(cases, env, scenes=scenes, rows=4, **options) as simulator:  # type: ignore[arg-type]
        result = simulator.reset()
        for _ in range(10):
            actions, _ = policy.act(
                result.obs,
                None,
                result.truncated,
                selection="deterministic",
                streams=None,
                simulator=simulator,  # type: ignore[arg-type]
            )
            result = simulator.step(actions)
        assert result.final_obs is not None
        assert result.truncated.all()
        assert not np.array_equal(result.final_obs, result.obs)
        drawn, shown = simulator.cases, result.obs.copy()
        steps, rows = simulator.world_steps.copy(), list(zip(simulator.row_world, simulator.row_agent, strict=True))
    assert {case.replicate for case in drawn} != {0}
    with Simulator(drawn, env, scenes=scenes) as fresh:
        start = fresh.reset().obs
        place = {row: k for k, row in enumerate(zip(fresh.row_world, fresh.row_agent, strict=True))}
        assert np.array_equal(start[[place[row] for row in rows]], shown)
        assert np.array_equal(fresh.world_steps, steps)


@pytest.mark.parametrize("missing", ["cases", "settings", "scenes"])
def test_worlds_need_every_argument(scenes: dict[str, Scene], missing: str) -> None:
    """E59, EF21: what a world is made of is asked for when it is made, not when its first boundary is crossed."""
    given = {"cases": cases_of(scenes), "settings": ENV, "scenes": scenes}
    del given[missing]
    with pytest.raises(TypeError, match=missing):
        Simulator(**given)  # type: ignore[arg-type]


@pytest.mark.slow
def test_nothing_is_tuned_by_the_observation(scenes: dict[str, Scene]) -> None:
    """E62: rules, traffic and lights do not depend on what a driver is shown; in the peer, no slot for lights switched
    the red ones off."""
    cases = cases_of(scenes)
    plain = driven(cases, ENV, scenes)
    for layout in ("default/1", "wide/1"):
        other = driven(cases, ENV.model_copy(update={"layout": layout}), scenes)
        for one, two in zip(plain, other, strict=True):
            assert one.meta.state_hash == two.meta.state_hash
            assert np.array_equal(one["events"], two["events"])
            assert np.array_equal(one["signal_state"], two["signal_state"])
