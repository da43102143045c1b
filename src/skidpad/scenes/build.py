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

from skidpad.scenes.formats.source import Limits
from skidpad.scenes.scene import LossEntry, Scene

LOSS_PREFIXES = ("dropped_", "repaired_", "assumed_", "ignored_", "unknown_")
LOSS_EXAMPLES = 5
LOSS_EXAMPLE_LENGTH = 200


class LossReport:
    """What a reader dropped, repaired, assumed, ignored or did not know: counted by kind, with the first examples."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._examples: dict[str, list[str]] = {}

    def count(self, kind: str, example: str, times: int = 1) -> None:
        """Add `times` losses of one kind; `example` says which element, for a person.

        Raises ValueError for a kind that does not start with one of LOSS_PREFIXES.
        """
        if not kind.startswith(LOSS_PREFIXES):
            raise ValueError(f"loss kind {kind!r}: expected a name that starts with one of {', '.join(LOSS_PREFIXES)}")
        if times <= 0:
            return
        self._counts[kind] = self._counts.get(kind, 0) + times
        examples = self._examples.setdefault(kind, [])
        if len(examples) < LOSS_EXAMPLES:
            examples.append(example[:LOSS_EXAMPLE_LENGTH])

    def entries(self) -> dict[str, LossEntry]:
        """Everything counted so far, by kind in alphabetical order."""
        return {kind: LossEntry(self._counts[kind], tuple(self._examples[kind])) for kind in sorted(self._counts)}


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
    ) -> None: ...

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

    def connect(self, from_key: Hashable, to_key: Hashable) -> None:
        """One drives straight on from the first lane into the second. Said from either side or both: it counts once.
        Keys may be announced before or after their lanes; those never announced are dropped and counted at the end."""

    def neighbours(self, left_key: Hashable, right_key: Hashable) -> None:
        """Two lanes of the same direction touch, the first on the left of the second."""

    def line(self, points: ArrayLike, kind: int, source_id: int = -1) -> None:
        """Add a painted line: points (n, 2 or 3) f64 [m], kind 10-19."""

    def edge(self, points: ArrayLike, kind: int, source_id: int = -1) -> None:
        """Add a road edge: points (n, 2 or 3) f64 [m], kind 20-29. The order of points is kept."""

    def area(self, points: ArrayLike, kind: int, source_id: int = -1) -> None:
        """Add a polygon: points (n, 2 or 3) f64 [m], closed or not, kind 30-39."""

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
        point         (2 or 3,)  f64 [m]  where the line crosses the lane, if the file has no line
        heading       [rad]  direction of travel; None = of the first controlled lane there
        states        (T,)  u8  logged states; None = unknown throughout
        cycle_offset  [s]  time at which the programme starts its first phase
        program       phases as (duration [s], state)
        """

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
        vx vy                (T,)  f64 [m/s]  None = central differences
        length width height  (T,) or scalar  f64 [m]
        valid                (T,)  bool
        goal                 (2 or 3,)  f64 [m]  None = the last valid position
        """
        raise NotImplementedError

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
        """Make the scene: recentred, cleaned, with graph, signals, routes and goals.

        edges_from_borders   build edges from the outer lane borders (R10a), for formats that have none
        sdc, tracks_to_predict, objects_of_interest   indices returned by `track`

        Raises FormatError for non-finite geometry, a limit, or a scene with nothing in it.
        """
        raise NotImplementedError
