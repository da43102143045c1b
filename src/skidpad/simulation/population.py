"""Who is in a world, who is under test, and who drives whom (S48 to S54), and which time it covers (S56).

In replay the agents are the tracks of the scene; on a bare map (gigaflow) they are numbered and put onto it by the
spawn kernel. Nothing is capped silently: every agent carries a code that says why it is not under test, and the codes
partition the tracks. Selection is a pure function of (scene, case, settings), so evaluation may ask it before a world
exists. Which boxes overlap at the start is not a matter of selection: the contact kernel finds them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import CaseError, SettingsError
from skidpad.scenes.case import SCENE_EGO, Case
from skidpad.scenes.events import Controller, Exclusion
from skidpad.scenes.scene import (
    SUBTYPE_CAR,
    SUBTYPE_STATIC,
    TYPE_CYCLIST,
    TYPE_PEDESTRIAN,
    TYPE_VEHICLE,
    U8,
    Scene,
)
from skidpad.settings.schema import ControllerName, EnvSettings
from skidpad.simulation.overlaps import static_in_path
from skidpad.simulation.random import Purpose, words_array

I32 = NDArray[np.int32]
Bool = NDArray[np.bool_]

CONTROLLERS: dict[str, Controller] = {
    "policy": Controller.POLICY,
    "replay": Controller.REPLAY,
    "idm": Controller.IDM,
    "pdm": Controller.PDM,
    "static": Controller.STATIC,
}

GIGAFLOW_STEPS = 600
START_TRIES = 64


class Span(NamedTuple):
    """The time a world covers.

    start_row  log row of state 0
    steps      actions of an episode
    dt_us      integer microseconds per step
    """

    start_row: int
    steps: int
    dt_us: int


class Population(NamedTuple):
    """The agents of one world; in replay agent n is track n of the scene.

    exists      (N,)    bool  has, or will have, a body
    type        (N,)    u8    as in the scene
    subtype     (N,)    u8
    source_id   (N,)    i64   of the track; the number itself where agents are spawned
    controller  (N,)    u8    skidpad.scenes.events.Controller
    exclusion   (N,)    u8    skidpad.scenes.events.Exclusion
    scored      (M,)    i32   agents under test, ascending
    policy      (Q,)    i32   agents that a policy drives, ascending
    ego                       agent under test in a one-ego world, else -1
    ego_rule                  "scene", "each", "longest_valid", or "" where there is no ego
    spawned                   there is no log: the agents are put onto a bare map
    """

    exists: Bool
    type: U8
    subtype: U8
    source_id: NDArray[np.int64]
    controller: NDArray[np.uint8]
    exclusion: NDArray[np.uint8]
    scored: I32
    policy: I32
    ego: int
    ego_rule: str
    spawned: bool


def step_us(scene: Scene, settings: EnvSettings) -> int:
    """Microseconds per step: the settings', else the log's."""
    return scene.meta.dt_us if settings.dt is None else round(settings.dt * 1e6)


def span(scene: Scene, case: Case, settings: EnvSettings) -> Span:
    """The time a world of this case covers. Raises CaseError where the log is too short for what was asked (S56)."""
    meta = scene.meta
    dt_us = step_us(scene, settings)
    wanted = settings.scenario_length
    if settings.simulation_mode == "gigaflow":
        return Span(0, GIGAFLOW_STEPS if wanted is None else wanted, dt_us)
    start = start_row(scene, case, settings, dt_us)
    rows_left = meta.steps - 1 - start
    available = max(rows_left, 0) * meta.dt_us // dt_us
    steps = available if wanted is None else wanted
    if steps < 1 or (steps > available and not settings.allow_beyond_log):
        asked = "" if wanted is None else f" of the {wanted} asked for"
        raise CaseError(
            f"scene {meta.scene_id}: from row {start} its {meta.steps} rows allow {available} steps of "
            f"{dt_us / 1e6:g} s{asked}. Lower env.init_step or env.scenario_length."
        )
    return Span(start, steps, dt_us)


def most_agents(scene: Scene, settings: EnvSettings) -> int:
    """Agents of the largest world that the scene can have."""
    return settings.max_agents_per_world if settings.simulation_mode == "gigaflow" else scene.tracks.count


def most_states(scene: Scene, settings: EnvSettings) -> int:
    """States of its longest episode, state 0 among them."""
    if settings.scenario_length is not None:
        return settings.scenario_length + 1
    return GIGAFLOW_STEPS + 1 if settings.simulation_mode == "gigaflow" else scene.meta.steps


def start_row(scene: Scene, case: Case, settings: EnvSettings, dt_us: int) -> int:
    """The log row of state 0: `init_step`, or under `init_spread` one drawn by the case from [init_step, T - h], h
    being `horizon_min` or the rows that `scenario_length` needs, whichever is more. A row without the recording vehicle
    is drawn again; raises CaseError where START_TRIES draws found none that has it, or nothing can be drawn."""
    meta = scene.meta
    if not settings.init_spread:
        return settings.init_step
    horizon = settings.horizon_min
    if settings.scenario_length is not None and not settings.allow_beyond_log:
        horizon = max(horizon, -(-settings.scenario_length * dt_us // meta.dt_us) + 1)
    choices = meta.steps - horizon - settings.init_step + 1
    if choices < 1:
        raise CaseError(
            f"scene {meta.scene_id}: no start row in [{settings.init_step}, {meta.steps} - {horizon}]. Lower "
            "env.init_step, env.horizon_min or env.scenario_length."
        )
    for trial in range(START_TRIES):
        row = settings.init_step + _drawn(case, Purpose.START, trial, choices)
        if meta.sdc < 0 or scene.tracks.valid[meta.sdc, row]:
            return row
    raise CaseError(
        f"scene {meta.scene_id}: its recording vehicle is absent at {START_TRIES} rows drawn from "
        f"[{settings.init_step}, {meta.steps - horizon}]. Set env.init_spread = false."
    )


def _drawn(case: Case, purpose: Purpose, index: int, count: int) -> int:
    """An integer in [0, count) of the case."""
    return int(words_array(case.seed, 0, 0, 0, purpose, index)[0]) * count >> 32


def eligible(scene: Scene, settings: EnvSettings) -> I32:
    """Tracks that may be put under test from `init_step` on: of a kind that is tested, valid at the start, not bound to
    their log, with a goal to drive to; ascending (n,) i32."""
    return np.flatnonzero(_exclusions(scene, settings, settings.init_step) == Exclusion.CONTROLLED).astype(np.int32)


def select(
    scene: Scene,
    case: Case,
    settings: EnvSettings,
    *,
    substitute: ControllerName | None = None,
    limit: int | None = None,
) -> Population:
    """Choose who is under test and who drives.

    `substitute` drives the agents under test instead of the policy. `limit` is the number of agents of a bare map, or
    the most agents under test of a log; it stands before the settings'. Raises CaseError where nobody is left to test,
    SettingsError for a controller that the mode does not have.
    """
    if settings.simulation_mode == "gigaflow":
        return _spawned(case, settings, substitute, limit)
    start = start_row(scene, case, settings, step_us(scene, settings))
    exclusion = _exclusions(scene, settings, start)
    ego, rule = _ego(scene, case, settings, exclusion, start)
    candidates = exclusion == Exclusion.CONTROLLED
    if rule:
        chosen = np.zeros_like(candidates)
        chosen[ego] = True
    elif settings.control == "tracks_to_predict":
        chosen = np.isin(np.arange(len(exclusion)), scene.meta.tracks_to_predict)
    else:
        chosen = np.full_like(candidates, settings.control != "none")
    exclusion[candidates & ~chosen] = Exclusion.NOT_SELECTED
    most = settings.max_controlled if limit is None else limit
    drawn = case if settings.limit_rank == "drawn" else None
    exclusion[_beyond(scene, exclusion == Exclusion.CONTROLLED, most, start, drawn)] = Exclusion.OVER_LIMIT
    under_test = exclusion == Exclusion.CONTROLLED
    # S50: with one ego the whole log takes part, also tracks that appear later; otherwise those present at the start.
    valid = scene.tracks.valid
    if rule:
        exists = valid[:, start:].any(axis=1)
    else:
        exists = valid[:, start] if settings.init == "all_valid" else under_test.copy()
    exists = exists & (exclusion != Exclusion.REMOVED_BY_OVERLAP)
    over = _beyond(scene, exists, settings.max_agents, start, drawn, first=under_test)
    exists[over] = False
    exclusion[over & under_test] = Exclusion.OVER_LIMIT
    under_test &= exists
    if not under_test.any() and settings.control != "none":
        raise CaseError(f"scene {scene.meta.scene_id}: nobody to test ({_summary(exclusion)}). Choose another scene.")
    controller = _controllers(scene, settings, under_test, ego if rule else -1, substitute)
    controller[~exists] = Controller.NONE
    return Population(
        exists=exists,
        type=scene.tracks.type,
        subtype=scene.tracks.subtype,
        source_id=scene.tracks.source_id,
        controller=controller,
        exclusion=exclusion,
        scored=np.flatnonzero(under_test).astype(np.int32),
        policy=np.flatnonzero(controller == Controller.POLICY).astype(np.int32),
        ego=ego if rule else -1,
        ego_rule=rule,
        spawned=False,
    )


def with_goals(population: Population) -> I32:
    """Agents that have goals: those under test, then others that a policy drives on a bare map; (K,) i32. In a log
    whom nobody tests needs none: it has its log."""
    if not population.spawned:
        return population.scored
    return np.concatenate([population.scored, np.setdiff1d(population.policy, population.scored)]).astype(np.int32)


def _spawned(case: Case, settings: EnvSettings, substitute: ControllerName | None, limit: int | None) -> Population:
    """The agents of a bare map (S48): vehicles 0, 1, ..., the first of them the ego where `control` is "sdc". How many
    is drawn by the case from [min_agents_per_world, max_agents_per_world], unless `limit` says."""
    low, high = settings.min_agents_per_world, settings.max_agents_per_world
    count = limit
    if count is None:
        count = low + _drawn(case, Purpose.POPULATION, 0, high - low + 1)
    if case.ego != SCENE_EGO and case.ego >= count:
        raise CaseError(f"case {case.id}: ego {case.ego} is not among the {count} agents of its world")
    one_ego = case.ego != SCENE_EGO or settings.control == "sdc"
    ego = max(case.ego, 0) if one_ego else -1
    under_test = np.full(count, settings.control != "none")
    if one_ego:
        under_test[:] = np.arange(count) == ego
    if settings.control == "tracks_to_predict":
        raise SettingsError('env.control = "tracks_to_predict" needs a log; on a bare map use "vehicles" or "sdc"')
    controller = np.full(count, CONTROLLERS[settings.vehicle_controller], np.uint8)
    controller[max(ego, 0)] = CONTROLLERS[settings.sdc_controller] if one_ego else controller[0]
    if substitute is not None:
        controller[under_test & (controller == Controller.POLICY)] = CONTROLLERS[substitute]
    if (controller == Controller.REPLAY).any():
        raise SettingsError('"replay" needs a log, and a bare map has none: let policy, idm, pdm or static drive')
    return Population(
        exists=np.ones(count, np.bool_),
        type=np.full(count, TYPE_VEHICLE, np.uint8),
        subtype=np.full(count, SUBTYPE_CAR, np.uint8),
        source_id=np.arange(count),
        controller=controller,
        exclusion=np.where(under_test, Exclusion.CONTROLLED, Exclusion.NOT_SELECTED).astype(np.uint8),
        scored=np.flatnonzero(under_test).astype(np.int32),
        policy=np.flatnonzero(controller == Controller.POLICY).astype(np.int32),
        ego=ego,
        ego_rule="" if not one_ego else "each" if case.ego != SCENE_EGO else "scene",
        spawned=True,
    )


def _exclusions(scene: Scene, settings: EnvSettings, start: int) -> NDArray[np.uint8]:
    """First reason, in the order of the codes, why each track cannot be under test from row `start` on; CONTROLLED
    where there is none. Whoever is taken out of the world by `drop_static_in_path` has that as its reason."""
    tracks = scene.tracks
    if start >= scene.meta.steps:
        raise CaseError(f"scene {scene.meta.scene_id} has {scene.meta.steps} rows; env.init_step is {start}")
    away = np.hypot(tracks.goal[:, 0] - tracks.x[:, start], tracks.goal[:, 1] - tracks.y[:, start])
    usable = tracks.goal_valid & (away > settings.goal_radius)
    if settings.goal_source in ("route", "map", "none"):  # The log's own goal is not used.
        usable = np.ones_like(usable)
    right_type = (tracks.type == TYPE_VEHICLE) & (tracks.subtype != SUBTYPE_STATIC)
    if settings.control == "agents":
        right_type |= (tracks.type == TYPE_PEDESTRIAN) | (tracks.type == TYPE_CYCLIST)
    exclusion = np.full(tracks.count, Exclusion.CONTROLLED, np.uint8)
    # Written from the last reason to the first, so that the first one stands.
    exclusion[~usable] = Exclusion.NO_GOAL
    exclusion[tracks.expert] = Exclusion.EXPERT
    exclusion[~right_type] = Exclusion.WRONG_TYPE
    exclusion[~tracks.valid[:, start]] = Exclusion.NOT_VALID_AT_START
    if settings.drop_static_in_path:
        exclusion[static_in_path(scene)] = Exclusion.REMOVED_BY_OVERLAP
    return exclusion


def _ego(scene: Scene, case: Case, settings: EnvSettings, exclusion: NDArray[np.uint8], start: int) -> tuple[int, str]:
    """The one agent under test and the rule that chose it (E66); (-1, "") where several are."""
    meta, tracks = scene.meta, scene.tracks
    if case.ego != SCENE_EGO:
        ego, rule = case.ego, "each"
    elif settings.control != "sdc":
        return -1, ""
    elif meta.sdc >= 0:
        ego, rule = meta.sdc, "scene"
    else:
        candidates = np.flatnonzero(exclusion == Exclusion.CONTROLLED)
        if len(candidates) == 0:
            raise CaseError(
                f"scene {meta.scene_id} names no ego and has no vehicle to choose ({_summary(exclusion)}). "
                "Choose another scene."
            )
        lasts = [_valid_run(tracks.valid[track, start:]) for track in candidates]
        order = sorted(zip(lasts, candidates, strict=True), key=lambda item: (-item[0], int(tracks.source_id[item[1]])))
        return int(order[0][1]), "longest_valid"
    if not 0 <= ego < tracks.count:
        raise CaseError(f"scene {meta.scene_id}: ego {ego} is not among its {tracks.count} tracks")
    reason = Exclusion(int(exclusion[ego]))
    if reason != Exclusion.CONTROLLED:
        raise CaseError(
            f"scene {meta.scene_id}: ego track {ego} (id {tracks.source_id[ego]}) cannot be tested from row "
            f"{start}: {reason.name.lower().replace('_', ' ')}. Choose another ego or start row."
        )
    return ego, rule


def _valid_run(valid: Bool) -> int:
    """Rows from the first on without a gap."""
    gaps = np.flatnonzero(~valid)
    return int(gaps[0]) if len(gaps) else len(valid)


def _beyond(
    scene: Scene, chosen: Bool, limit: int | None, start: int, drawn: Case | None, *, first: Bool | None = None
) -> Bool:
    """Those among `chosen` (N,) that a limit leaves out, by rank: those in `first`, then the recording vehicle, tracks
    to predict, and by distance to it, or by a draw of the case `drawn` for each track's source id (S52)."""
    beyond = np.zeros_like(chosen)
    tracks_chosen = np.flatnonzero(chosen)
    if limit is None or len(tracks_chosen) <= limit:
        return beyond
    meta, tracks = scene.meta, scene.tracks
    x, y = tracks.x[:, start].astype(np.float64), tracks.y[:, start].astype(np.float64)
    if meta.sdc >= 0 and tracks.valid[meta.sdc, start]:
        middle = x[meta.sdc], y[meta.sdc]
    else:  # The mean over everybody chosen does not depend on the order of the file beyond its last bits.
        middle = float(np.sort(x[tracks_chosen]).mean()), float(np.sort(y[tracks_chosen]).mean())
    predicted = set(meta.tracks_to_predict)
    if drawn is None:
        order = np.hypot(x - middle[0], y - middle[1])
    else:
        name = tracks.source_id.astype(np.uint64) & np.uint64(0xFFFFFFFF)
        order = words_array(drawn.seed, 0, name, 0, Purpose.POPULATION, 1)[0].astype(np.float64)

    def rank(track: int) -> tuple[bool, bool, bool, float, int]:
        later = first is not None and not first[track]
        return later, track != meta.sdc, track not in predicted, float(order[track]), int(tracks.source_id[track])

    beyond[sorted(tracks_chosen.tolist(), key=rank)[limit:]] = True
    return beyond


