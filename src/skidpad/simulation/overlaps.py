"""Parked tracks that others drive through: they stand where the recording put them, which was not quite where they were
(S54)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.scene import Scene

Bool = NDArray[np.bool_]

MOVES_M = 0.5  # a track that never gets further from its first place never moves
_found: dict[str, Bool] = {}


def static_in_path(scene: Scene) -> Bool:
    """Tracks that never move and that a moving track overlaps in some row: (N,) bool, read-only, computed once per
    scene. The recording vehicle and the tracks to predict always stay."""
    known = _found.get(scene.digest)
    if known is None:
        known = _found.setdefault(scene.digest, _search(scene))
    return known


def _search(scene: Scene) -> Bool:
    tracks = scene.tracks
    first = np.maximum(tracks.first, 0)
    everyone = np.arange(tracks.count)
    away = np.hypot(tracks.x - tracks.x[everyone, first][:, None], tracks.y - tracks.y[everyone, first][:, None])
    moves = (np.where(tracks.valid, away, 0.0) > MOVES_M).any(axis=1)
    kept = np.isin(everyone, [scene.meta.sdc, *scene.meta.tracks_to_predict])
    found = np.zeros(tracks.count, np.bool_)
    for parked in np.flatnonzero(~moves & ~kept & tracks.valid.any(axis=1)):
        both = tracks.valid[moves] & tracks.valid[parked]
        found[parked] = bool((both & _overlap(scene, np.flatnonzero(moves), int(parked))).any())
    found.flags.writeable = False
    return found


def _overlap(scene: Scene, movers: NDArray[np.intp], parked: int) -> Bool:
    """(M, T) bool: do the boxes of tracks overlap that of one other, row by row? Separating axes of both."""
    tracks = scene.tracks

    def box(track: NDArray[np.intp] | int) -> tuple[NDArray[np.float64], ...]:
        columns = tracks.x, tracks.y, tracks.heading, tracks.length, tracks.width
        return tuple(column[track].astype(np.float64) for column in columns)

    x, y, heading, length, width = box(movers)
    px, py, p_heading, p_length, p_width = box(parked)
    turn = heading - p_heading
    c, s = np.abs(np.cos(turn)), np.abs(np.sin(turn))
    dx, dy = px - x, py - y
    overlap = np.ones(x.shape, np.bool_)
    for angle, half_length, half_width, other_length, other_width in (
        (heading, length / 2, width / 2, p_length / 2, p_width / 2),
        (p_heading, p_length / 2, p_width / 2, length / 2, width / 2),
    ):
        along = np.abs(dx * np.cos(angle) + dy * np.sin(angle))
        aside = np.abs(dy * np.cos(angle) - dx * np.sin(angle))
        overlap &= along < half_length + other_length * c + other_width * s
        overlap &= aside < half_width + other_length * s + other_width * c
    return overlap
