"""Pictures of recorded observations: what stands in the rows stands where the rows say, and nothing else (E91, E94)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from observed_traces import with_observations

from skidpad.rendering import observed as seen
from skidpad.rendering import views
from skidpad.rendering.clips import VIEWS, ClipSettings, film_of, write_clips
from skidpad.rendering.observed import Observed
from skidpad.rendering.observed_views import ObservedFilm, upright
from skidpad.rendering.topdown import EDGE_COLOUR, SHIFT
from skidpad.runs.trace import Trace
from skidpad.runs.trace_file import encode_trace, read_trace
from skidpad.scenes.scene import Scene
from skidpad.simulation.layout import LAYOUTS

Recorded = Callable[..., Trace]


@pytest.fixture
def drive(crossing: Scene, make_trace: Recorded) -> Trace:
    """A case on the crossing with hand-written observations of the vehicle under test."""
    return with_observations(make_trace(crossing, "policy", shift=0.5))


def colours(film: ObservedFilm, picture: np.ndarray, xy: np.ndarray) -> list[tuple[int, ...]]:
    """Colours of a one-agent picture at points of the agent's frame."""
    at = film.camera(film.height, film.width).pixels(upright(xy)) >> SHIFT
    return [tuple(picture[row, column].tolist()) for column, row in at]


def test_what_was_given_is_where_the_row_says(drive) -> None:
    """E91: in `bev` a partner, the road's edge and the agent itself stand at their numbers times the divisors, forward
    up and left left; a mirrored picture would show every overtaking on the wrong side."""
    film = ObservedFilm(drive, width=640, height=640)
    seen_partners = 0
    for k in range(0, film.observed.steps, 4):
        rows = film.observed.read(k, 0)
        picture = film.frame(k)
        assert colours(film, picture, np.zeros((1, 2)))[0] == views.UNDER_TEST
        assert colours(film, picture, np.array([[0.0, 12.0]])) == [EDGE_COLOUR]
        assert colours(film, picture, np.array([[0.0, -12.0]])) != [EDGE_COLOUR]
        places = rows["partners"].column("x", "y")
        inside = places[(np.abs(places[:, 1]) < 55) & (places[:, 0] > -30) & (places[:, 0] < 40)]
        inside = inside[np.linalg.norm(inside, axis=1) > 6]
        assert set(colours(film, picture, inside)) <= {views.OTHER_POLICY}
        seen_partners += len(inside)
    assert seen_partners


def test_rows_are_read_back_in_metres(drive) -> None:
    """E94: numbers times divisors, by feature name; places equal those of the true state in the agent's frame."""
    observed, agent = Observed(drive), int(drive["policy_agent"][0])
    for k in (0, 9):
        rows = observed.read(k, 0)
        assert seen.ego_size(rows) == pytest.approx(
            (drive["length"][0, k, agent], drive["width"][0, k, agent]), rel=1e-6
        )
        assert seen.goals(rows) == pytest.approx(np.array([[20.0, 0.0]]))
        segments = seen.segments(rows)
        assert segments.kind.tolist() == [seen.LANE, seen.EDGE]
        assert segments.half == pytest.approx([10.0, 10.0])
        distance = np.hypot(drive["x"][0, k] - drive["x"][0, k, agent], drive["y"][0, k] - drive["y"][0, k, agent])
        there = np.sort(distance[(drive["length"][0, k] > 0) & (distance > 0)])[: len(rows["partners"].slot)]
        assert np.linalg.norm(rows["partners"].column("x", "y"), axis=1) == pytest.approx(there, rel=1e-5)


