"""Moving the agents of a world by their models: those of the classic model sixteen at a time, others one by one.

Both ways give the same bits. A step of the classic model is a chain of divisions and a square root, which one agent
after the other costs ten times what the block does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.simulation.coefficients import C_ACCELERATION, C_SPEED, C_STEER, C_THROTTLE
from skidpad.simulation.kernels.compile import kernel
from skidpad.simulation.kernels.dynamics import (
    ACCEL_BOX,
    CLASSIC,
    HALF,
    JERK,
    JERK_V2,
    ONE,
    SPEED_LIMIT,
    STEER_LIMIT,
    STEER_RATE,
    THREE_HALVES,
    TWO,
    WHEELBASE_SHARE,
    ZERO,
    moved,
)
from skidpad.simulation.kernels.trig import QUARTER_PI, small_cosine, small_sine, wrap
from skidpad.simulation.state import (
    ACCEL_LAT,
    ACCEL_LONG,
    BRAKED,
    COMMAND_ACCEL,
    COMMAND_STEER,
    COS,
    HEADING,
    LENGTH,
    MODEL,
    P_DT,
    RESETS_ON_STOP,
    SIN,
    SPEED,
    STEERING,
    YAW_RATE,
    X,
    Y,
)

F = np.float32
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]
FULL_BRAKE = F(-4.0)  # m/s^2, the strongest command of the classic box
FULL_BRAKE_JERK, RELEASE_JERK = F(-15.0), F(4.0)  # m/s^3, likewise of the jerk box

# Rows of the block, as offsets: sixteen agents in each, inputs first.
LANES = 16
(
    IN_X,
    IN_Y,
    IN_COS,
    IN_SIN,
    IN_SPEED,
    IN_STEERING,
    IN_LENGTH,
    IN_ACCEL,
    IN_STEER,
    IN_THROTTLE,
    IN_STEER_GAIN,
    IN_ACCEL_GAIN,
    IN_SPEED_GAIN,
    OUT_X,
    OUT_Y,
    OUT_COS,
    OUT_SIN,
    OUT_SPEED,
    OUT_STEERING,
    OUT_ALONG,
    OUT_ASIDE,
    OUT_RATE,
    OUT_TURN,
) = (np.uintp(LANES * row) for row in range(23))
BLOCK = LANES * 23


@kernel
def hold_brake(a: int, f4: F32, u1: U8, coef: F32, dt: np.float32) -> None:
    """Command agent a to brake fully, to rest and no further, with the wheels straight; marks it BRAKED."""
    speed, model = f4[SPEED, a], u1[MODEL, a]
    u1[BRAKED, a] = 1
    if model == JERK or model == JERK_V2:
        release = -f4[ACCEL_LONG, a] / dt
        f4[COMMAND_ACCEL, a] = FULL_BRAKE_JERK if speed > ZERO else RELEASE_JERK if speed < ZERO else release
        f4[COMMAND_STEER, a] = -f4[ACCEL_LAT, a] / dt
        return
    f4[COMMAND_ACCEL, a] = max(FULL_BRAKE, -max(speed, ZERO) / (dt * coef[C_THROTTLE, a]))
    f4[COMMAND_STEER, a] = ZERO


@kernel
def move(agent: int, f4: F32, u1: U8, coef: F32, parameters: F32) -> None:
    """Take an agent one step on by its model and its commands: pose, speed, steering, accelerations and yaw rate.

    f4, u1      (fields, A)        state blocks
    coef        (36, A)       f32  `coefficients`
    parameters  (PARAMETERS,) f32  of which P_DT and RESETS_ON_STOP

    Whoever's brakes are held releases them at rest, or a jerk model would go on backwards.
    """
    a = np.uintp(agent)
    dt = parameters[P_DT]
    x, y, cosine, sine, speed, steering, along, aside, turn = moved(
        np.int64(u1[MODEL, a]),
        f4[X, a],
        f4[Y, a],
        f4[COS, a],
        f4[SIN, a],
        f4[SPEED, a],
        f4[STEERING, a],
        f4[ACCEL_LONG, a],
        f4[ACCEL_LAT, a],
        f4[LENGTH, a],
        f4[COMMAND_ACCEL, a],
        f4[COMMAND_STEER, a],
        coef[C_THROTTLE, a],
        coef[C_STEER, a],
        coef[C_ACCELERATION, a],
        coef[C_SPEED, a],
        parameters[RESETS_ON_STOP] > ZERO or u1[BRAKED, a] != 0,
        dt,
    )
    f4[X, a], f4[Y, a], f4[COS, a], f4[SIN, a] = x, y, cosine, sine
    f4[HEADING, a] = wrap(f4[HEADING, a] + turn)
    f4[SPEED, a], f4[STEERING, a], f4[YAW_RATE, a] = speed, steering, turn / dt
    f4[ACCEL_LONG, a], f4[ACCEL_LAT, a] = along, aside


@kernel
def classic_block(block: F32, dt: np.float32) -> None:
    """`dynamics.moved` under the classic model for every lane of a block, (BLOCK,) f32, whose turn is below pi/4.

    The array is flat, its offsets are known in advance and no function returns a pair: only so is the loop vectorised.
    """
    slew = STEER_RATE * dt
    for lane in range(LANES):
        k = np.uintp(lane)
        cosine, sine, before, steering = (
            block[k + IN_COS],
            block[k + IN_SIN],
            block[k + IN_SPEED],
            block[k + IN_STEERING],
        )
        accel = min(block[k + IN_THROTTLE] * block[k + IN_ACCEL], ACCEL_BOX * block[k + IN_ACCEL_GAIN])
        steer = block[k + IN_STEER_GAIN] * block[k + IN_STEER]
        fastest = SPEED_LIMIT * block[k + IN_SPEED_GAIN]
        steering = steering + min(max(steer - steering, -slew), slew)
        steering = min(max(steering, -STEER_LIMIT), STEER_LIMIT)
        speed = min(max(before + accel * dt, -fastest), fastest)
        q = HALF * small_sine(steering) / small_cosine(steering)
        cos_beta = ONE / np.sqrt(ONE + q * q)
        sin_beta = q * cos_beta
        travel = speed * dt
        turn = TWO * travel / (WHEELBASE_SHARE * block[k + IN_LENGTH]) * sin_beta
        s, c = small_sine(turn), small_cosine(turn)
        along, aside = cosine * c - sine * s, sine * c + cosine * s
        scale = THREE_HALVES - HALF * (along * along + aside * aside)
        rate = turn / dt
        block[k + OUT_X] = block[k + IN_X] + travel * (cosine * cos_beta - sine * sin_beta)
        block[k + OUT_Y] = block[k + IN_Y] + travel * (sine * cos_beta + cosine * sin_beta)
        block[k + OUT_COS], block[k + OUT_SIN] = along * scale, aside * scale
        block[k + OUT_SPEED], block[k + OUT_STEERING] = speed, steering
        block[k + OUT_ALONG], block[k + OUT_ASIDE] = (speed - before) / dt, speed * rate
        block[k + OUT_RATE], block[k + OUT_TURN] = rate, turn


@kernel
def move_all(movers: I32, count: int, f4: F32, u1: U8, coef: F32, parameters: F32, block: F32) -> None:
    """`move` for the agents movers[:count].

    movers  (>= count,)  i32   overwritten
    block   (BLOCK,)     f32   scratch
    """
    waiting = 0  # agents of the classic model in the block; their numbers stand at the front of `movers`
    for n in range(count):
        a = np.uintp(movers[n])
        if u1[MODEL, a] != CLASSIC:
            move(movers[n], f4, u1, coef, parameters)
            continue
        movers[waiting] = movers[n]
        k = np.uintp(waiting % LANES)
        block[k + IN_X], block[k + IN_Y], block[k + IN_COS], block[k + IN_SIN] = (
            f4[X, a],
            f4[Y, a],
            f4[COS, a],
            f4[SIN, a],
        )
        block[k + IN_SPEED], block[k + IN_STEERING], block[k + IN_LENGTH] = f4[SPEED, a], f4[STEERING, a], f4[LENGTH, a]
        block[k + IN_ACCEL], block[k + IN_STEER] = f4[COMMAND_ACCEL, a], f4[COMMAND_STEER, a]
        block[k + IN_THROTTLE], block[k + IN_STEER_GAIN] = coef[C_THROTTLE, a], coef[C_STEER, a]
        block[k + IN_ACCEL_GAIN], block[k + IN_SPEED_GAIN] = coef[C_ACCELERATION, a], coef[C_SPEED, a]
        waiting += 1
        if waiting % LANES == 0:
            _write_block(movers[waiting - LANES : waiting], f4, u1, coef, parameters, block)
    rest = waiting % LANES
    if rest:
        _write_block(movers[waiting - rest : waiting], f4, u1, coef, parameters, block)


@kernel
def _write_block(movers: I32, f4: F32, u1: U8, coef: F32, parameters: F32, block: F32) -> None:
    """Step the block and write what became of its agents, movers (<= 16,) i32; lanes beyond them are old numbers."""
    classic_block(block, parameters[P_DT])
    for lane in range(movers.shape[0]):
        k, a = np.uintp(lane), np.uintp(movers[lane])
        turn = block[k + OUT_TURN]
        if not abs(turn) < QUARTER_PI:
            move(movers[lane], f4, u1, coef, parameters)
            continue
        f4[X, a], f4[Y, a], f4[COS, a], f4[SIN, a] = (
            block[k + OUT_X],
            block[k + OUT_Y],
            block[k + OUT_COS],
            block[k + OUT_SIN],
        )
        f4[HEADING, a] = wrap(f4[HEADING, a] + turn)
        f4[SPEED, a], f4[STEERING, a], f4[YAW_RATE, a] = (
            block[k + OUT_SPEED],
            block[k + OUT_STEERING],
            block[k + OUT_RATE],
        )
        f4[ACCEL_LONG, a], f4[ACCEL_LAT, a] = block[k + OUT_ALONG], block[k + OUT_ASIDE]
