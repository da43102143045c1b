"""Pictures of scenes: what is drawn where, and which arguments are refused."""

from __future__ import annotations

import numpy as np
import pytest

from skidpad.rendering import topdown
from skidpad.rendering.topdown import SHIFT, draw_scene, fit, png, ribbon
from skidpad.scenes.scene import Scene
from skidpad.scenes.synthetic import FIXTURES, synthetic


def test_camera_fits_and_keeps_the_handedness() -> None:
    """Everything lies inside the picture and north is up: a flipped axis turns every left turn into a right one."""
    xy = np.array([[-50.0, 0.0], [50.0, 0.0], [0.0, 20.0]])
    camera = fit(xy, 800, 600)
    pixels = camera.pixels(xy) / (1 << SHIFT)
    assert (pixels >= 0).all()
    assert (pixels[:, 0] <= 800).all()
    assert (pixels[:, 1] <= 600).all()
    assert pixels[0, 0] < pixels[1, 0]
    assert pixels[2, 1] < pixels[0, 1]


def test_cars_are_drawn_where_they_are(crossing: Scene) -> None:
    """The centre of each present vehicle has its colour; a wrong row or frame moves every car."""
    picture = draw_scene(crossing, row=10)
    camera = fit(topdown._shown_points(crossing), 1600, 1200)
    tracks = crossing.tracks
    seen = 0
    for track in np.flatnonzero(tracks.valid[:, 10]):
        column, row = camera.pixels(np.array([[tracks.x[track, 10], tracks.y[track, 10]]]))[0] >> SHIFT
        expected = topdown.SDC_COLOUR if track == crossing.meta.sdc else topdown.TYPE_COLOURS[1]
        seen += tuple(int(c) for c in picture[row, column]) == expected
    assert seen == tracks.valid[:, 10].sum()


def test_rows_differ(crossing: Scene) -> None:
    """Two rows of moving traffic give two pictures; the same row gives the same bytes."""
    assert (draw_scene(crossing, row=0) != draw_scene(crossing, row=40)).any()
    assert png(draw_scene(crossing, row=5)) == png(draw_scene(crossing, row=5))


def test_ribbon_is_as_wide_as_the_lane(crossing: Scene) -> None:
    """The outline of a lane lies half a width to either side of its centre line."""
    element = int(crossing.road.lane_element[0])
    rows = crossing.road.points(element)
    outline = ribbon(crossing, element)
    half = len(outline) // 2
    widths = np.linalg.norm(outline[:half] - outline[half:][::-1], axis=1)
    assert np.allclose(widths, crossing.road.width[rows], atol=1e-3)


@pytest.mark.parametrize("name", sorted(FIXTURES))
def test_every_fixture_is_drawn(name: str) -> None:
    """No road shape breaks the drawing, with or without traffic; something is on the picture."""
    picture = draw_scene(synthetic(name), width=400, height=300)
    assert picture.shape == (300, 400, 3)
    assert (picture != np.array(topdown.BACKGROUND, np.uint8)).any()


def test_bad_arguments_are_refused(crossing: Scene) -> None:
    """A row outside the log and a size nobody can hold get a sentence with the allowed range."""
    with pytest.raises(ValueError, match="expected 0 to"):
        draw_scene(crossing, row=10_000)
    with pytest.raises(ValueError, match="expected 64 to"):
        draw_scene(crossing, width=10, height=10)