@pytest.mark.parametrize("packing", ["float32", "bfloat16", "int8"])
def test_cut_and_dropped_are_told_apart(crossing, make_trace, packing) -> None:
    """E94: with one slot the others near are cut; with no partner shown though slots are free they are dropped; with
    room for all there is neither. Rows of fewer bits still find their agents."""
    plain = make_trace(crossing, "policy")

    def missed(**changes: object) -> list[tuple[int, int]]:
        observed = Observed(with_observations(plain, packing=packing, **changes))
        counts = []
        for k in range(0, observed.steps, 5):
            found = observed.missed(k, 0, observed.read(k, 0)["partners"])
            counts.append((len(found.cut), len(found.dropped)))
        return counts

    assert all(count == (0, 0) for count in missed(slots=64))
    few = missed(slots=1)
    assert any(cut for cut, _ in few)
    assert not any(dropped for _, dropped in few)
    assert any(dropped and not cut for cut, dropped in missed(slots=64, blind=True))


def test_every_layout_of_the_house_can_be_drawn(crossing, make_trace) -> None:
    """E91: whatever a layout's blocks are, a row of it gives a picture; a feature renamed in the table must be renamed
    here, or it would vanish from every film."""
    plain = make_trace(crossing, "policy")
    rng = np.random.default_rng(0)
    for layout in LAYOUTS.values():
        blocks = [
            {
                "name": block.name,
                "rows": block.rows,
                "features": [[f.name, f.unit, f.divisor, None, None] for f in block.features],
            }
            for block in layout.blocks
        ]
        meta = type(plain.meta)(**(vars(plain.meta) | {"observed": {"layout": layout.id, "blocks": blocks}}))
        numbers = rng.uniform(0.05, 0.9, (1, plain.steps, 1, layout.size)).astype(np.float32)
        arrays = plain.arrays | {"observation": numbers}
        arrays["action_applied"] = np.zeros((1, plain.steps, 1, 2), np.float32)
        arrays["action_clipped"] = np.zeros((1, plain.steps, 1), np.bool_)
        film = ObservedFilm(Trace(meta, arrays), width=320, height=240)
        rows = film.observed.read(0, 0)
        assert len(seen.goals(rows))
        road = any(name in rows for name in seen.ROAD_BLOCKS)
        assert bool(len(seen.segments(rows).half)) is road
        assert film.frame(0).std() > 1


def test_every_view_of_the_enumeration_gives_a_file(crossing, drive, tmp_path) -> None:
    """E87, E91: the four names, one file each, drawn from one trace and the same from its file."""
    settings = ClipSettings(views=VIEWS, width=128, height=96, max_steps=3)
    names = [path.name for path in write_clips(tmp_path, drive, crossing, settings, stem="a")]
    assert names == ["a.mp4", "a_bev.mp4", "a_topdown_sim.mp4", "a_bev_all.mp4"]
    again = read_trace(encode_trace(drive))
    for view in VIEWS:
        one, two = (film_of(trace, crossing, view, width=128, height=96).frame(4) for trace in (drive, again))
        assert (one == two).all()


def test_bev_all_shows_everybody_once(drive) -> None:
    """E91: the grid has a cell for each agent that a policy drove; each cell is what `bev` would show, smaller."""
    three = dict(drive.arrays)
    for name in ("observation", "value", "distribution", "action", "action_applied", "action_clipped"):
        three[name] = np.repeat(drive[name], 3, axis=2)
    three["policy_agent"] = np.array([0, 1, 2], np.int32)
    film = ObservedFilm(Trace(drive.meta, three), grid=True, width=640, height=480)
    assert (film.columns, film.lines) == (2, 2)
    picture = film.frame(0).copy()
    for n, agent in enumerate(film.observed.agents):
        rows, columns = film.cell(n)
        cell = picture[rows, columns]
        blue = (cell == np.array(views.UNDER_TEST)).all(axis=2)
        assert blue.any() == (drive["length"][0, 0, agent] > 0)


def test_a_trace_without_observations_says_how_to_get_them(crossing, make_trace) -> None:
    """E94: a blank picture would look like a blind driver."""
    with pytest.raises(ValueError, match='record = "observations"'):
        film_of(make_trace(crossing, "idm"), crossing, "bev", width=128, height=96)
