"""Exactly as many agents as training asked for: how a budget of policy rows is cut into worlds (S53).

An impossible budget is an error with its numbers, before anything is built; nothing is rounded and nothing loops until
it happens to fit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import CaseError, SettingsError, listed
from skidpad.scenes.case import Case
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.episodes import Draws
from skidpad.simulation.population import Population, Span
from skidpad.simulation.random import Purpose, words_array

I64 = NDArray[np.int64]
Take = Callable[[Case, int, int | None], tuple[Population, Span]]


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


def drawn_worlds(
    draws: Draws, rows: int, settings: EnvSettings, take: Take, *, worlds: int | None = None
) -> list[tuple[Case, Population, Span]]:
    """Cases drawn until their policy rows are `rows`: on bare maps in worlds of as many agents as the settings allow
    (`cut_budget`), on logs with everybody there is, and only the last one limited. Cases without any are passed over.

    take    selects who takes part: (case, number of its world, most agents under test or None) -> (Population, Span),
            or raises CaseError
    worlds  how many they must be, on logs as well; by default what the rows take

    Raises SettingsError for a budget below 1, where none of the pool has anybody for a policy to drive, and where the
    number of worlds cannot be met.
    """
    if rows < 1:
        raise SettingsError(f"a budget of {rows} agents; expected at least 1")
    sizes: list[int] | None = None
    if settings.simulation_mode == "gigaflow" and settings.vehicle_controller == "policy":
        low, high = settings.min_agents_per_world, settings.max_agents_per_world
        sizes = cut_budget(rows, low, high, seed=draws.pool[0].seed ^ draws.drawn, worlds=worlds).tolist()
    found: list[tuple[Case, Population, Span]] = []
    refused: dict[str, str] = {}
    left, misses = rows, 0
    while left:
        case = next(draws)
        try:
            population, span = take(case, len(found), None if sizes is None else sizes[len(found)])
            if len(population.policy) > left:
                population, span = take(case, len(found), left)
            why = "" if len(population.policy) else f"scene {case.scene_id}: a policy drives nobody of it."
        except CaseError as error:
            why = str(error)
        if why:
            refused[case.scene_id] = why
            misses += 1
            if misses == 2 * len(draws.pool) - 1:  # So many in a row hold a whole pass, wherever they begin.
                reason = next(iter(refused.values()))
                raise SettingsError(f"nobody can be controlled on any of {listed(refused)}: {reason}")
            continue
        misses = 0
        left -= len(population.policy)
        found.append((case, population, span))
    if worlds is not None and len(found) != worlds:
        raise SettingsError(
            f"{rows} policy rows take {len(found)} worlds of these scenes, and {worlds} are asked for. Change the "
            "budget, or leave the number of worlds open."
        )
    return found
