"""Exactly as many agents as training asked for: how a budget of policy rows is cut into worlds (S53).

An impossible budget is an error with its numbers, before anything is built; nothing is rounded and nothing loops until
it happens to fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import SettingsError, listed
from skidpad.simulation.random import Purpose, words_array

I64 = NDArray[np.int64]


def cut_budget(budget: int, low: int, high: int, *, seed: int, worlds: int | None = None) -> I64:
    """Agents of each world on bare maps: (W,) i64, each in [low, high], their sum the budget.

    budget      policy rows in all
    low, high   fewest and most agents of a world; sizes are U[low, high], the remainder spread over the worlds
    seed        of the draws
    worlds      how many; by default as many as the draws need

    Raises SettingsError where no such numbers exist.
    """
    if not 1 <= low <= high:
        raise SettingsError(f"agents per world: {low} to {high}; expected 1 <= min <= max")
    fewest, most = -(-budget // high), budget // low
    if budget < 1 or fewest > most or not (worlds is None or fewest <= worlds <= most):
        between = f"{fewest} to {most} worlds" if 1 <= fewest <= most else "no number of worlds"
        asked = "" if worlds is None else f", and {worlds} are asked for"
        raise SettingsError(
            f"a budget of {budget} agents in worlds of {low} to {high} takes {between}{asked}. Change "
            "env.min_agents_per_world, env.max_agents_per_world or the budget."
        )
    draw = words_array(seed, 0, np.arange(most), 0, Purpose.POPULATION, 0)[0].astype(np.int64)
    count: I64 = low + (draw * (high - low + 1) >> 32)
    if worlds is None:
        worlds = int(np.clip(np.searchsorted(np.cumsum(count), budget) + 1, fewest, most))
    count = count[:worlds]
    while (missing := budget - int(count.sum())) != 0:
        open_to = np.flatnonzero(count < high if missing > 0 else count > low)[: abs(missing)]
        count[open_to] += np.sign(missing)
    return count


def fill_worlds(budget: int, rows: Sequence[int], names: Sequence[str]) -> tuple[I64, I64]:
    """Which cases to run, again and again in their order, until their policy rows are the budget, and how many each may
    have: (W,) i64 case numbers, (W,) i64 limits. Only the last one is limited below what its case has.

    rows   policy rows of each case; cases without any are passed over
    names  of the maps or scenes, for the error

    Raises SettingsError for a budget below 1, and where no case has anybody to control.
    """
    available = np.asarray(rows, np.int64)
    usable = np.flatnonzero(available > 0)
    if len(usable) == 0:
        raise SettingsError(f"nobody can be controlled on any of {listed(names)}. Choose other scenes or env.control.")
    if budget < 1:
        raise SettingsError(f"a budget of {budget} agents; expected at least 1")
    once = np.cumsum(available[usable])
    passes, rest = divmod(budget, int(once[-1]))
    partial = int(np.searchsorted(once, rest)) + 1 if rest else 0
    case = np.concatenate([np.tile(usable, passes), usable[:partial]])
    limit = available[case]
    limit[-1] -= int(limit.sum()) - budget
    return case, limit
