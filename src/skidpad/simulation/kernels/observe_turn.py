"""One row of an observation: eight numbers loaded, moved and turned into the agent's frame, and stored at once.

Every layout keeps its rows, of road segments and of agents, in eight columns in the order in which it shows them, so
that this is the only place that turns anything (S16, S85). `_plain_turn` says what it does, and does it where nothing
is compiled or indices are checked. Otherwise it is vector code by hand: the compiler finds that in the eight formulas
too, but takes its time over every place that calls them.
"""

from __future__ import annotations

import numpy as np

from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.machine import CHECKED, COMPILED, turn_2, turn_3, turn_4, turn_5, turn_36
from skidpad.simulation.kernels.observe_rows import F32


@kernel
def _plain_turn(
    pair: int,
    source: F32,
    s: int,
    px: np.float32,
    py: np.float32,
    pz: np.float32,
    p6: np.float32,
    p7: np.float32,
    scale: np.float32,
    z_scale: np.float32,
    cosine: np.float32,
    sine: np.float32,
    low: np.float32,
    high: np.float32,
    out: F32,
    o: int,
) -> None:
    """`turn`, one number after the other."""
    back = -sine
    v0, v1 = (source[s, 0] - px) * scale, (source[s, 1] - py) * scale
    v2, v3, v4, v5 = (source[s, 2] - pz) * z_scale, source[s, 3], source[s, 4], source[s, 5]
    v6, v7 = source[s, 6] - p6, source[s, 7] - p7
    v0, v1 = v0 * cosine + v1 * sine, v1 * cosine + v0 * back
    if pair == 2:
        v2, v3 = v2 * cosine + v3 * sine, v3 * cosine + v2 * back
    elif pair == 3 or pair == 36:
        v3, v4 = v3 * cosine + v4 * sine, v4 * cosine + v3 * back
        if pair == 36:
            v6, v7 = v6 * cosine + v7 * sine, v7 * cosine + v6 * back
    elif pair == 4:
        v4, v5 = v4 * cosine + v5 * sine, v5 * cosine + v4 * back
    else:
        v5, v6 = v5 * cosine + v6 * sine, v6 * cosine + v5 * back
    out[o], out[o + 1] = min(max(v0, low), high), min(max(v1, low), high)
    out[o + 2], out[o + 3] = min(max(v2, low), high), min(max(v3, low), high)
    out[o + 4], out[o + 5] = min(max(v4, low), high), min(max(v5, low), high)
    out[o + 6], out[o + 7] = min(max(v6, low), high), min(max(v7, low), high)


if CHECKED or not COMPILED:
    turn = _plain_turn
else:

    @kernel
    def turn(
        pair: int,
        source: F32,
        s: int,
        px: np.float32,
        py: np.float32,
        pz: np.float32,
        p6: np.float32,
        p7: np.float32,
        scale: np.float32,
        z_scale: np.float32,
        cosine: np.float32,
        sine: np.float32,
        low: np.float32,
        high: np.float32,
        out: F32,
        o: int,
    ) -> None:
        """Write source[s] into out[o : o + 8]: columns 0 and 1 minus (px, py), times `scale`; column 2 minus pz, times
        `z_scale`; columns 6 and 7 minus p6 and p7; columns 0 and 1 and those of `pair` turned by (cosine, -sine); all
        clipped to [low, high].

        pair  first of the two columns that hold a direction: 2, 3, 4 or 5; 36 = 3, and a vector in 6 and 7 as well
        """
        if pair == 2:
            turn_2(source, s, px, py, pz, p6, p7, scale, z_scale, cosine, sine, low, high, out, o)
        elif pair == 3:
            turn_3(source, s, px, py, pz, p6, p7, scale, z_scale, cosine, sine, low, high, out, o)
        elif pair == 36:
            turn_36(source, s, px, py, pz, p6, p7, scale, z_scale, cosine, sine, low, high, out, o)
        elif pair == 4:
            turn_4(source, s, px, py, pz, p6, p7, scale, z_scale, cosine, sine, low, high, out, o)
        else:
            turn_5(source, s, px, py, pz, p6, p7, scale, z_scale, cosine, sine, low, high, out, o)
