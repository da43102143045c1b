"""Distance to the agent's own log: how far the drive departed from what was recorded."""

from __future__ import annotations

import numpy as np

from skidpad.evaluation.metrics.view import F64, AgentValues, Bool, CaseView, mean_over, measured


def _log_error(view: CaseView) -> tuple[F64, Bool, Bool]:
    """(M, U) distance [m] to the log in the plane, (M, U) where both are known, (M,) log without any such step."""
    x, y, _, valid = view.log_rows
    known = view.driven & valid[:, 1:]
    error = np.hypot(view.ends("x") - x[:, 1:], view.ends("y") - y[:, 1:])
    return np.where(known, error, 0.0), known, np.asarray(~known.any(axis=1))


def ade_log(view: CaseView) -> AgentValues:
    """Mean distance [m] to the own log over driven steps at which the log is valid."""
    error, known, absent = _log_error(view)
    return mean_over(error, known, (view.never_active, "no_exposure"), (absent, "no_log"))


def fde_log(view: CaseView) -> AgentValues:
    """Distance [m] to the own log at the last driven step at which the log is valid."""
    error, known, absent = _log_error(view)
    last = known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
    final = error[np.arange(view.count), last] if known.shape[1] else np.zeros(view.count)
    return measured(final, 1.0, (view.never_active, "no_exposure"), (absent, "no_log"))
