"""On which lane is an agent, where on it, and how does it stand to it (S70)?

An agent stays on its lane, following exits, while its centre is within half the lane's width and its heading within 45
degrees; otherwise the nearby lane that fits best in distance and heading wins. The state depends on the map and the
agent's own past only, never on other agents, edges or rewards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.kernels.compile import kernel


class LaneState(NamedTuple):
    """Where each agent is on the lanes; flat arrays over agents. `lane` and `previous` are read and written, the rest
    written. Before the first step of an episode both are -1.

    lane        (A,)  i32         -1 = none within reach
    previous    (A,)  i32         the lane it was on before the present one; kept while there is none
    arc         (A,)  f32 [m]     position along the lane, the scene's `arc`; 0 without lane
    offset      (A,)  f32 [m]     from the centre line, left is positive; 0 without lane
    cos, sin    (A,)  f32         of the heading error, heading minus the lane's; 1, 0 without lane
    half_width  (A,)  f32 [m]     of the lane there; 0 without lane
    limit       (A,)  f32 [m/s]   NaN = unknown or no lane
    height      (A,)  f32 [m]     of the lane there; the agent's own z without lane
    """

    lane: NDArray[np.int32]
    previous: NDArray[np.int32]
    arc: NDArray[np.float32]
    offset: NDArray[np.float32]
    cos: NDArray[np.float32]
    sin: NDArray[np.float32]
    half_width: NDArray[np.float32]
    limit: NDArray[np.float32]
    height: NDArray[np.float32]
