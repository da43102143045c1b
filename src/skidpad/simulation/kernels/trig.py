"""Sine, cosine, arc tangent and exponential in float32 as polynomials: the same bits on every machine, unlike the
system's own.

Coefficients are minimax fits of relative error (Lawson's iteration on Chebyshev nodes) on the reduced ranges: 4e-9 for
sine and cosine on [-pi/4, pi/4], 2e-8 for the arc tangent on [-tan(pi/8), tan(pi/8)]; float32 rounding dominates.
"""

from __future__ import annotations

import numpy as np

from skidpad.simulation.kernels.compile import kernel

F = np.float32
ZERO, HALF, ONE, TWO = F(0.0), F(0.5), F(1.0), F(2.0)
PI, TWO_PI, HALF_PI, QUARTER_PI = F(np.pi), F(2 * np.pi), F(np.pi / 2), F(np.pi / 4)
INVERSE_TWO_PI, INVERSE_HALF_PI = F(0.5 / np.pi), F(2.0 / np.pi)
# pi/2 in three parts whose products with small integers are exact (Cody and Waite 1980): the reduced angle keeps its
# bits near multiples of pi/2.
HALF_PI_HIGH, HALF_PI_MIDDLE, HALF_PI_LOW = F(1.5703125), F(4.837512969970703e-4), F(7.54978995489188e-8)
S1, S2, S3 = F(-1.66666502e-1), F(8.33201645e-3), F(-1.95018220e-4)
C1, C2, C3, C4 = F(-4.99999996e-1), F(4.16666132e-2), F(-1.38865291e-3), F(2.43726792e-5)
A1, A2, A3, A4 = F(-3.3332799e-1), F(1.9974470e-1), F(-1.3852087e-1), F(7.986732e-2)
TAN_EIGHTH_PI = F(0.41421356)
# ln 2 in two parts whose products with small integers are exact; on [-ln 2 / 2, ln 2 / 2] the Taylor series to the
# seventh power is within 1e-8.
INVERSE_LN_2, LN_2_HIGH, LN_2_LOW = F(1.44269504), F(0.693359375), F(-2.12194440e-4)
E2, E3, E4, E5, E6, E7 = F(1 / 2), F(1 / 6), F(1 / 24), F(1 / 120), F(1 / 720), F(1 / 5040)
EXPONENT_LIMIT, TANH_ONE = F(80.0), F(9.0)


@kernel
def sincos(angle: np.float32) -> tuple[np.float32, np.float32]:
    """(sine, cosine) of a float32 angle [rad]; within 2e-7 for |angle| < 1000."""
    quadrant = np.floor(angle * INVERSE_HALF_PI + HALF)
    r = angle - quadrant * HALF_PI_HIGH - quadrant * HALF_PI_MIDDLE - quadrant * HALF_PI_LOW
    z = r * r
    sine = r + r * z * (S1 + z * (S2 + z * S3))
    cosine = ONE + z * (C1 + z * (C2 + z * (C3 + z * C4)))
    turn = np.int32(quadrant) & np.int32(3)
    if turn == 0:
        return sine, cosine
    if turn == 1:
        return cosine, -sine
    if turn == 2:
        return -sine, -cosine
    return -cosine, sine


@kernel
def small_sine(angle: np.float32) -> np.float32:
    """Sine of an angle [rad] within pi/4 of 0: that of `sincos` to the bit, without its reduction.

    One value and not two, because a loop over a function that returns a pair is not vectorised.
    """
    z = angle * angle
    sine: np.float32 = angle + angle * z * (S1 + z * (S2 + z * S3))
    return sine


@kernel
def small_cosine(angle: np.float32) -> np.float32:
    """Cosine of such an angle, likewise."""
    z = angle * angle
    cosine: np.float32 = ONE + z * (C1 + z * (C2 + z * (C3 + z * C4)))
    return cosine


@kernel
def arctan2(y: np.float32, x: np.float32) -> np.float32:
    """Angle of (x, y) [rad] in (-pi, pi]; 0 at the origin; within 3e-7."""
    ax, ay = abs(x), abs(y)
    if ax == ZERO and ay == ZERO:
        return ZERO
    t = min(ax, ay) / max(ax, ay)
    offset = ZERO
    if t > TAN_EIGHTH_PI:  # arctan t = pi/4 + arctan((t - 1) / (t + 1))
        t = (t - ONE) / (t + ONE)
        offset = QUARTER_PI
    z = t * t
    angle = offset + t + t * z * (A1 + z * (A2 + z * (A3 + z * A4)))
    if ay > ax:
        angle = HALF_PI - angle
    if x < ZERO:
        angle = PI - angle
    return -angle if y < ZERO else angle


@kernel
def wrap(angle: np.float32) -> np.float32:
    """The same angle in (-pi, pi]; an angle already there keeps its bits."""
    if angle > PI or angle <= -PI:
        angle = angle - TWO_PI * np.floor(angle * INVERSE_TWO_PI + HALF)
        if angle <= -PI:
            angle = PI
    return angle


@kernel
def exponential(x: np.float32) -> np.float32:
    """e^x, within 3e-7 of its value; arguments beyond -80 and 80 [1] count as those."""
    x = min(max(x, -EXPONENT_LIMIT), EXPONENT_LIMIT)
    k = np.floor(x * INVERSE_LN_2 + HALF)
    r = x - k * LN_2_HIGH - k * LN_2_LOW
    p = ONE + r * (ONE + r * (E2 + r * (E3 + r * (E4 + r * (E5 + r * (E6 + r * E7))))))
    # 2^k, written as a float's exponent.
    power: np.float32 = np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)
    value: np.float32 = p * power
    return value


@kernel
def hyperbolic_tangent(x: np.float32) -> np.float32:
    """tanh(x), within 2e-7."""
    e = exponential(TWO * min(max(x, -TANH_ONE), TANH_ONE))
    return (e - ONE) / (e + ONE)
