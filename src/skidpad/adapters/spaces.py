"""Gymnasium's description of what a simulator shows and takes, and what comes from its users, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from skidpad.errors import ProtocolError, SettingsError
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.actions import ActionSpace, action_space
from skidpad.simulation.layout import layout_of

INT8_STEPS = 127


def observations(settings: EnvSettings) -> spaces.Box:
    """The box of one row, (D,), with the bounds that its layout declares, in the dtype of the rows.

    Raises SettingsError for bfloat16, which NumPy and hence Gymnasium do not have.
    """
    low, high = layout_of(settings).bounds()
    if settings.obs_dtype == "bfloat16":
        raise SettingsError(
            'env.obs_dtype is "bfloat16", which no Gymnasium space can describe; use "float16", or TorchSimulator'
        )
    if settings.obs_dtype == "int8":
        return spaces.Box(-INT8_STEPS, INT8_STEPS, low.shape, np.int8)
    dtype: Any = np.dtype(settings.obs_dtype)
    return spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)


def actions(settings: EnvSettings) -> spaces.Space[Any]:
    """Of one row: the box [-1, 1]^2, one index, or one index per factor of the table."""
    space = action_space(settings)
    if settings.action_type == "continuous":
        return spaces.Box(-1.0, 1.0, (2,), np.float32)
    if len(space.factors) == 1:
        return spaces.Discrete(space.factors[0])
    return spaces.MultiDiscrete(list(space.factors), dtype=np.int32)


def as_actions(given: Any, space: ActionSpace, rows: int, discrete: bool) -> NDArray[Any]:
    """Actions as `Simulator.step` reads them: the given array itself where it fits already, else a copy in the due
    dtype, as long as no fraction of an index is lost.

    Raises ProtocolError for a wrong shape, or for indices that are not whole numbers. What the values mean is checked
    by the simulator, which names world and agent.
    """
    shape, dtype = space.shape(rows, discrete)
    array = np.asarray(given)
    if array.shape != shape or array.dtype.kind not in ("iu" if discrete else "fiu"):
        kind = "whole numbers" if discrete else "numbers in [-1, 1]"
        raise ProtocolError(f"actions are {array.dtype} {array.shape}; due are {kind} of shape {shape}")
    if discrete and array.dtype != dtype:  # A number that int32 cannot hold must stay outside the table.
        array = array.clip(-1, np.iinfo(np.int32).max)
    return array.astype(dtype, copy=False)


def checked_seed(seed: Any) -> int:
    """Raises ProtocolError unless it is one whole number from 0 on; every world gets its own from it."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ProtocolError(f"seed is {seed!r}; one whole number from 0 on is due, worlds get theirs from it")
    return int(seed)
