"""SceneBuilder: what a reader hands over, in float64 and in its own ids, becomes the arrays of a Scene.

A reader calls `lane`, `connect`, `line`, `edge`, `area`, `signal` and `track` in file order and then `finish`. The
builder checks the limits, drops and counts what cannot be kept, recentres, and writes the tables of `scene.py`. It
knows no file format; a reader knows no array layout.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skidpad.errors import FormatError
from skidpad.scenes.assembly import clean_others, derived_edges, pack_road, resolve
from skidpad.scenes.formats import derive
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.frame import recentre
from skidpad.scenes.loss import LossReport
from skidpad.scenes.pieces import LanePiece, OtherPiece, Pieces, SignalPiece, TrackRows
from skidpad.scenes.polyline import F64
from skidpad.scenes.routes import match_routes
from skidpad.scenes.rows import ROW_FIELDS, kept_tracks, pack_rows
from skidpad.scenes.scene import (
    AREA_UNKNOWN,
    EDGE_UNKNOWN,
    LANE_FREEWAY,
    LANE_STREET,
    LANE_WIDTH_UNKNOWN,
    LINE_UNKNOWN,
    SIGNAL_LIGHT,
    SIGNAL_STOP,
    SIGNAL_YIELD,
    STATE_OFF,
    UNKNOWN_LANE_WIDTH_M,
    Scene,
    SceneMeta,
    Tracks,
)
from skidpad.scenes.stop_lines import pack_signals

_LARGEST = float(np.finfo(np.float32).max)  # of what a scene keeps in single precision
SIGNAL_KINDS = (SIGNAL_LIGHT, SIGNAL_STOP, SIGNAL_YIELD)
__all__ = ["LossReport", "SceneBuilder"]


class SceneBuilder:
    """Collects one scene in world coordinates (float64, metres, radians) and the file's own ids.

    scene_id        name of the scene
    dataset         name of the data set it belongs to
    source_format   name of the reader
    source_version  version that the file claims
    source_digest   digest of the source bytes
    dt_us           integer microseconds between rows
    loss            where losses are counted; the reader counts into the same report
    limits          bounds (R3)
    """

    def __init__(
        self,
        scene_id: str,
        dataset: str,
        source_format: str,
        source_version: str,
        source_digest: str,
        dt_us: int = 100_000,
        *,
        loss: LossReport | None = None,
        limits: Limits | None = None,
    ) -> None:
        if dt_us <= 0:
            raise FormatError(f"scene {scene_id}: {dt_us} us between rows, expected a positive time.")
        self.loss = loss if loss is not None else LossReport()
        self.limits = limits if limits is not None else Limits()
        self._where = f"scene {scene_id}"
        self._identity = (scene_id, dataset, source_format, source_version, source_digest)
        self._dt_us = dt_us
        self._points = 0
        self._pieces = Pieces()
        self._junctions: dict[Hashable, int] = {}

    # What a reader calls

    def lane(
        self,
        key: Hashable,
        centre: ArrayLike,
        *,
        width: ArrayLike | None = None,
        kind: int,
        source_id: int = -1,
        speed_limit: float | None = None,
        drivable: bool | None = None,
        junction: Hashable | None = None,
        left: ArrayLike | None = None,
        right: ArrayLike | None = None,
        flags: int = 0,
    ) -> None:
        """Add a lane, in driving direction.

        key          the reader's own name of the lane, for `connect`, `neighbours` and `signal`
        centre       (n, 2) or (n, 3)  f64 [m]  centre line
        width        (n,) or scalar  f64 [m]  full width at the centre points; None = from the borders, else unknown
        kind         lane type, 0-9
        speed_limit  [m/s]  None = unknown
        drivable     None = by type: freeway and street
        junction     the reader's own name of the junction group
        left, right  (m, 2 or 3)  f64 [m]  borders in driving direction; without them the borders are width / 2 away
        flags        LANE_BUILT_BY_READER where the file holds no such lane

        Raises FormatError for a doubled key, a non-finite number or a limit; ValueError for wrong shapes.
        """
        name = f"{self._where}: lane {key!r}"
        if key in self._pieces.lane_of_key:
            raise FormatError(f"{name} is there twice, expected unique ids. Re-export the map.")
        if not 0 <= kind < LINE_UNKNOWN:
            raise ValueError(f"{name}: type {kind} is not a lane type (0-9)")
        self.limits.check("lanes", len(self._pieces.lanes) + 1, self._where)
        shape = self._shape(centre, f"{name}, centre line")
        left_border = None if left is None else self._shape(left, f"{name}, left border")
        right_border = None if right is None else self._shape(right, f"{name}, right border")
        widths, flags = self._widths(name, shape, width, left_border, right_border, flags)
        if speed_limit is not None and not 0.0 < speed_limit <= _LARGEST:
            raise FormatError(f"{name}: speed limit {speed_limit} m/s, expected a positive number.")
        self._pieces.lane_of_key[key] = len(self._pieces.lanes)
        self._pieces.lanes.append(
            LanePiece(
                key=key,
                centre=shape,
                width=widths,
                left=left_border,
                right=right_border,
                kind=kind,
                source_id=source_id,
                speed_limit=np.nan if speed_limit is None else speed_limit,
                drivable=kind in (LANE_FREEWAY, LANE_STREET) if drivable is None else drivable,
                junction=self._junction(junction),
                flags=flags,
            )
        )

    def connect(self, from_key: Hashable, to_key: Hashable) -> None:
        """One drives straight on from the first lane into the second. Said from either side or both: it counts once.

        Keys may be named before or after their lanes; those never added are dropped and counted by `finish`.
        """
        self._pieces.links[from_key, to_key] = None

    def neighbours(self, left_key: Hashable, right_key: Hashable) -> None:
        """Two lanes of the same direction touch, the first on the left of the second. Keys as in `connect`."""
        self._pieces.neighbours[left_key, right_key] = None

    def line(self, points: ArrayLike, kind: int, source_id: int = -1) -> None:
        """Add a painted line: points (n, 2 or 3) f64 [m], kind 10-19."""
        self._other(points, kind, source_id, "line", LINE_UNKNOWN)

    def edge(self, points: ArrayLike, kind: int, source_id: int = -1) -> None:
        """Add a road edge: points (n, 2 or 3) f64 [m], kind 20-29. The order of points is kept."""
        self._other(points, kind, source_id, "edge", EDGE_UNKNOWN)

    def area(self, points: ArrayLike, kind: int, source_id: int = -1) -> None:
        """Add a polygon: points (n, 2 or 3) f64 [m], closed or not, kind 30-39."""
        self._other(points, kind, source_id, "area", AREA_UNKNOWN)

    def signal(
        self,
        kind: int,
        lanes: Sequence[Hashable],
        *,
        line: ArrayLike | None = None,
        point: ArrayLike | None = None,
        heading: float | None = None,
        junction: Hashable | None = None,
        phase: int = -1,
        states: ArrayLike | None = None,
        cycle_offset: float = 0.0,
        program: Sequence[tuple[float, int]] = (),
    ) -> None:
        """Add a light, stop sign or yield that controls lanes.

        kind          1 light, 2 stop sign, 3 yield
        lanes         keys of the controlled lanes
        line          (2, 2 or 3)  f64 [m]  stop-line end points; turned left to right when they come the other way
        point         (2 or 3,)  f64 [m]  where the line crosses the lane; with neither, at the end of the first lane
        heading       [rad]  direction of travel; None = of the first controlled lane there
        states        (T,)  u8  logged states; None = unknown throughout
        cycle_offset  [s]  time at which the programme starts its first phase
        program       phases as (duration [s], state)

        Raises FormatError for a non-finite number or a limit; ValueError for wrong shapes and codes.
        """
        index = len(self._pieces.signals)
        name = f"{self._where}: signal {index}"
        if kind not in SIGNAL_KINDS:
            raise ValueError(f"{name}: kind {kind}, expected 1 light, 2 stop sign or 3 yield")
        self.limits.check("signals", index + 1, self._where)
        self.limits.check("program_phases", len(program), name)
        numbers = [cycle_offset, *(duration for duration, _ in program), *([] if heading is None else [heading])]
        if not np.all(np.isfinite(numbers)) or any(duration <= 0.0 for duration, _ in program):
            raise FormatError(f"{name}: its times {numbers} are not all finite, with positive durations.")
        series = None if states is None else np.asarray(states, np.uint8)
        if (series is not None and (series > STATE_OFF).any()) or any(
            not 0 <= code <= STATE_OFF for _, code in program
        ):
            raise ValueError(f"{name}: states must be 0-4")
        piece = SignalPiece(
            kind=kind,
            keys=tuple(dict.fromkeys(lanes)),
            line=None if line is None else self._shape(line, f"{name}, stop line"),
            point=None if point is None else self._shape(np.asarray(point)[None], f"{name}, position")[0],
            heading=heading,
            junction=self._junction(junction),
            phase=phase,
            states=series,
            cycle_offset=cycle_offset,
            program=list(program),
        )
        if piece.line is not None and len(piece.line) != 2:
            raise ValueError(f"{name}: a stop line has 2 end points, not {len(piece.line)}")
        self._pieces.signals.append(piece)

    def track(
        self,
        source_id: int,
        type: int,
        subtype: int,
        *,
        x: ArrayLike,
        y: ArrayLike,
        z: ArrayLike | None = None,
        heading: ArrayLike,
        vx: ArrayLike | None = None,
        vy: ArrayLike | None = None,
        length: ArrayLike,
        width: ArrayLike,
        height: ArrayLike,
        valid: ArrayLike,
        goal: ArrayLike | None = None,
        expert: bool = False,
    ) -> int:
        """Add a track of T rows and return its index, by which `finish` is told of the SDC and others.

        x y z heading        (T,)  f64 [m], [rad]  centre of the box; z None = unknown
        vx vy                (T,)  f64 [m/s]  None = central differences of the valid rows
        length width height  (T,) or scalar  f64 [m]
        valid                (T,)  bool
        goal                 (2 or 3,)  f64 [m]  None, or not finite = the last valid position

        Raises FormatError for a limit; ValueError for wrong shapes.
        """
        index = len(self._pieces.tracks)
        mask = np.array(valid, np.bool_)
        steps = len(mask)
        self.limits.check("tracks", index + 1, self._where)
        self.limits.check("rows", steps, self._where)
        self.limits.check("track_rows", (index + 1) * steps, self._where)
        if self._pieces.tracks and steps != len(self._pieces.tracks[0].valid):
            raise ValueError(f"track {source_id} has {steps} rows, the others {len(self._pieces.tracks[0].valid)}")
        columns = dict(zip(ROW_FIELDS, (x, y, z, heading, vx, vy, length, width, height), strict=True))
        values = {}
        for name, column in columns.items():
            values[name] = np.array(np.broadcast_to(0.0 if column is None else np.asarray(column, float), (steps,)))
        has_velocity = vx is not None and vy is not None
        end = None if goal is None else np.append(np.asarray(goal, float), 0.0)[:3]
        if end is not None and not np.isfinite(end).all():
            self.loss.count("dropped_goal", f"track {source_id}: its goal is not finite")
            end = None
        if end is not None:
            self.limits.check("coordinate_m", float(np.abs(end).max()), f"goal of track {source_id}")
        self._pieces.tracks.append(TrackRows(source_id, type, subtype, expert, values, mask, end, has_velocity))
        return index

    def finish(
        self,
        *,
        has_z: bool,
        edges_from_borders: bool = False,
        current_step: int = 0,
        sdc: int = -1,
        tracks_to_predict: Iterable[int] = (),
        objects_of_interest: Iterable[int] = (),
        labels: Mapping[str, Any] | None = None,
        licence: str = "",
        attribution: str = "",
    ) -> Scene:
        """Make the scene: recentred, cleaned, with graph, signals, routes and goals. The builder is used up.

        has_z                do heights mean anything; without, all are 0
        edges_from_borders   build edges from the outer lane borders (R10a), for formats that have none
        sdc, tracks_to_predict, objects_of_interest   indices returned by `track`

        Raises FormatError for a limit, or a scene with neither map nor tracks.
        """
        pieces, where = self._pieces, self._where
        if not pieces.lanes and not pieces.others and not pieces.tracks:
            raise FormatError(f"{where}: neither lanes nor tracks, expected at least one of them.")
        steps = self._steps()
        if not 0 <= current_step < steps:
            raise FormatError(f"{where}: current step {current_step} is not one of its {steps} rows.")
        kept = kept_tracks(pieces.tracks, self._dt_us * 1e-6, self.loss)
        origin = recentre(pieces, has_z=has_z, limits=self.limits, where=where)
        resolved = resolve(pieces, self.loss)
        others = clean_others(pieces.others, self.loss)
        if edges_from_borders:
            others += derived_edges(resolved.lanes, self.loss)
        road = pack_road(resolved.lanes, others, resolved.exits, resolved.neighbours, self.loss)
        signals = pack_signals(resolved.signals, resolved.lanes, steps, self.loss)
        columns = pack_rows([pieces.tracks[number] for number in kept], steps, origin)
        route_offset, route_lane, visited = match_routes(road, columns)
        tracks = Tracks(**columns, route_offset=route_offset, route_lane=route_lane, route_gt_lanes=visited)
        recording = self._renumbered([sdc] if sdc >= 0 else [], kept, "sdc")
        scene_id, dataset, source_format, source_version, source_digest = self._identity
        meta = SceneMeta(
            scene_id=scene_id,
            dataset=dataset,
            source_format=source_format,
            source_version=source_version,
            source_digest=source_digest,
            dt_us=self._dt_us,
            steps=steps,
            current_step=current_step,
            origin=(float(origin[0]), float(origin[1]), float(origin[2])),
            has_z=has_z,
            sdc=recording[0] if recording else -1,
            tracks_to_predict=self._renumbered(tracks_to_predict, kept, "track_to_predict"),
            objects_of_interest=self._renumbered(objects_of_interest, kept, "object_of_interest"),
            labels=dict(labels or {}),
            licence=licence,
            attribution=attribution,
            loss=self.loss.entries(),
        )
        return Scene(road, tracks, signals, meta)

    def _steps(self) -> int:
        """Rows of the scene: of its tracks, else of its signal states, else one."""
        pieces = self._pieces
        series = [len(signal.states) for signal in pieces.signals if signal.states is not None]
        steps = len(pieces.tracks[0].valid) if pieces.tracks else max(series, default=1)
        if any(length != steps for length in series):
            raise ValueError(f"signal states of {sorted(set(series))} rows in a scene of {steps} rows")
        return steps

    def _renumbered(self, tracks: Iterable[int], kept: list[int], what: str) -> tuple[int, ...]:
        """Numbers that `track` returned, as tracks of the scene; those of dropped tracks are counted."""
        number = {track: row for row, track in enumerate(kept)}
        chosen = []
        for track in tracks:
            if track in number:
                chosen.append(number[track])
            else:
                self.loss.count(f"dropped_{what}", f"track number {track} is not in the scene")
        return tuple(dict.fromkeys(chosen))

    # What the calls above share

    def _shape(self, points: ArrayLike, name: str) -> F64:
        """Points as (n, 3) f64, counted and checked to be finite and within the coordinate limit."""
        given = np.array(points, float)
        if given.ndim != 2 or given.shape[1] not in (2, 3):
            raise ValueError(f"{name}: points of shape {given.shape}, expected (n, 2) or (n, 3)")
        if not len(given):
            raise FormatError(f"{name} has no points, expected at least one.")
        self._points += len(given)
        self.limits.check("map_points", self._points, self._where)
        bad = np.flatnonzero(~np.isfinite(given).all(axis=1))
        if len(bad):
            raise FormatError(f"{name}: point {bad[0]} is {given[bad[0]].tolist()}, expected finite numbers.")
        self.limits.check("coordinate_m", float(np.abs(given).max()), name)
        return given if given.shape[1] == 3 else np.column_stack([given, np.zeros(len(given))])

    def _widths(
        self, name: str, centre: F64, width: ArrayLike | None, left: F64 | None, right: F64 | None, flags: int
    ) -> tuple[F64, int]:
        """Widths at the centre points, and the flags with LANE_WIDTH_UNKNOWN where they are a guess."""
        if width is not None:
            given = np.array(np.broadcast_to(np.asarray(width, float), (len(centre),)))
            bad = np.flatnonzero(~((given >= 0.0) & (given <= _LARGEST)))
            if len(bad):
                raise FormatError(f"{name}: width {given[bad[0]]} m at point {bad[0]}, expected a number from 0.")
            return given, flags
        if left is not None and right is not None:
            return derive.widths_from_borders(centre, left, right), flags
        self.loss.count("assumed_lane_width", f"{name}: {UNKNOWN_LANE_WIDTH_M} m")
        return np.full(len(centre), UNKNOWN_LANE_WIDTH_M), flags | LANE_WIDTH_UNKNOWN

    def _other(self, points: ArrayLike, kind: int, source_id: int, what: str, first_kind: int) -> None:
        if not first_kind <= kind < first_kind + 10:
            raise ValueError(f"{self._where}: type {kind} is not a type of {what} ({first_kind}-{first_kind + 9})")
        self.limits.check("elements", len(self._pieces.lanes) + len(self._pieces.others) + 1, self._where)
        self._pieces.others.append(
            OtherPiece(self._shape(points, f"{self._where}: {what} {source_id}"), kind, source_id)
        )

    def _junction(self, key: Hashable | None) -> int:
        return -1 if key is None else self._junctions.setdefault(key, len(self._junctions))
