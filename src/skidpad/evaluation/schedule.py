"""What training knows of evaluation: when a section is due, and what one of its passes came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

SKIPPED_BUSY = "skipped_busy"


@dataclass(frozen=True)
class EvalResult:
    """What one pass of an evaluator came to.

    status  "ok", what is wrong, or "skipped_busy": not run, since an earlier pass was still running in the background
    values  tracker key -> number: "<evaluator>/<metric>" with `_by_scene`, `_by_agent` and `_invalid` beside it, "ok",
            and the timings; a value that is missing or invalid is absent, never 0
    error   what ended the pass early, or None
    cached  the same section, metrics and checkpoint had run before; nothing was run again
    renders tracker key -> files, "<evaluator>/render/<view or page>", as the writer returned them
    epoch, step  of the weights that were evaluated: where the values belong in a chart
    """

    name: str
    ok: bool
    status: str
    values: Mapping[str, float]
    coverage: Mapping[str, Any]
    error: Mapping[str, str] | None = None
    cached: bool = False
    renders: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    epoch: int = 0
    step: int = 0


class Schedule(Protocol):
    """When a section runs inside training."""

    @property
    def enabled(self) -> bool: ...
    @property
    def interval(self) -> int: ...
    @property
    def at_start(self) -> bool: ...
    @property
    def at_end(self) -> bool: ...


class Passes(Protocol):
    """Sections that run beside the suite's own: `SealedSchedule`."""

    def maybe_run(self, epoch: int, step: int, *, force: bool = False) -> dict[str, EvalResult]: ...


def is_due(spec: Schedule, epoch: int, *, force: bool) -> bool:
    """Whether an evaluator runs at an epoch (E22, E23), or at the end of training when `force` is set (E24)."""
    if not spec.enabled:
        return False
    if force:
        return spec.at_end
    if epoch == 0:
        return spec.at_start
    return spec.interval > 0 and epoch % spec.interval == 0
