"""What the Waymo motion schema and the formats that descend from it call things, in codes of a scene (R18 to R20)."""

from __future__ import annotations

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
