"""Light programmes over time (S104, S105): generated ones never show two conflicting movements green or yellow."""

from __future__ import annotations

import numpy as np
import pytest
from bare_maps import SEED, shown, town

from skidpad.scenes.junctions import conflicts
from skidpad.scenes.scene import SIGNAL_LIGHT, STATE_GREEN, STATE_OFF, STATE_RED, STATE_UNKNOWN, STATE_YELLOW
from skidpad.scenes.synthetic import synthetic
from skidpad.simulation import state as at
from skidpad.simulation.kernels.lights import draw_programmes
from skidpad.simulation.traffic import pack_lights


@pytest.mark.parametrize("mode", [at.LIGHTS_FIXED, at.LIGHTS_RANDOM])
@pytest.mark.parametrize("name", ["Town01", "Town05"])
def test_conflicting_movements_are_never_open_together(name, mode):
    """S104: in no step of any episode do two conflicting lights show green or yellow together; yellow is followed by
    red, and every light of a running programme is green at some time and red at some."""
    scene = town(name)
    lights = np.flatnonzero(scene.signals.kind == SIGNAL_LIGHT)
    conflict = conflicts_on(scene, lights)
    running = 0
    for episode in range(10, 18):
        states = shown(scene, mode, episode=episode)[:, lights]
        if (states == STATE_OFF).all():
            assert mode == at.LIGHTS_RANDOM
            continue
        running += 1
        assert set(np.unique(states)) <= {STATE_RED, STATE_YELLOW, STATE_GREEN}
        is_open = (states == STATE_GREEN) | (states == STATE_YELLOW)
        assert not (is_open[:, :, None] & is_open[:, None, :] & conflict[None]).any()
        change = states[1:] != states[:-1]
        assert (states[1:][change & (states[:-1] == STATE_YELLOW)] == STATE_RED).all()
        assert (states[1:][change & (states[:-1] == STATE_GREEN)] == STATE_YELLOW).all()
        if mode == at.LIGHTS_FIXED:
            assert (states == STATE_GREEN).any(axis=0).all()
            assert (states == STATE_RED).any(axis=0).all()
    assert running >= 3


def conflicts_on(scene, lights):
    """(n, n) bool over the given lights, junction by junction."""
    found = np.zeros((len(lights), len(lights)), np.bool_)
    for junction in np.unique(scene.signals.junction[lights]):
        rows = np.flatnonzero(scene.signals.junction[lights] == junction)
        found[np.ix_(rows, rows)] = conflicts(scene, lights[rows].tolist())
    return found


def test_durations_of_evaluation_are_fixed():
    """S104: 10 s green and 3 s yellow for every light; junctions do not march in step."""
    scene = town("Town01")
    states = shown(scene, at.LIGHTS_FIXED, steps=1200)
    for light in range(scene.signals.count):
        one = states[:, light]
        edges = np.flatnonzero(np.diff(one.astype(int))) + 1
        runs = np.split(one, edges)[1:-1]
        assert {len(run) for run in runs if run[0] == STATE_GREEN} <= {99, 100, 101}
        assert {len(run) for run in runs if run[0] == STATE_YELLOW} <= {29, 30, 31}
    first = np.array([np.flatnonzero(states[:, light] == STATE_GREEN)[0] for light in range(scene.signals.count)])
    assert len(set(first.tolist())) > 10


def test_shares_of_random_programmes():
    """S104: one episode in five is all off; one junction in twenty keeps its main phase green for ever."""
    scene = town("Town01")
    off, kept, junctions = 0, 0, 0
    for episode in range(200):
        states = shown(scene, at.LIGHTS_RANDOM, episode=episode, steps=1)
        if (states == STATE_OFF).all():
            off += 1
            continue
        packed = pack_lights(scene, generate=True)
        programme = np.zeros((at.PROGRAMME_ROWS, scene.signals.count), np.int64)
        draw_programmes(
            SEED, episode, at.LIGHTS_RANDOM, packed.source, packed.group, packed.phase, packed.phases, programme
        )
        constant = programme[at.PROGRAMME_CYCLE] == 0
        kept += len(set(packed.group[constant].tolist()))
        junctions += len(packed.phases)
        assert (programme[at.PROGRAMME_GREEN, constant] == np.where(packed.phase[constant] == 0, 3, 1)).all()
    assert 22 <= off <= 60
    assert 0.03 < kept / junctions < 0.07


