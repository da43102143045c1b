"""Small made-up worlds of rollouts: cars, a cyclist and a pedestrian that wander on two levels, edges, lights."""

from __future__ import annotations

import numpy as np

from skidpad.evaluation.rollouts import RolloutCase, Rollouts, make_edges, make_lights, make_log, make_rollouts

STEPS, NOW = 91, 10


def straight(n: int = 4, *, speed: float = 10.0, apart: float = 50.0, scored=None, rows: int = STEPS, **more) -> dict:
    """Fields of a log of n cars that drive along +x, `apart` metres from each other sideways."""
    x = np.broadcast_to(np.arange(rows) * 0.1 * speed, (n, rows))
    fields = {
        "object_id": np.arange(n) + 100,
        "object_type": np.ones(n),
        "length": np.full(n, 4.0),
        "width": np.full(n, 2.0),
        "height": np.full(n, 1.5),
        "x": x,
        "y": np.repeat(np.arange(n) * apart, rows).reshape(n, rows),
        "z": np.zeros((n, rows)),
        "heading": np.zeros((n, rows)),
        "valid": np.ones((n, rows)),
        "scored": np.arange(n) if scored is None else scored,
    }
    return fields | more


def repeated(log, count: int = 32) -> Rollouts:
    """The rows of the log after now, `count` times."""
    poses = [np.repeat(getattr(log, name)[None, :, NOW + 1 :], count, axis=0) for name in ("x", "y", "z", "heading")]
    return make_rollouts(log.object_id, *poses)


def square_edges(half: float = 500.0):
    """A ring around the origin, drivable inside: counter-clockwise, so the inside is on the left."""
    corners = half * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)])
    return make_edges(corners, [0, 5])


def no_lights():
    """A map whose format carries lights, without any."""
    return make_lights(np.zeros((0, 2)), [0], [], [], np.zeros((0, 2)), np.zeros((STEPS, 0)))


def world(
    seed: int = 0, *, count: int = 32, objects: int = 6, turn: float = 0.0, shift=(0.0, 0.0, 0.0), order=None
) -> tuple[RolloutCase, Rollouts]:
    """A random case and its rollouts. `turn` and `shift` move the whole world, `order` permutes the objects."""
    rng = np.random.default_rng(seed)
    n, future = objects, STEPS - NOW - 1
    speed = rng.uniform(2, 14, (n, 1))
    heading = rng.uniform(-3, 3, (n, 1)) + np.cumsum(rng.normal(0, 0.01, (n, STEPS)), axis=1)
    x = rng.uniform(-25, 25, (n, 1)) + np.cumsum(0.1 * speed * np.cos(heading), axis=1)
    y = rng.uniform(-25, 25, (n, 1)) + np.cumsum(0.1 * speed * np.sin(heading), axis=1)
    z = np.repeat(np.where(np.arange(n) % 3 == 2, 6.0, 0.0)[:, None], STEPS, axis=1)
    valid = rng.random((n, STEPS)) < 0.97
    valid[:, NOW] = True
    sim_heading = heading[None, :, NOW, None] + np.cumsum(rng.normal(0, 0.02, (count, n, future)), axis=2)
    stride = 0.1 * speed * rng.uniform(0.5, 1.5, (count, n, 1))
    sim_x = x[None, :, NOW, None] + np.cumsum(stride * np.cos(sim_heading), axis=2)
    sim_y = y[None, :, NOW, None] + np.cumsum(stride * np.sin(sim_heading), axis=2)
    sim_z = np.repeat(np.repeat(z[None, :, NOW, None], count, axis=0), future, axis=2)
    ring = np.array([(-40, -40), (40, -40), (40, 40), (0, 25), (-40, 40), (-40, -40)], dtype=float)
    line = np.stack([np.linspace(-60, 60, 40), 5 * np.sin(np.linspace(0, 6, 40))], axis=1)
    lane = np.stack([np.linspace(-60, 60, 121), np.zeros(121)], axis=1)
    cos, sin = np.cos(turn), np.sin(turn)

    def moved(px, py):
        return cos * px - sin * py + shift[0], sin * px + cos * py + shift[1]

    def points(flat, height=None):
        px, py = moved(flat[:, 0], flat[:, 1])
        return np.stack([px, py] if height is None else [px, py, np.full(len(flat), height + shift[2])], axis=1)

    order = np.arange(n) if order is None else np.asarray(order)
    log_x, log_y = moved(x, y)
    log = make_log(
        object_id=(np.arange(n) * 7 + 3)[order],
        object_type=np.array([1, 1, 2, 1, 3, 1, 1, 1])[np.arange(n) % 8][order],
        length=rng.uniform(3, 6, n)[order],
        width=rng.uniform(1.5, 2.5, n)[order],
        height=rng.uniform(1, 2, n)[order],
        x=log_x[order],
        y=log_y[order],
        z=(z + shift[2])[order],
        heading=(heading + turn)[order],
        valid=valid[order],
        scored=np.flatnonzero(order < max(2, n - 2)),
    )
    edges = make_edges(np.concatenate([points(ring, 0.0), points(line, 6.0)]), [0, len(ring), len(ring) + len(line)])
    lights = make_lights(
        points(np.concatenate([lane, lane[::-1] + np.array([0.0, 3.5])])),
        [0, 121, 242],
        [True, True],
        [0, 1],
        points(np.array([(5.0, 0.0), (-5.0, 3.5)])),
        np.repeat(np.arange(STEPS)[:, None] % 40 < 25, 2, axis=1),
    )
    sim_x, sim_y = moved(sim_x, sim_y)
    sim_z = sim_z + np.cumsum(rng.normal(0, 0.02, sim_z.shape), axis=2)
    poses = (sim_x, sim_y, sim_z + shift[2], sim_heading + turn)
    rollouts = make_rollouts(log.object_id, *(pose[:, order] for pose in poses))
    return RolloutCase(f"world-{seed}", log, edges, lights), rollouts
