"""check_simulator: does a simulator keep its promises, on these cases and settings, on this machine (S121)?

It drives the worlds with made-up actions and reports what it finds instead of raising, so that one run shows everything
that is wrong. It knows the public interface only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import ActionError, ProtocolError, SkidpadError
from skidpad.simulation.random import Purpose, uniform_array
from skidpad.simulation.simulator import Simulator, StepResult

SEED = 121
TOLERANCE = 1e-5  # float32: a sum of terms in another order


class Finding(NamedTuple):
    """One broken promise: which check, and where, or what to do about it."""

    check: str
    message: str


def check_simulator(sim: Simulator, steps: int = 100) -> list[Finding]:
    """Everything in which `sim` breaks its contract within so many steps, printed and returned; an empty list is good.

    Checked are: `shapes` and dtypes; `reset` shows no past; values are `finite` and within the layout's `bounds`;
    `rewards` are the sum of their terms; an agent is `terminal` once; whoever has left is `silent`; `ends` of worlds
    are told to those in them; `buffers` stay where they are; `actions` are only read; a wrong action raises `errors`
    and changes nothing; two runs from one reset are equal (`determinism`), and so are two from one `snapshot`. What
    raises where nothing should is a finding of `calls`. Each check reports its first case.

    The worlds are reset, and left reset.

    Raises ProtocolError for fewer than 2 steps and for a simulator that resamples: its worlds would be other ones at
    the second look. Check one without `resample_every`.
    """
    if steps < 2:
        raise ProtocolError(f"steps is {steps}; two runs need at least 2")
    if sim.resample_every:
        raise ProtocolError(f"the simulator resamples every {sim.resample_every} steps; check one that does not")
    found: dict[str, str] = {}
    try:
        first = [_bytes(sim, result) for result in _watched(sim, steps, found)]
        second = [_bytes(sim, result) for result in _driven(sim, steps)]
        _compare(first, second, "determinism", "two runs from reset()", found)
        _check_snapshot(sim, steps, found)
        _check_errors(sim, found)
        sim.reset()
    except SkidpadError as error:
        found["calls"] = f"{type(error).__name__}: {error}"
    findings = [Finding(check, message) for check, message in found.items()]
    for finding in findings:
        print(f"{finding.check}: {finding.message}")
    return findings


def _actions(sim: Simulator, step: int) -> NDArray[Any]:
    """Made-up actions of all rows: whole numbers of the table, or points of the box a little beyond its borders."""
    discrete = sim.settings.action_type == "discrete"
    rows = np.arange(len(sim.row_world))
    drawn = uniform_array(SEED, 0, rows[:, None], step, Purpose.CHOICE, np.arange(2)[None])
    if discrete:
        return sim.actions.split((drawn[:, 0] * len(sim.actions.box)).astype(np.int32))
    return np.asarray(drawn * 2.2 - 1.1, np.float32)


def _driven(sim: Simulator, steps: int) -> Iterator[StepResult]:
    """Results of a reset and of so many steps; worlds that do not start by themselves are reset once all have ended."""
    yield sim.reset()
    for step in range(steps):
        if sim.done.all() and sim.autoreset == "off":
            yield sim.reset()
        yield sim.step(_actions(sim, step))


def _watched(sim: Simulator, steps: int, found: dict[str, str]) -> Iterator[StepResult]:
    """`_driven`, every result looked at."""
    low, high = _bounds(sim)
    gone = np.zeros(len(sim.row_world), np.bool_)
    home: dict[str, int] = {}
    for number, result in enumerate(_driven(sim, steps)):
        when = f"result {number}"
        arrays = {name: array for name, array in result._asdict().items() if array is not None}
        begun: NDArray[np.bool_] = sim.steps_taken[sim.row_world] == 0
        _check_shapes(sim, arrays, when, found)
        if "shapes" in found:
            return
        for name, array in arrays.items():
            if home.setdefault(name, array.ctypes.data) != array.ctypes.data:
                found.setdefault("buffers", f"{when}: {name} lies elsewhere than in the first result")
        told: NDArray[np.bool_] = result.terminal | result.truncated
        in_place = sim.autoreset == "same_step" and number > 0  # One result tells of an end and shows a beginning.
        if not in_place:
            _first(found, "reset", begun & (told | (result.events != 0)), when, "events of before its episode")
            _first(found, "reset", begun & (result.reward != 0), when, "a reward of before its episode")
        for name in ("obs", "final_obs"):
            if name in arrays:
                values = _values(sim, arrays[name])
                broken = np.asarray(~np.isfinite(values).all(axis=1))
                outside = np.asarray(((values < low) | (values > high)).any(axis=1))
                _first(found, "finite", broken, when, f"{name} that is not finite")
                _first(found, "bounds", outside, when, f"{name} out of bounds")
        _first(found, "finite", ~np.isfinite(result.reward), when, "a reward that is not finite")
        off = np.abs(result.reward_terms.sum(axis=1) - result.reward) > TOLERANCE * (1 + np.abs(result.reward))
        if sim.custom_reward is None:
            _first(found, "rewards", off, when, "a reward that is not the sum of its terms")
        _first(found, "terminal", result.terminal & gone, when, "terminal for the second time")
        _first(found, "terminal", result.terminal & result.truncated, when, "terminal and truncated at once")
        silent = gone & ~begun
        _first(found, "silent", silent & (result.mask | result.truncated), when, "a mask or an end after it had left")
        _first(found, "silent", silent & (result.reward != 0), when, "a reward after it had left")
        _first(found, "silent", silent & (arrays["obs"] != 0).any(axis=1), when, "an observation after it had left")
        ended = begun if in_place else sim.done[sim.row_world]
        _first(found, "ends", ended & ~gone & ~told, when, "no word that its world has ended")
        gone |= told
        gone &= ~begun
        yield result


def _bounds(sim: Simulator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Declared low and high of every column, in what `_values` shows."""
    low, high = sim.layout.bounds()
    grain = {"float32": 0.0, "float16": 2.0**-10, "bfloat16": 2.0**-7, "int8": 1.0 / 127}[sim.settings.obs_dtype]
    return low - grain * np.abs(low), high + grain * np.abs(high)