def test_independent_lights_of_the_peer():
    """S104 `compat.lights`: each light alone, within its ranges; and lights of one junction do meet in green."""
    scene = town("Town01")
    states = shown(scene, at.LIGHTS_INDEPENDENT, steps=3000)
    for light in range(scene.signals.count):
        one = states[:, light]
        runs = np.split(one, np.flatnonzero(np.diff(one.astype(int))) + 1)[1:-1]
        lengths = {state: [len(r) for r in runs if r[0] == state] for state in (STATE_RED, STATE_YELLOW, STATE_GREEN)}
        assert all(9 <= n <= 101 for n in lengths[STATE_GREEN])
        assert all(14 <= n <= 24 for n in lengths[STATE_YELLOW])
        assert all(2 <= n <= 101 for n in lengths[STATE_RED])
    lights = np.arange(scene.signals.count)
    green = states == STATE_GREEN
    assert (green[:, :, None] & green[:, None, :] & conflicts_on(scene, lights)[None]).any()


@pytest.mark.parametrize(("start_row", "dt_us"), [(0, 100_000), (7, 100_000), (0, 300_000), (3, 50_000)])
def test_the_log_wins_over_programmes(start_row, dt_us):
    """S104, S105: logged states hold for 2 s, and a light that was never logged follows the file's programme from row
    0 on, at any start row and step; the twin looks both up in plain Python."""
    scene = synthetic("crossing", seed=3)
    steps = 80 if dt_us <= 100_000 else 28
    found = shown(scene, at.LIGHTS_FIXED, steps=steps, start_row=start_row, dt_us=dt_us)
    signals, row_us = scene.signals, scene.meta.dt_us
    for light in range(signals.count):
        for step in range(steps):
            time = start_row * row_us + step * dt_us
            rows = [r for r in range(scene.meta.steps) if r * row_us <= time and signals.state[light, r]]
            wanted = STATE_UNKNOWN
            if rows and time - rows[-1] * row_us <= 2_000_000:
                wanted = signals.state[light, rows[-1]]
            assert found[step, light] == wanted


def test_the_files_programme_runs_without_a_log():
    """S104: the programme of the file, offset included, when no row of the light was logged; nothing is generated for
    a light that has neither beside logged traffic."""
    from dataclasses import replace

    scene = synthetic("crossing", seed=3)
    signals = replace(scene.signals, state=np.zeros_like(scene.signals.state))
    scene = replace(scene, signals=signals)
    found = shown(scene, at.LIGHTS_FIXED, steps=700)
    for light in range(signals.count):
        phases = slice(signals.program_offset[light], signals.program_offset[light + 1])
        ends = np.cumsum(signals.program_duration[phases].astype(float))
        for step in range(0, 700, 3):
            when = (step * 0.1 - float(signals.cycle_offset[light])) % ends[-1]
            if np.abs(ends - when).min() > 1e-3 and when > 1e-3:
                assert found[step, light] == signals.program_state[phases][np.searchsorted(ends, when, side="right")]
    bare = replace(
        scene,
        signals=replace(
            signals,
            program_offset=np.zeros_like(signals.program_offset),
            program_duration=np.zeros(0, np.float32),
            program_state=np.zeros(0, np.uint8),
        ),
    )
    assert (shown(bare, at.LIGHTS_FIXED, steps=5, generate=False) == STATE_UNKNOWN).all()
    assert (shown(bare, at.LIGHTS_FIXED, steps=5) != STATE_UNKNOWN).all()
