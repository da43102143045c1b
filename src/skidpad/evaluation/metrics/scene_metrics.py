"""What a rendered view, and the sealed state behind it, are worth: metrics of the sealed evaluation of mappers.

Pure functions of arrays, one registry line each. Abstaining is neither free nor fatal: a pixel that a render does not
cover counts as the fallback, which is the median valid depth and the mean colour of the warm-up. Every function gives
a value, or None where there is nothing to measure; None is never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import CaseError

if TYPE_CHECKING:
    from skidpad.evaluation.metrics.lpips import Lpips
    from skidpad.streaming.seal import Fallback
    from skidpad.streaming.vault import Query, Task

F64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

COVERED = 0.5  # opacity above which a pixel counts as covered
DELTA1 = 1.25
PSNR_CAP_DB = 60.0
LPIPS = "rgb_lpips"
SSIM_WINDOW = 7
SSIM_K1, SSIM_K2 = 0.01, 0.03
PATH_LIMIT_M, HALF_WIDTH_M = 20.0, 1.75
SOLID_LOW_M, SOLID_HIGH_M, HEIGHT_STEP_M = 0.2, 2.0, 0.2


@dataclass(frozen=True)
class SceneMetric:
    """One registry line.

    version    any change of result raises it
    unit       of the value; "rate" is a share in 0..1
    range      lowest and highest value, inclusive; None = unbounded
    direction  which values are better; "none" = neither
    level      "query": one value per hidden view; "episode": one per pair
    """

    name: str
    unit: str
    range: tuple[float | None, float | None]
    direction: str
    level: str
    aid: str
    version: int = 1

    def spec(self) -> dict[str, Any]:
        """The line as plain values, as a registration stores it; wording does not enter."""
        return {
            "name": self.name,
            "version": self.version,
            "unit": self.unit,
            "range": list(self.range),
            "direction": self.direction,
            "level": self.level,
        }


class Predicted(NamedTuple):
    """A render of a sealed state.

    depth    (H, W)     f32 [m], the camera's own depth
    rgb      (3, H, W)  f32 in [0, 1]
    opacity  (H, W)     f32 in [0, 1]
    """

    depth: NDArray[Any]
    rgb: NDArray[Any]
    opacity: NDArray[Any]

    @property
    def covered(self) -> Bool:
        """(H, W) pixels that the render covers."""
        return np.asarray(self.opacity > COVERED)


class Probe(Protocol):
    """What a sealed state says of points in the world."""

    def inside(self, points: F64) -> Bool:
        """(N,) whether (N, 3) f64 points [m] lie in the grid."""
        ...

    def occupancy(self, points: F64) -> NDArray[np.int8]:
        """(N,) -1 unknown, 0 free, 1 solid."""
        ...


# -- depth ------------------------------------------------------------------------------------------------------------


def absrel(guess: F64, truth: F64) -> float:
    """Mean of |p - t| / t over (N,) pixels."""
    return float(np.mean(np.abs(guess - truth) / truth))


def l1(guess: F64, truth: F64) -> float:
    """Mean of |p - t|, metres."""
    return float(np.mean(np.abs(guess - truth)))


def rmse(guess: F64, truth: F64) -> float:
    """Root of the mean of (p - t)^2, metres."""
    return float(np.sqrt(np.mean((guess - truth) ** 2)))


def delta1(guess: F64, truth: F64) -> float:
    """Share of pixels with max(p / t, t / p) < 1.25; a guess of zero is never within."""
    return float(np.mean((guess > 0) & (np.maximum(guess, truth) < DELTA1 * np.minimum(guess, truth))))


DEPTH: Mapping[str, Callable[[F64, F64], float]] = {
    "depth_absrel": absrel,
    "depth_l1": l1,
    "depth_rmse": rmse,
    "depth_delta1": delta1,
}
SETS = ("covered", "seen", "unseen", "moving")


def depth_absrel(
    depth: NDArray[Any], opacity: NDArray[Any], target: NDArray[Any], fallback_depth: float
) -> float | None:
    """The headline metric of one view: (H, W) depth [m] and opacity against a target depth [m], 0 = no return."""
    valid = target > 0
    if not valid.any():
        return None
    guess = np.where(opacity > COVERED, depth, fallback_depth).astype(np.float64)
    return absrel(guess[valid], target[valid].astype(np.float64))


def depth_metrics(predicted: Predicted, query: Query, fallback_depth: float) -> dict[str, float | None]:
    """All depth metrics, over all valid label pixels and over each pixel set."""
    guess = np.where(predicted.covered, predicted.depth, fallback_depth).astype(np.float64)
    truth = query.depth.astype(np.float64)
    found: dict[str, float | None] = {}
    for suffix, mask in pixel_sets(predicted, query).items():
        pixels = None if mask is None or not mask.any() else (guess[mask], truth[mask])
        for name, function in DEPTH.items():
            found[name + suffix] = function(*pixels) if pixels else None
    return found


def pixel_sets(predicted: Predicted, query: Query) -> dict[str, Bool | None]:
    """(H, W) masks by suffix: all valid label pixels, and parts of them; None for what a static track does not have."""
    valid = query.depth > 0
    return {
        "": valid,
        ".covered": valid & predicted.covered,
        ".seen": valid & query.seen,
        ".unseen": valid & ~query.seen,
        ".moving": None if query.moving is None else valid & query.moving,
    }


def _share(mask: Bool, of: Bool) -> float | None:
    return float(np.mean(mask[of])) if of.any() else None


def coverage(predicted: Predicted, query: Query) -> float | None:
    """Share of valid label pixels that the render covers."""
    return _share(predicted.covered, query.depth > 0)


def outside_box(query: Query, probe: Probe) -> float | None:
    """Share of valid label pixels whose surface lies outside the grid: no mapper could have held it."""
    from skidpad.streaming.camera import points_of

    valid = query.depth > 0
    points = points_of(query.camera, query.depth.astype(np.float64))[valid]
    return float(np.mean(~probe.inside(points))) if len(points) else None


# -- colour -----------------------------------------------------------------------------------------------------------


def psnr(guess: F64, truth: F64) -> float:
    """10 log10(1 / mse) of images in [0, 1], dB; capped, so that a perfect view counts instead of being infinite."""
    mse = float(np.mean((guess - truth) ** 2))
    return PSNR_CAP_DB if mse <= 10 ** (-PSNR_CAP_DB / 10) else -10.0 * float(np.log10(mse))


def ssim(guess: F64, truth: F64) -> float | None:
    """Mean structural similarity (Wang et al. 2004) of (C, H, W) images in [0, 1]; None below 7 pixels a side.

    Uniform 7x7 windows that lie wholly inside, sample variances, K1 = 0.01, K2 = 0.03, mean over windows and channels.
    """
    if min(guess.shape[1:]) < SSIM_WINDOW:
        return None
    n = SSIM_WINDOW**2
    mean_p, mean_t = _windows(guess) / n, _windows(truth) / n
    scale = n / (n - 1)
    var_p = scale * (_windows(guess * guess) / n - mean_p**2)
    var_t = scale * (_windows(truth * truth) / n - mean_t**2)
    cov = scale * (_windows(guess * truth) / n - mean_p * mean_t)
    c1, c2 = SSIM_K1**2, SSIM_K2**2
    top = (2 * mean_p * mean_t + c1) * (2 * cov + c2)
    return float(np.mean(top / ((mean_p**2 + mean_t**2 + c1) * (var_p + var_t + c2))))


def _windows(images: F64) -> F64:
    """(C, H - 6, W - 6) sums over all windows."""
    k = SSIM_WINDOW
    sums = np.pad(images, ((0, 0), (1, 0), (1, 0))).cumsum(1).cumsum(2)
    return np.asarray(sums[:, k:, k:] - sums[:, :-k, k:] - sums[:, k:, :-k] + sums[:, :-k, :-k])


def colour_metrics(
    predicted: Predicted, query: Query, fallback_rgb: tuple[float, float, float], lpips: Lpips | None = None
) -> dict[str, float | None]:
    """PSNR and SSIM of the whole image, uncovered pixels in the fallback colour; LPIPS where its weights are given."""
    fallback = np.asarray(fallback_rgb, np.float64)[:, None, None]
    guess = np.where(predicted.covered, predicted.rgb.astype(np.float64), fallback)
    truth = query.rgb.astype(np.float64)
    found = {"rgb_psnr": psnr(guess, truth), "rgb_ssim": ssim(guess, truth)}
    return found if lpips is None else found | {LPIPS: lpips(guess, truth)}


# -- a pair as a whole ------------------------------------------------------------------------------------------------


class Cells(NamedTuple):
    """The ground around the ego as a sealed state has it, against its labels; all (R, C) bool.

    occupied  something known stands between 0.2 and 2.0 m
    unknown   some height in between is not known
    solid     label: something stands there
    agents    label: a vehicle, cyclist or pedestrian stands there
    corridor  the cell lies on the planned path with its half width, up to 20 m
    arc       (R, C) f64 [m], distance along the path of the cells of the corridor
    """

    occupied: Bool
    unknown: Bool
    solid: Bool
    agents: Bool
    corridor: Bool
    arc: F64


def _iou(a: Bool, b: Bool) -> float | None:
    union = int((a | b).sum())
    return int((a & b).sum()) / union if union else None


def free_space_iou(cells: Cells) -> float | None:
    """Agreement on the free cells of the corridor; a cell is called free only if nothing known or unknown is in it."""
    called = ~(cells.occupied | cells.unknown)
    return _iou(called & cells.corridor, ~cells.solid & cells.corridor)


def first_obstacle_error(cells: Cells) -> float | None:
    """|distance along the path to the first occupied cell, known minus true|, metres; 20 m where there is none."""
    if not cells.corridor.any():
        return None
    return abs(_first(cells.occupied & cells.corridor, cells.arc) - _first(cells.solid & cells.corridor, cells.arc))


def _first(cells: Bool, arc: F64) -> float:
    return min(float(arc[cells].min()), PATH_LIMIT_M) if cells.any() else PATH_LIMIT_M


def bev_occupancy_iou(cells: Cells) -> float | None:
    """Agreement on the cells of agents; cells that only something else occupies are left out."""
    counted = cells.agents | ~cells.solid
    return _iou(cells.occupied & counted, cells.agents)


def false_free_rate(cells: Cells) -> float | None:
    """Share of the occupied corridor cells that are called free: where a planner would drive into something."""
    occupied = cells.solid & cells.corridor
    return float(np.mean(~(cells.occupied | cells.unknown)[occupied])) if occupied.any() else None


TASK: Mapping[str, Callable[[Cells], float | None]] = {
    "free_space_iou": free_space_iou,
    "first_obstacle_error": first_obstacle_error,
    "bev_occupancy_iou": bev_occupancy_iou,
    "false_free_rate": false_free_rate,
}


def cells_of(task: Task, probe: Probe) -> Cells:
    """What a state knows of the cells that a task labels: asked at each cell's centre, every 0.2 m of height."""
    rows, columns = task.occupancy.shape
    x = task.bev_origin[0] + (np.arange(columns) + 0.5) * task.bev_cell_m
    y = task.bev_origin[1] + (np.arange(rows) + 0.5) * task.bev_cell_m
    heights = task.ground_height + np.arange(SOLID_LOW_M, SOLID_HIGH_M + 1e-9, HEIGHT_STEP_M)
    grid = np.stack(np.broadcast_arrays(x[None, :, None], y[:, None, None], heights[None, None, :]), axis=-1)
    found = probe.occupancy(np.ascontiguousarray(grid.reshape(-1, 3))).reshape(rows, columns, len(heights))
    arc, away = _along(task.path, np.stack(np.broadcast_arrays(x[None, :], y[:, None]), axis=-1))
    corridor = (away <= HALF_WIDTH_M) & (arc > 0) & (arc <= PATH_LIMIT_M)
    return Cells((found == 1).any(-1), (found == -1).any(-1), task.occupancy, task.agents, corridor, arc)