def _values(sim: Simulator, rows: NDArray[Any]) -> NDArray[np.float32]:
    """Rows of any dtype as the numbers they stand for."""
    if sim.settings.obs_dtype == "bfloat16":
        return (rows.astype(np.uint32) << 16).view(np.float32)
    values = rows.astype(np.float32)
    return values / np.float32(127) if sim.settings.obs_dtype == "int8" else values


def _first(found: dict[str, str], check: str, bad: NDArray[np.bool_] | np.bool_, when: str, what: str) -> None:
    """Note the first row for which something is wrong, unless this check has found something already."""
    if check not in found and bad.any():
        found[check] = f"{when}, row {int(np.flatnonzero(bad)[0])}: {what}"


def _check_shapes(sim: Simulator, arrays: dict[str, NDArray[Any]], when: str, found: dict[str, str]) -> None:
    rows = len(sim.row_world)
    due: dict[str, Any] = {"reward": np.float32, "terminal": np.bool_, "truncated": np.bool_, "mask": np.bool_}
    due |= {"events": np.uint32, "reward_terms": np.float32}
    shapes = {"obs": (rows, sim.layout.size), "final_obs": (rows, sim.layout.size)}
    shapes["reward_terms"] = (rows, len(sim.term_names))
    for name, array in arrays.items():
        shape, dtype = shapes.get(name, (rows,)), due.get(name, array.dtype)
        if array.shape != shape or array.dtype != dtype:
            found.setdefault("shapes", f"{when}: {name} is {array.dtype} {array.shape}, due is {dtype} {shape}")
    if (np.diff(sim.row_world) < 0).any():
        found.setdefault("shapes", f"{when}: rows are not sorted by world")


def _bytes(sim: Simulator, result: StepResult) -> dict[str, bytes]:
    """A result to compare; of `final_obs` the rows that an end has just filled, for the others mean nothing."""
    shown = {name: array.tobytes() for name, array in result._asdict().items() if array is not None}
    if result.final_obs is not None:
        filled = (result.terminal | result.truncated) & (sim.steps_taken[sim.row_world] == 0)
        shown["final_obs"] = result.final_obs[filled].tobytes()
    return shown


def _compare(
    first: list[dict[str, bytes]], second: list[dict[str, bytes]], check: str, what: str, found: dict[str, str]
) -> None:
    if "shapes" in found:  # Looked at up to there only.
        return
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        differing = [name for name in one if one[name] != other.get(name)]
        if differing:
            found.setdefault(check, f"{what} differ in {', '.join(differing)} of result {number}")
            return


def _check_snapshot(sim: Simulator, steps: int, found: dict[str, str]) -> None:
    """From the middle of a run to its end, twice."""
    half = steps // 2
    for _ in _driven(sim, half):
        pass
    data = sim.snapshot()
    runs = []
    for again in (False, True):
        run = [_bytes(sim, sim.restore(data))] if again else [_bytes(sim, sim.result)]
        for step in range(half, steps):
            if sim.done.all() and sim.autoreset == "off":
                break
            run.append(_bytes(sim, sim.step(_actions(sim, step))))
        runs.append(run)
    if len(runs[0]) != len(runs[1]):
        found.setdefault("snapshot", f"after restore the worlds ran {len(runs[1]) - 1} steps, not {len(runs[0]) - 1}")
        return
    _compare(runs[0][1:], runs[1][1:], "snapshot", "runs from a snapshot and to it", found)


def _check_errors(sim: Simulator, found: dict[str, str]) -> None:
    """What is no action is refused, and the step it was meant for happens as if nobody had tried; a good one is left as
    it was given."""
    sim.reset()
    good = _actions(sim, 0)
    untouched = _bytes(sim, sim.step(good.copy()))
    sim.reset()
    for row in (0, len(good) - 1):
        bad = good.copy()
        bad[row] = len(sim.actions.box) if good.dtype == np.int32 else np.nan
        try:
            sim.step(bad)
            found.setdefault("errors", f"row {row}: {bad[row]} was taken for an action")
            return
        except ActionError as error:
            if error.world != sim.row_world[row]:
                found.setdefault("errors", f"row {row} is of world {sim.row_world[row]}, the error names {error.world}")
    given = good.copy()
    if _bytes(sim, sim.step(given)) != untouched:
        found.setdefault("errors", "a refused action has changed the state")
    if given.tobytes() != good.tobytes():
        found.setdefault("actions", "step wrote into the actions; they belong to the caller")
