"""What a step returns, and whose memory it lies in: ours, or the caller's, checked once and written in place (S111)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import ProtocolError, SettingsError, listed
from skidpad.simulation.layout_table import Layout
from skidpad.simulation.rewards import TERM_COUNT
from skidpad.simulation.slots import lined_zeros

Arrays = Mapping[str, NDArray[Any]]


class StepResult(NamedTuple):
    """What policy rows get back; views into the simulator's buffers or the caller's, valid until the next call.

    obs        (N, D)  f32   as the layout declares; zero rows for ended worlds
    reward     (N,)    f32
    terminal   (N,)    bool  the agent left in this step, with its track; its row is silent from here on
    truncated  (N,)    bool  the world ended in this step, with the agent in it
    mask       (N,)    bool  the row was live in this step and is not tampered with (S65)
    events     (N,)    u32   skidpad.scenes.events.Event, of the step that led here
    reward_terms  (N, K)  f32   columns of `rewards.TERMS`
    final_obs  (N, D)  f32   autoreset same_step: for rows of worlds that ended, the last row of the old episode, while
                             `obs` holds the first of the new; None under the other modes
    """

    obs: NDArray[np.float32]
    reward: NDArray[np.float32]
    terminal: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    mask: NDArray[np.bool_]
    events: NDArray[np.uint32]
    reward_terms: NDArray[np.float32]
    final_obs: NDArray[np.float32] | None


PACKINGS = {"float32": 0, "bfloat16": 1, "float16": 2, "int8": 3}  # by number in `kernels.observe_send`
_OBS_DTYPES: dict[str, Any] = {"float32": np.float32, "bfloat16": np.uint16, "float16": np.float16, "int8": np.int8}


def observation_rows(count: int, layout: Layout, dtype: str) -> NDArray[Any]:
    """The buffer of observations, (N, D); of bfloat16 it holds the bits, u16.

    Raises SettingsError for int8 rows of a layout that is not within [-1, 1]: a step would not be 1/127.
    """
    low, high = layout.bounds()
    if dtype == "int8" and (low.min() < -1 or high.max() > 1):
        raise SettingsError(
            f"env.obs_dtype is int8, but {layout.id} has values beyond [-1, 1], which 127 steps cannot show. "
            "Use bfloat16 or float16, or a native layout such as default/1."
        )
    return lined_zeros((count, layout.size), _OBS_DTYPES[dtype])


def make_results(
    count: int, layout: Layout, obs_dtype: str, buffers: Mapping[str, Any], *, with_final: bool
) -> StepResult:
    """What a step of `count` rows returns, in the caller's memory where it gave some (`take_buffers`)."""
    own: dict[str, NDArray[Any]] = {
        "obs": observation_rows(count, layout, obs_dtype),
        "reward": np.zeros(count, np.float32),
        "terminal": np.zeros(count, np.bool_),
        "truncated": np.zeros(count, np.bool_),
        "mask": np.zeros(count, np.bool_),
        "events": np.zeros(count, np.uint32),
        "reward_terms": np.zeros((count, TERM_COUNT), np.float32),
    }
    if with_final:
        own["final_obs"] = observation_rows(count, layout, obs_dtype)
    results: dict[str, Any] = {"final_obs": None, **own, **take_buffers(buffers, own)}
    return StepResult(**results)


def result_arrays(result: StepResult) -> dict[str, NDArray[Any]]:
    """The fields of `slots.BATCH` that a result is. Observations are there under the dtype they have, and as bytes."""
    obs = result.obs
    fields = result._asdict()
    bits = {"events": "row_events", "reward_terms": "terms"}
    arrays = {bits.get(name, name): array for name, array in fields.items() if name not in {"obs", "final_obs"}}
    for name, dtype in (("obs", np.float32), ("obs16", np.uint16), ("obs8", np.int8)):
        fits = obs.itemsize == np.dtype(dtype).itemsize
        arrays[name] = obs.view(dtype) if fits else np.zeros((0, obs.shape[1]), dtype)
    return arrays | {"obs_bytes": obs.view(np.uint8)}


def take_buffers(given: Mapping[str, Any], own: Arrays, steps: int | None = None) -> dict[str, NDArray[Any]]:
    """The arrays to write into: those given, else our own.

    given  name of a StepResult field -> NumPy array, or anything that shows its memory as one (a CPU torch tensor,
           shared memory through `np.frombuffer`)
    own    what each would be without
    steps  with it every given array has an axis of that length in front, one entry per step

    Raises ProtocolError for an unknown name, a wrong shape or dtype, memory that is not contiguous or not writable, and
    two arrays that overlap.
    """
    unknown = sorted(set(given) - set(own))
    if unknown:
        raise ProtocolError(f"no such result: {listed(unknown)}; a step returns {listed(list(own), len(own))}")
    taken: dict[str, NDArray[Any]] = {}
    for name, buffer in given.items():
        array = buffer if isinstance(buffer, np.ndarray) else _seen(name, buffer)
        shape = own[name].shape if steps is None else (steps, *own[name].shape)
        if array.dtype != own[name].dtype or array.shape != shape:
            raise ProtocolError(f"buffer {name} is {array.dtype} {array.shape}; {own[name].dtype} {shape} is due")
        if not (array.flags.c_contiguous and array.flags.aligned and array.flags.writeable):
            raise ProtocolError(f"buffer {name} is not one writable, aligned stretch of memory: pass such an array")
        taken[name] = array
    for k, name in enumerate(taken):
        refuse_overlap({name: taken[name]}, {other: taken[other] for other in list(taken)[:k]})
    return taken


def refuse_overlap(some: Arrays, others: Arrays) -> None:
    """Raises ProtocolError where one of `some` shares memory with one of `others` (S115)."""
    for name, array in some.items():
        for other, taken in others.items():
            if np.may_share_memory(array, taken):
                raise ProtocolError(f"{other} and {name} overlap: give each memory of its own")


def _seen(name: str, buffer: Any) -> NDArray[Any]:
    """The memory of a foreign array, not a copy of it."""
    if not hasattr(buffer, "__array__"):
        raise ProtocolError(f"buffer {name} is {type(buffer).__name__}: pass an array, or a tensor in host memory")
    array = np.asarray(buffer)
    if not np.may_share_memory(array, np.asarray(buffer)):
        raise ProtocolError(f"buffer {name} ({type(buffer).__name__}) shows no memory that could be written in place")
    return array
