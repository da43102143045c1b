"""What the Waymo motion schema and the formats that descend from it call things, in codes of a scene (R18 to R20)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import (
    STATE_GREEN,
    STATE_RED,
    STATE_UNKNOWN,
    STATE_YELLOW,
    TYPE_CYCLIST,
    TYPE_PEDESTRIAN,
    TYPE_UNKNOWN,
    TYPE_VEHICLE,
)

DT_US = 100_000

# By number of the schema: unknown; arrow stop, caution, go; stop, caution, go; flashing stop, flashing caution.
LIGHT_STATES = (
    STATE_UNKNOWN,
    *(STATE_RED, STATE_YELLOW, STATE_GREEN),
    *(STATE_RED, STATE_YELLOW, STATE_GREEN),
    *(STATE_RED, STATE_YELLOW),
)
LIGHT_WORDS = dict(
    zip(
        (
            "unknown",
            *("arrow_stop", "arrow_caution", "arrow_go"),
            *("stop", "caution", "go"),
            *("flashing_stop", "flashing_caution"),
        ),
        LIGHT_STATES,
        strict=True,
    )
)

# By number of the schema: unset, vehicle, pedestrian, cyclist, other.
TRACK_TYPES = (TYPE_UNKNOWN, TYPE_VEHICLE, TYPE_PEDESTRIAN, TYPE_CYCLIST, TYPE_UNKNOWN)
TRACK_WORDS = dict(zip(("unset", "vehicle", "pedestrian", "cyclist", "other"), TRACK_TYPES, strict=True))

# Where a row is absent its descendants write this instead of a place.
ABSENT_M = -10_000.0

ASSUMED_HEIGHT_M = {TYPE_UNKNOWN: 1.5, TYPE_VEHICLE: 1.5, TYPE_PEDESTRIAN: 1.7, TYPE_CYCLIST: 1.7}
"""For files without heights, by track type [m]."""

_JITTER_S = 0.005
_LONGEST_US = 3_600_000_000


def time_step(times: NDArray[np.float64], loss: LossReport) -> int:
    """Microseconds between rows, a whole number of milliseconds: the median of the gaps between timestamps.

    times  (n,)  f64 [s]

    Raises FormatError for times that are not finite, do not run forwards, or lie further apart than an hour.
    """
    if len(times) < 2:
        loss.count("assumed_time_step", f"{DT_US * 1e-6:g} s: {len(times)} timestamps")
        return DT_US
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.diff(times)
    dt_us = round(float(np.median(gaps)) * 1000.0) * 1000 if np.isfinite(gaps).all() else 0
    if not 0 < dt_us <= _LONGEST_US:
        raise FormatError(
            f"timestamps {times[:3].tolist()}..., expected finite seconds that grow, by an hour at most between rows."
        )
    late = np.abs(gaps - dt_us * 1e-6) > _JITTER_S
    loss.count(
        "repaired_jitter", f"a gap of {float(gaps[late.argmax()]):.4f} s among {dt_us * 1e-6:g} s", int(late.sum())
    )
    return dt_us