def _along(path: F64, points: F64) -> tuple[F64, F64]:
    """(R, C) arc length of the nearest point of an (n, 2) path, and the distance to it, of (R, C, 2) points; metres."""
    start, step = path[:-1], np.diff(path, axis=0)
    length = np.linalg.norm(step, axis=1)
    relative = points[:, :, None, :] - start
    share = np.clip((relative * step).sum(-1) / np.maximum(length**2, 1e-12), 0.0, 1.0)
    away = np.linalg.norm(relative - share[..., None] * step, axis=-1)
    nearest = away.argmin(-1)[..., None]
    arc = np.concatenate([[0.0], np.cumsum(length)[:-1]]) + share * length
    return np.take_along_axis(arc, nearest, -1)[..., 0], np.take_along_axis(away, nearest, -1)[..., 0]


# -- registry ---------------------------------------------------------------------------------------------------------

_SET_AID = {
    "": "over all valid pixels, uncovered ones as the fallback",
    ".covered": "where the render has a surface",
    ".seen": "where some offered frame saw the surface",
    ".unseen": "where no offered frame saw the surface",
    ".moving": "on agents that moved",
}
_DEPTH_LINES = (
    ("depth_absrel", "1", (0.0, None), "lower", "mean relative depth error"),
    ("depth_l1", "m", (0.0, None), "lower", "mean depth error"),
    ("depth_rmse", "m", (0.0, None), "lower", "root mean squared depth error"),
    ("depth_delta1", "rate", (0.0, 1.0), "higher", "share of depths within a factor of 1.25"),
)
_LINES = (
    *(
        SceneMetric(name + suffix, unit, limits, direction, "query", f"{aid}, {_SET_AID[suffix]}")
        for suffix in _SET_AID
        for name, unit, limits, direction, aid in _DEPTH_LINES
    ),
    SceneMetric("coverage", "rate", (0.0, 1.0), "higher", "query", "share of valid pixels with opacity above 0.5"),
    SceneMetric("outside_box", "rate", (0.0, 1.0), "none", "query", "share of the surface outside the grid"),
    SceneMetric("rgb_psnr", "dB", (None, PSNR_CAP_DB), "higher", "query", "peak signal to noise, capped at 60 dB"),
    SceneMetric("rgb_ssim", "1", (-1.0, 1.0), "higher", "query", "structural similarity, 7x7 windows"),
    SceneMetric(LPIPS, "1", (0.0, None), "lower", "query", "difference to the features of AlexNet; needs its weights"),
    SceneMetric("forgetting", "1", (None, None), "lower", "episode", "warm-up depth error after the stream - before"),
    SceneMetric("free_space_iou", "rate", (0.0, 1.0), "higher", "episode", "agreement on free cells of the corridor"),
    SceneMetric(
        "first_obstacle_error", "m", (0.0, PATH_LIMIT_M), "lower", "episode", "error of the way to the first obstacle"
    ),
    SceneMetric("bev_occupancy_iou", "rate", (0.0, 1.0), "higher", "episode", "agreement on the cells of agents"),
    SceneMetric("false_free_rate", "rate", (0.0, 1.0), "lower", "episode", "occupied corridor cells called free"),
)
SCENE_METRICS: Mapping[str, SceneMetric] = {line.name: line for line in _LINES}
HEADLINE = "depth_absrel"