def _controllers(
    scene: Scene, settings: EnvSettings, under_test: Bool, ego: int, substitute: ControllerName | None
) -> NDArray[np.uint8]:
    """Who drives each track (S49): by class, the ego (else the scene's recording vehicle) being a class of its own."""
    tracks = scene.tracks
    is_vehicle = (tracks.type == TYPE_VEHICLE) & (tracks.subtype != SUBTYPE_STATIC)
    others = settings.other_controller
    if others == "auto":  # Planners drive cars: beside them pedestrians and cyclists keep to their log.
        others = "replay" if settings.vehicle_controller in ("idm", "pdm") else settings.vehicle_controller
    controller = np.where(is_vehicle, CONTROLLERS[settings.vehicle_controller], CONTROLLERS[others]).astype(np.uint8)
    recording = ego if ego >= 0 else scene.meta.sdc
    if recording >= 0:
        controller[recording] = CONTROLLERS[settings.sdc_controller]
    # A vehicle that the file binds to its log stays on it, whoever drives the others.
    controller[tracks.expert] = Controller.REPLAY
    asked_for_policy = controller == Controller.POLICY
    controller[asked_for_policy & ~under_test] = Controller.REPLAY
    if substitute is not None:
        controller[asked_for_policy & under_test] = CONTROLLERS[substitute]
    return controller


def _summary(exclusion: NDArray[np.uint8]) -> str:
    codes, counts = np.unique(exclusion, return_counts=True)
    parts = [f"{n} {Exclusion(int(c)).name.lower().replace('_', ' ')}" for c, n in zip(codes, counts, strict=True)]
    return ", ".join(parts) if parts else "it has no tracks"
