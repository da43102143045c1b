"""Running quantities of an episode: what is summed while it goes on, for every agent (S81).

Only time with status active counts: who stopped or was removed no longer dilutes an average (S68). A quantity is added
at the end of the table with its number beside it; `kernels/tally.py` fills the block.
"""

from __future__ import annotations

from typing import NamedTuple


class Quantity(NamedTuple):
    """One row of the tally block, (TALLY_ROWS, A) float32; at `start` when an episode begins."""

    name: str
    unit: str
    start: float
    meaning: str


TALLY: tuple[Quantity, ...] = (
    Quantity("distance", "m", 0.0, "driven, backwards too"),
    Quantity("active_s", "s", 0.0, "time with status active"),
    Quantity("log_error", "m", 0.0, "sum over steps of the distance from the log's position"),
    Quantity("log_steps", "step", 0.0, "steps in which the log has the agent; log_error / log_steps is the ADE"),
    Quantity("wrong_way", "m", 0.0, "driven above 2.5 m/s against the lane (S75)"),
    Quantity("multi_lane_s", "s", 0.0, "moving with a side more than 2.05 m from the lane's centre line"),
    Quantity("overspeed", "m", 0.0, "integral of the speed above the lane's limit, 15 m/s where it is unknown (S76)"),
    Quantity("ttc", "s", float("inf"), "time to collision at present (S79)"),
    Quantity("min_ttc", "s", float("inf"), "least time to collision so far"),
)
DISTANCE, ACTIVE_S, LOG_ERROR, LOG_STEPS, WRONG_WAY, MULTI_LANE_S, OVERSPEED, TTC, MIN_TTC = range(9)
TALLY_ROWS = 9