def measured_metrics(*, lpips: bool) -> dict[str, int]:
    """Versions by name of the metrics that a run measures here; LPIPS only where its weights are."""
    return {name: line.version for name, line in sorted(SCENE_METRICS.items()) if lpips or name != LPIPS}


def in_range(values: Mapping[str, float | None]) -> dict[str, float | None]:
    """The values, sorted by name. Raises CaseError for one outside its metric's range; what is not finite becomes None:
    a render that is not a number measures nothing."""
    for name, value in values.items():
        low, high = SCENE_METRICS[name].range
        if value is not None and (
            (low is not None and value < low - 1e-9) or (high is not None and value > high + 1e-9)
        ):
            raise CaseError(f"metric {name} is {value}, outside its range {low} to {high}: the metric is wrong.")
    return {name: value if value is not None and np.isfinite(value) else None for name, value in sorted(values.items())}


def query_metrics(
    predicted: Predicted, query: Query, fallback: Fallback, probe: Probe | None, lpips: Lpips | None = None
) -> tuple[dict[str, int], dict[str, float | None]]:
    """Over how many pixels a view was measured, and every query metric; without a probe `outside_box` is None, and
    without `lpips` there is no `rgb_lpips`."""
    values = depth_metrics(predicted, query, fallback.depth) | colour_metrics(predicted, query, fallback.rgb, lpips)
    values["coverage"] = coverage(predicted, query)
    values["outside_box"] = outside_box(query, probe) if probe is not None else None
    sets = pixel_sets(predicted, query)
    pixels = {name.removeprefix(".") or "label": int(mask.sum()) for name, mask in sets.items() if mask is not None}
    return pixels, in_range(values)


def pair_metrics(task: Task | None, probe: Probe | None, forgetting: float | None) -> dict[str, float | None]:
    """What is measured once per pair. `forgetting` is the depth error of the warm-up views after the stream minus
    before it; without a task or a probe the task metrics are None."""
    cells = None if task is None or probe is None else cells_of(task, probe)
    values = {name: None if cells is None else function(cells) for name, function in TASK.items()}
    return in_range(values | {"forgetting": forgetting})
