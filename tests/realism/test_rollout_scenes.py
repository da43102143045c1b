"""Scenes as cases and traces as rollouts: our own runs through the same door as everybody's (Q21, Q24, Q39)."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import numpy as np
import pytest

import skidpad
from skidpad.errors import ProtocolError
from skidpad.evaluation.metrics.realism import realism
from skidpad.evaluation.rollout import Labels, rollout
from skidpad.evaluation.rollout_scenes import scene_case, scene_lights, trace_rollouts
from skidpad.evaluation.rollouts import check_rollouts
from skidpad.policies.baselines import BASELINES
from skidpad.runs.trace import Trace
from skidpad.scenes.case import Case
from skidpad.scenes.events import Status
from skidpad.scenes.scene import SIGNAL_LIGHT, STATE_RED, Scene
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.simulator import Simulator


@pytest.fixture(scope="module")
def scene() -> Scene:
    """A crossing whose present is row 10, as in a benchmark."""
    made = synthetic("crossing", 1)
    return dataclasses.replace(made, meta=dataclasses.replace(made.meta, current_step=10, tracks_to_predict=(1,)))


@pytest.fixture(scope="module")
def traces(scene: Scene) -> list[Trace]:
    """Three random drives of everybody from row 10 on."""
    policy = BASELINES["random"].policy
    assert policy is not None
    env = EnvSettings(scenario_length=40, control="vehicles", init_step=10)
    cases = [Case(scene.digest, scene.meta.scene_id, seed) for seed in range(3)]
    with Simulator(cases, env, scenes={scene.digest: scene}) as worlds:
        outcomes = rollout(worlds, cases, policy(), env=env, selection="sample", labels=Labels("e", "random", ""))
    found = [outcome.trace for outcome in outcomes if outcome.trace is not None]
    assert len(found) == 3
    return found


def test_a_scene_becomes_a_case(scene: Scene) -> None:
    """Rows, sizes, edges and lights are those of the scene; scored are the tracks to predict and the recording car."""
    case = scene_case(scene)
    log, tracks = case.log, scene.tracks
    assert log.current_step == 10
    assert log.valid.shape == (tracks.count, 91)
    assert log.scored.tolist() == sorted({scene.meta.sdc, 1})
    assert np.array_equal(log.x, np.where(tracks.valid[:, :91], tracks.x[:, :91], 0))
    assert np.array_equal(log.length, tracks.length[:, 10])
    assert case.edges is not None
    assert case.lights is not None
    lights = np.flatnonzero(scene.signals.kind == SIGNAL_LIGHT)
    controlled = [int(lane) for s in lights for lane in scene.signals.lanes(int(s))]
    assert case.lights.signal_lane.tolist() == controlled
    assert case.lights.stop.shape == (scene.signals.state.shape[1], len(controlled))
    assert case.lights.stop.any()
    first = scene.signals.state[lights[0]]
    assert np.array_equal(case.lights.stop[:, 0], first == STATE_RED)


def test_a_late_present_keeps_eleven_rows_of_history(scene: Scene) -> None:
    """Q21: history and lights are cut together, else lights are shifted against the cars."""
    late = dataclasses.replace(scene, meta=dataclasses.replace(scene.meta, current_step=25))
    case = scene_case(late, future=40)
    assert case.log.current_step == 10
    assert np.array_equal(case.log.x[:, 10] != 0, late.tracks.valid[:, 25] & (late.tracks.x[:, 25] != 0))
    assert case.lights is not None
    plain = scene_case(scene).lights
    assert plain is not None
    assert np.array_equal(case.lights.stop, plain.stop[15:])


def test_a_scene_that_names_nobody_scores_everybody() -> None:
    """Most formats have no tracks to predict."""
    made = synthetic("straight")
    bare = dataclasses.replace(made, meta=dataclasses.replace(made.meta, sdc=-1, tracks_to_predict=(), current_step=10))
    assert scene_case(bare).log.scored.tolist() == np.flatnonzero(bare.tracks.valid[:, 10]).tolist()
    with pytest.raises(ProtocolError, match="no tracks"):
        scene_case(synthetic("straight", traffic=False))


@pytest.mark.parametrize("source", ["argoverse2", "opendrive", "lanelet2"])
def test_formats_without_light_states_have_none(scene: Scene, source: str) -> None:
    """Q27: 'no violation' in a format that cannot carry lights would be a gift."""
    assert scene_lights(dataclasses.replace(scene, meta=dataclasses.replace(scene.meta, source_format=source))) is None


def test_traces_become_rollouts(scene: Scene, traces: list[Trace]) -> None:
    """State k + 1 of a trace is row k after now; objects without a body somewhere were not simulated, and the score of
    fewer rollouts and rows says so."""
    found = trace_rollouts(traces, scene)
    assert (found.count, found.steps) == (3, traces[0].steps)
    for r, trace in enumerate(traces):
        for n, agent in enumerate(found.object_id):
            assert np.array_equal(found.x[r, n], trace["x"][0, 1:, agent])
            assert np.isin(trace["status"][0, 1:, agent], (Status.ACTIVE, Status.STOPPED)).all()
    case = scene_case(scene, future=found.steps)
    task = check_rollouts(found, case.log, not_standard=True)
    assert any(text.startswith("3 rollouts instead of 32") for text in task.not_standard)
    result = realism(found, case.log, case.edges, case.lights, not_standard=True)
    assert result.value is not None
    assert 0 < result.value < 1
    assert result.not_standard == task.not_standard


def test_the_log_replayed_is_the_log(scene: Scene) -> None:
    """S55: a replay through the simulator has error 0 against the log, so the door adds nothing of its own."""
    env = EnvSettings(scenario_length=40, control="vehicles", init_step=10)
    cases = [Case(scene.digest, scene.meta.scene_id, 0)]
    with Simulator(cases, env, scenes={scene.digest: scene}, substitute="replay") as worlds:
        trace = rollout(worlds, cases, None, env=env, selection="deterministic", labels=Labels("e", "log", ""))[0].trace
    assert trace is not None
    found = trace_rollouts([trace], scene)
    case = scene_case(scene, future=found.steps)
    result = realism(found, case.log, case.edges, case.lights, not_standard=True)
    assert result.ade == pytest.approx(0, abs=1e-6)


def test_traces_that_do_not_belong_together(scene: Scene, traces: list[Trace]) -> None:
    """Rollouts of two scenes, start rows or lengths in one histogram would give a number."""
    with pytest.raises(ProtocolError, match="no traces"):
        trace_rollouts([], scene)
    other = dataclasses.replace(traces[1], meta=dataclasses.replace(traces[1].meta, start_row=0))
    with pytest.raises(ProtocolError, match="another start row"):
        trace_rollouts([traces[0], other], scene)
    foreign = dataclasses.replace(traces[1], meta=dataclasses.replace(traces[1].meta, scene_digest="0" * 64))
    with pytest.raises(ProtocolError, match="another scene"):
        trace_rollouts([foreign], scene)


def test_scoring_needs_no_foreign_evaluator() -> None:
    """Q39: no TensorFlow, protobuf or nuPlan package anywhere in scoring; the input is arrays."""
    root = Path(skidpad.__file__).parent
    for path in [*root.rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            roots = {name.split(".")[0] for name in names}
            assert not roots & {"tensorflow", "google", "waymo_open_dataset", "nuplan", "navsim", "jax"}, path
