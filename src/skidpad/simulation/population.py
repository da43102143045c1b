"""Who is in a world, who is under test, and who drives whom: replay selection (S50 to S54).

Nothing is capped silently: every track of the scene carries a code that says why it is not under test, and the codes
partition the tracks. Selection is a pure function of (scene, case, settings), so evaluation may ask it before a world
exists. Which boxes overlap at the start is not a matter of selection: the contact kernel finds them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import CaseError
from skidpad.scenes.case import SCENE_EGO, Case
from skidpad.scenes.events import Controller, Exclusion
from skidpad.scenes.scene import SUBTYPE_STATIC, TYPE_VEHICLE, Scene
from skidpad.settings.schema import ControllerName, EnvSettings

I32 = NDArray[np.int32]
Bool = NDArray[np.bool_]

CONTROLLERS: dict[str, Controller] = {
    "policy": Controller.POLICY,
    "replay": Controller.REPLAY,
    "idm": Controller.IDM,
    "static": Controller.STATIC,
}


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
    """The agents of one world; agent n is track n of the scene.

    exists      (N,)    bool  has, or will have, a body
    controller  (N,)    u8    skidpad.scenes.events.Controller
    exclusion   (N,)    u8    skidpad.scenes.events.Exclusion
    scored      (M,)    i32   agents under test, ascending
    policy      (Q,)    i32   agents that a policy drives, ascending
    ego                       agent under test in a one-ego world, else -1
    ego_rule                  "scene", "each", "longest_valid", or "" where there is no ego
    """

    exists: Bool
    controller: NDArray[np.uint8]
    exclusion: NDArray[np.uint8]
    scored: I32
    policy: I32
    ego: int
    ego_rule: str


def span(scene: Scene, settings: EnvSettings) -> Span:
    """How long a world of this scene runs. Raises CaseError where the log is too short for what was asked (S56)."""
    meta = scene.meta
    dt_us = meta.dt_us if settings.dt is None else round(settings.dt * 1e6)
    rows_left = meta.steps - 1 - settings.init_step
    available = max(rows_left, 0) * meta.dt_us // dt_us
    steps = available if settings.scenario_length is None else settings.scenario_length
    if steps < 1 or steps > available:
        asked = "" if settings.scenario_length is None else f" of the {settings.scenario_length} asked for"
        raise CaseError(
            f"scene {meta.scene_id}: from row {settings.init_step} its {meta.steps} rows allow {available} steps of "
            f"{dt_us / 1e6:g} s{asked}. Lower env.init_step or env.scenario_length."
        )
    return Span(settings.init_step, steps, dt_us)


def eligible(scene: Scene, settings: EnvSettings) -> I32:
    """Tracks that may be put under test: vehicles valid at the start row, not bound to their log, with a goal to drive
    to; ascending (n,) i32."""
    return np.flatnonzero(_exclusions(scene, settings) == Exclusion.CONTROLLED).astype(np.int32)


def select(scene: Scene, case: Case, settings: EnvSettings, *, substitute: ControllerName | None = None) -> Population:
    """Choose who is under test and who drives.

    `substitute` drives the agents under test instead of the policy. Raises CaseError where nobody is left to test.
    """
    exclusion = _exclusions(scene, settings)
    ego, rule = _ego(scene, case, settings, exclusion)
    candidates = exclusion == Exclusion.CONTROLLED
    if rule:
        chosen = np.zeros_like(candidates)
        chosen[ego] = True
    elif settings.control == "tracks_to_predict":
        chosen = np.isin(np.arange(len(exclusion)), scene.meta.tracks_to_predict)
    else:
        chosen = np.ones_like(candidates)
    exclusion[candidates & ~chosen] = Exclusion.NOT_SELECTED
    _limit(scene, settings, exclusion)
    under_test = exclusion == Exclusion.CONTROLLED
    if not under_test.any():
        raise CaseError(f"scene {scene.meta.scene_id}: nobody to test ({_summary(exclusion)}). Choose another scene.")

    start = settings.init_step
    # S50: with one ego the whole log takes part, also tracks that appear later; otherwise those present at the start.
    valid = scene.tracks.valid
    exists = np.asarray(valid[:, start:].any(axis=1) if rule else valid[:, start])
    controller = _controllers(scene, settings, under_test, ego if rule else -1, substitute)
    controller[~exists] = Controller.NONE
    return Population(
        exists=exists,
        controller=controller,
        exclusion=exclusion,
        scored=np.flatnonzero(under_test).astype(np.int32),
        policy=np.flatnonzero(controller == Controller.POLICY).astype(np.int32),
        ego=ego if rule else -1,
        ego_rule=rule,
    )


def _exclusions(scene: Scene, settings: EnvSettings) -> NDArray[np.uint8]:
    """First reason, in the order of the codes, why each track cannot be under test; CONTROLLED where there is none."""
    tracks, start = scene.tracks, settings.init_step
    if start >= scene.meta.steps:
        raise CaseError(f"scene {scene.meta.scene_id} has {scene.meta.steps} rows; env.init_step is {start}")
    away = np.hypot(tracks.goal[:, 0] - tracks.x[:, start], tracks.goal[:, 1] - tracks.y[:, start])
    exclusion = np.full(tracks.count, Exclusion.CONTROLLED, np.uint8)
    # Written from the last reason to the first, so that the first one stands.
    exclusion[~tracks.goal_valid | ~(away > settings.goal_radius)] = Exclusion.NO_GOAL
    exclusion[tracks.expert] = Exclusion.EXPERT
    exclusion[(tracks.type != TYPE_VEHICLE) | (tracks.subtype == SUBTYPE_STATIC)] = Exclusion.WRONG_TYPE
    exclusion[~tracks.valid[:, start]] = Exclusion.NOT_VALID_AT_START
    return exclusion


def _ego(scene: Scene, case: Case, settings: EnvSettings, exclusion: NDArray[np.uint8]) -> tuple[int, str]:
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
        lasts = [_valid_run(tracks.valid[track, settings.init_step :]) for track in candidates]
        order = sorted(zip(lasts, candidates, strict=True), key=lambda item: (-item[0], int(tracks.source_id[item[1]])))
        return int(order[0][1]), "longest_valid"
    if not 0 <= ego < tracks.count:
        raise CaseError(f"scene {meta.scene_id}: ego {ego} is not among its {tracks.count} tracks")
    reason = Exclusion(int(exclusion[ego]))
    if reason != Exclusion.CONTROLLED:
        raise CaseError(
            f"scene {meta.scene_id}: ego track {ego} (id {tracks.source_id[ego]}) cannot be tested from row "
            f"{settings.init_step}: {reason.name.lower().replace('_', ' ')}. Choose another ego or start row."
        )
    return ego, rule


def _valid_run(valid: Bool) -> int:
    """Rows from the first on without a gap."""
    gaps = np.flatnonzero(~valid)
    return int(gaps[0]) if len(gaps) else len(valid)


def _limit(scene: Scene, settings: EnvSettings, exclusion: NDArray[np.uint8]) -> None:
    """Keep `max_controlled` by rank: the recording vehicle, tracks to predict, then distance to it (S52)."""
    chosen = np.flatnonzero(exclusion == Exclusion.CONTROLLED)
    limit = settings.max_controlled
    if limit is None or len(chosen) <= limit:
        return
    meta, tracks, start = scene.meta, scene.tracks, settings.init_step
    x, y = tracks.x[:, start].astype(np.float64), tracks.y[:, start].astype(np.float64)
    if meta.sdc >= 0 and tracks.valid[meta.sdc, start]:
        middle = x[meta.sdc], y[meta.sdc]
    else:  # The mean over everybody chosen does not depend on the order of the file beyond its last bits.
        middle = float(np.sort(x[chosen]).mean()), float(np.sort(y[chosen]).mean())
    predicted = set(meta.tracks_to_predict)

    def rank(track: int) -> tuple[bool, bool, float, int]:
        distance = float(np.hypot(x[track] - middle[0], y[track] - middle[1]))
        return track != meta.sdc, track not in predicted, distance, int(tracks.source_id[track])

    for track in sorted((int(track) for track in chosen), key=rank)[limit:]:
        exclusion[track] = Exclusion.OVER_LIMIT


def _controllers(
    scene: Scene, settings: EnvSettings, under_test: Bool, ego: int, substitute: ControllerName | None
) -> NDArray[np.uint8]:
    """Who drives each track (S49): by class, the ego (else the scene's recording vehicle) being a class of its own."""
    tracks = scene.tracks
    is_vehicle = (tracks.type == TYPE_VEHICLE) & (tracks.subtype != SUBTYPE_STATIC)
    controller = np.where(
        is_vehicle, CONTROLLERS[settings.vehicle_controller], CONTROLLERS[settings.other_controller]
    ).astype(np.uint8)
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
