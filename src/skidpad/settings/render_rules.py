"""What a section that renders must say, checked before anything runs: a missing budget found at the first picture would
come after the pass had been paid for (E11, E86, E91).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skidpad.settings.leaves import Key, Leaf, Leaves, Origin, Problems
from skidpad.settings.schema import EvalKnobs, HeaderSettings

DRAWN = ("render", "render_interval", "render_at_end", "render_views", "render_backend", "render_select")
DRAWN_KNOBS = ("render_num_scenarios", "render_max_steps", "render_max_minutes")
"""Keys that decide what is drawn and change no record, plain ones and those under `eval.`."""

OBSERVED_VIEWS = ("bev", "bev_all")
# Seconds of drawing and encoding per frame of 1280 x 720 on one slow core, generous; `skidpad bench render` measures.
SECONDS_PER_FRAME = {"sim_state": 0.02, "topdown_sim": 0.02, "bev": 0.02, "bev_all": 0.1}


def with_implied_record(
    name: str, header: HeaderSettings, leaves: Leaves, problems: Problems
) -> tuple[HeaderSettings, Leaves]:
    """The header and leaves with `record = "observations"` where the pictures show observations; a section that asks
    for both such pictures and `record = "states"` is refused."""
    views = [view for view in header.render_views if view in OBSERVED_VIEWS]
    if not header.render or not (views or "obs_html" in header.render_backend) or header.record == "observations":
        return header, leaves
    cause: Key = ("render_views",) if views else ("render_backend",)
    what = f"view {views[0]}" if views else "page obs_html"
    if ("record",) in leaves:
        problems.add(
            leaves["record",].origin,
            f'record = "states" in [eval.{name}], but {what} shows recorded observations; remove the line',
        )
        return header, leaves
    implied = Leaf("observations", leaves[cause].origin)
    return header.model_copy(update={"record": "observations"}), {**leaves, ("record",): implied}


def minutes_of(views: Sequence[str], backends: Sequence[str], cases: int, steps: int) -> float:
    """Estimated minutes of one pass that draws and encodes these views of so many cases and steps."""
    per_state = sum(SECONDS_PER_FRAME[view] for view in views) if "mp4" in backends else 0.0
    return per_state * cases * (steps + 1) / 60


def check_budget(
    name: str, header: HeaderSettings, knobs: EvalKnobs, origin_of: Callable[[Key], Origin], problems: Problems
) -> None:
    """Add what is wrong with a section that has `render = true`."""
    at = origin_of(("render",))
    for key in ("render_num_scenarios", "render_max_steps"):
        if getattr(knobs, key) is None:
            problems.add(at, f"render = true in [eval.{name}] needs eval.{key}: how much is drawn is never a default")
    if header.keep_traces == "none":
        problems.add(
            origin_of(("keep_traces",)),
            f'keep_traces = "none" in [eval.{name}] leaves nothing to draw from; use "selected", which keeps what is '
            "drawn, or render = false",
        )
    for key in ("render_views", "render_backend"):
        written = getattr(header, key)
        if len(set(written)) < len(written):
            problems.add(origin_of((key,)), f"{key} of [eval.{name}] names one twice")
    step = header.render_interval
    if step and (header.interval == 0 or step % header.interval):
        problems.add(
            origin_of(("render_interval",)),
            f"render_interval = {step} in [eval.{name}] must be a multiple of interval = {header.interval}: pictures "
            "are drawn of a pass that runs",
        )
    cases, steps = knobs.render_num_scenarios or 0, knobs.render_max_steps or 0
    minutes = minutes_of(header.render_views, header.render_backend, cases, steps)
    if minutes > knobs.render_max_minutes:
        problems.add(
            at,
            f"rendering [eval.{name}] takes about {round(minutes, 3):g} minutes ({len(header.render_views)} views x "
            f"{cases} cases x {steps} steps), more than eval.render_max_minutes = {knobs.render_max_minutes:g}; "
            "draw less, or raise it",
        )
