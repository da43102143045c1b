"""Films of recorded cases: what is where on a frame, and files that open or are not there (E83-E96)."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from skidpad.rendering import clips, tiles, topdown, video, views
from skidpad.rendering.clips import ClipSettings, clip_stem, gif, write_clips
from skidpad.rendering.topdown import SHIFT
from skidpad.rendering.video import Mp4, encode_film
from skidpad.rendering.views import Film
from skidpad.runs.trace import Trace
from skidpad.runs.trace_file import encode_trace, read_trace
from skidpad.scenes.scene import SIGNAL_LIGHT, STATE_GREEN, STATE_RED, Scene

Recorded = Callable[..., Trace]


@pytest.fixture
def drive(crossing: Scene, make_trace: Recorded) -> Trace:
    """A case on the crossing in which the vehicle under test drives 0.5 m beside its log and collides half-way."""
    return make_trace(crossing, "policy", shift=0.5)


def pixel(film: Film, k: int, x: float, y: float) -> tuple[int, ...]:
    column, row = film.look(k).camera.pixels(np.array([[x, y]]))[0] >> SHIFT
    return tuple(film.frame(k)[row, column].tolist())


@pytest.mark.parametrize("view", clips.STATE_VIEWS)
@pytest.mark.parametrize("size", [(640, 360), (512, 512)])
def test_bodies_are_where_the_trace_has_them(crossing, drive, view, size) -> None:
    """E83: in every view the pixel at the middle of each body has the colour of who drives it; an axis turned or a
    camera off by a pixel row would put cars beside the road."""
    film = Film(drive, crossing, view, width=size[0], height=size[1])
    seen = 0
    for k in (0, 7, 20):
        for agent in np.flatnonzero(drive["length"][0, k] > 0).tolist():
            x, y = float(drive["x"][0, k, agent]), float(drive["y"][0, k, agent])
            column, row = film.look(k).camera.pixels(np.array([[x, y]]))[0] >> SHIFT
            if not (250 < column < film.width - 8 and 100 < row < film.height - 60):
                continue  # under the words, or outside
            expected = views.UNDER_TEST if agent in drive["scored"] else views.REPLAYED
            assert pixel(film, k, x, y) == expected, (k, agent)
            seen += 1
    assert seen >= 3


def test_the_camera_that_follows_keeps_its_agent_in_the_middle(crossing, drive) -> None:
    """topdown_sim: the followed agent stands at the middle of every frame, within the pixel that the map snaps to."""
    film = Film(drive, crossing, "topdown_sim", width=400, height=300)
    for k in range(0, len(film), 5):
        point = np.array([[drive["x"][0, k, film.follow], drive["y"][0, k, film.follow]]])
        column, row = film.look(k).camera.pixels(point)[0] / (1 << SHIFT)
        assert abs(column - 200) <= 1
        assert abs(row - 150) <= 1


def test_the_map_stands_still_under_the_camera(crossing, drive) -> None:
    """Tiles are cut without seams: a frame's map, with its signals, equals the map drawn as one picture there."""
    film = Film(drive, crossing, "topdown_sim", width=700, height=600)
    look = film.look(3)
    found = np.empty((600, 700, 3), np.uint8)
    film._tiles.into(found, look.left, look.top)
    whole = np.empty_like(found)
    whole[:] = topdown.BACKGROUND
    topdown.draw_map(whole, crossing, look.camera)
    signals = crossing.signals.count
    topdown.draw_signals(whole, crossing, look.camera, np.zeros(signals, np.int8), np.arange(signals))
    different = (found.astype(int) - whole.astype(int)).any(axis=2).mean()
    assert different < 0.002  # antialiasing of a line that ends at a tile's border


def test_a_collision_is_marked_when_it_happens_and_for_a_second(crossing, drive) -> None:
    """Issue 5: an event is drawn from its own step on, never before; a ring one step early accuses the wrong moment."""
    calm = Trace(drive.meta, {**drive.arrays, "events": np.zeros_like(drive["events"])})
    film, without = (Film(trace, crossing, "topdown_sim", width=640, height=640) for trace in (drive, calm))
    at = int(np.flatnonzero(drive["events"][0, :, film.follow])[0])

    def ringed(k: int) -> bool:
        changed = (film.frame(k) != without.frame(k)).any(axis=2)
        assert not changed.any() or changed.sum() > 150
        return bool(changed.any())

    after = round(views.MARK_S / drive.meta.dt)
    assert not ringed(at - 1)
    assert ringed(at)
    assert ringed(at + after - 1)
    assert not ringed(at + after)


def test_frames_are_a_function_of_the_trace(crossing, drive) -> None:
    """E83: a trace read back from its file gives the same pixels, in any order of frames."""
    again = read_trace(encode_trace(drive))
    first, second = Film(drive, crossing, width=320, height=240), Film(again, crossing, width=320, height=240)
    forwards = [first.frame(k).copy() for k in range(0, 20, 4)]
    backwards = [second.frame(k).copy() for k in reversed(range(0, 20, 4))][::-1]
    assert all((a == b).all() for a, b in zip(forwards, backwards, strict=True))


@pytest.mark.parametrize(("width", "height", "follow"), [(641, 480, None), (640, 32, None), (640, 480, 99)])
def test_impossible_films_are_refused(crossing, drive, width, height, follow) -> None:
    """E96, F57, EF35: odd or tiny sides, and an agent that does not exist, are named instead of drawn wrongly."""
    with pytest.raises(ValueError, match=r"expected even|is not in the trace"):
        Film(drive, crossing, width=width, height=height, follow=follow)


def decoded(data: bytes) -> list[np.ndarray]:
    import av

    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert stream.codec_context.pix_fmt == "yuv420p"
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]


def test_a_video_holds_its_frames(crossing, drive) -> None:
    """E96: a second decoder finds as many frames as were drawn, and they look as drawn (28 dB)."""
    film = Film(drive, crossing, width=320, height=240)
    frames = decoded(encode_film((film.planes(k) for k in range(9)), 320, 240, Fraction(10)))
    assert len(frames) == 9
    error = np.mean((frames[4].astype(float) - film.frame(4)) ** 2)
    assert 10 * np.log10(255**2 / error) > 28


def test_equal_films_are_equal_bytes(crossing, drive) -> None:
    """E95: one encoder thread and no time stamp: the same case gives the same file."""
    film = Film(drive, crossing, width=128, height=96)
    first, second = (encode_film((film.planes(k) for k in range(5)), 128, 96, Fraction(10)) for _ in range(2))
    assert first == second
    assert first.index(b"moov") < first.index(b"mdat")  # the index in front: plays while it loads


def test_a_film_says_whose_colour_is_whose(crossing, drive) -> None:
    """Issue 5: the legend, lower right, has a square of each colour that drives here, in order, and no other; on a
    picture too narrow for it there is none, or it would cover the scale."""
    found = Film(drive, crossing, width=640, height=480).frame(0)[480 - 22, 350:]
    runs = [
        tuple(colour) for colour, before in zip(found[1:].tolist(), found.tolist(), strict=False) if colour != before
    ]
    shown = [colour for colour in runs if colour in [entry for entry, _ in views.LEGEND]]
    assert shown == [views.UNDER_TEST, views.REPLAYED]
    narrow = Film(drive, crossing, width=200, height=480).frame(0)[480 - 22].tolist()
    assert list(views.REPLAYED) not in narrow


@pytest.mark.parametrize("view", clips.STATE_VIEWS)
def test_planes_are_those_of_the_whole_picture(crossing, drive, view) -> None:
    """E83: a video converts only pixels under strokes, and must show what converting the whole frame would: a stroke
    that draws outside its box leaves dirt behind, and so does a kept background with signals of an earlier frame. The
    last bit is free: OpenCV rounds by where a row is cut."""
    states = drive["signal_state"].copy()
    states[0, :10], states[0, 10:] = STATE_RED, STATE_GREEN
    film = Film(Trace(drive.meta, {**drive.arrays, "signal_state": states}), crossing, view, width=642, height=362)
    for k in (20, 3, 19, 4, len(film) - 1):
        whole = video.planes(film.frame(k)).astype(int)
        assert abs(film.planes(k) - whole).max() <= 1, k


def test_signals_are_drawn_in_the_state_of_their_moment(crossing, drive) -> None:
    """E83: tiles are kept between frames, their signals are not: a tile is drawn again when one of its own changed."""
    states = drive["signal_state"].copy()
    states[0, :5], states[0, 5:] = STATE_RED, STATE_GREEN
    trace = Trace(drive.meta, {**drive.arrays, "signal_state": states, "events": np.zeros_like(drive["events"])})
    film = Film(trace, crossing, width=640, height=360)
    ends = film.look(0).camera.pixels(crossing.signals.line[:, :, :2].mean(axis=1)) >> SHIFT
    seen = 0
    for (column, row), kind in zip(ends.tolist(), crossing.signals.kind.tolist(), strict=True):
        if not (250 < column < 632 and 100 < row < 300):
            continue
        expected = topdown.SIGNAL_COLOURS[STATE_GREEN if kind == SIGNAL_LIGHT else STATE_RED]
        assert tuple(film.frame(0)[row, column].tolist()) == topdown.SIGNAL_COLOURS[STATE_RED]
        assert tuple(film.frame(9)[row, column].tolist()) == expected
        assert tuple(film.frame(2)[row, column].tolist()) == topdown.SIGNAL_COLOURS[STATE_RED]
        seen += 1
    assert seen >= 1


def test_a_long_drive_does_not_keep_the_whole_map(crossing, drive, monkeypatch) -> None:
    """A camera that follows forgets the tiles it left, or a drive of kilometres would hold gigabytes."""
    monkeypatch.setattr(tiles, "TILE_PX", 64)
    film = Film(drive, crossing, "topdown_sim", width=128, height=128)
    for k in range(len(film)):
        film.planes(k)
        assert len(film._tiles._tiles) <= (tiles.KEPT + 1) * 9
        assert len(film._tiles._bare) <= len(film._tiles._tiles)


def test_colours_survive_the_video() -> None:
    """E96: what was drawn is what a player shows: the file names the matrix and range that its planes were made with,
    and flat colours come back within 4 of 255."""
    import av

    colours = [views.UNDER_TEST, views.REPLAYED, views.GOAL_COLOUR, topdown.BACKGROUND, (207, 34, 46), (255, 255, 255)]
    picture = np.concatenate([np.full((64, 64, 3), colour, np.uint8) for colour in colours], axis=1)
    data = encode_film([video.planes(picture)], picture.shape[1], 64, Fraction(10))
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.video[0].codec_context
        assert (stream.color_range, stream.colorspace) == (1, 6)
    for k, colour in enumerate(colours):
        found = decoded(data)[0][32, 64 * k + 32].astype(int)
        assert abs(found - colour).max() <= 4, colour


def test_one_frame_is_a_video_and_none_is_an_error(crossing, drive) -> None:
    """E96, F57, EF35: a case that ends at once still gives a file that opens; nothing gives no file."""
    film = Film(drive, crossing, width=128, height=96)
    assert len(decoded(encode_film([film.planes(0)], 128, 96, Fraction(10)))) == 1
    with pytest.raises(ValueError, match="without a frame"):
        encode_film([], 128, 96, Fraction(10))
    with pytest.raises(ValueError, match="must be even"):
        Mp4(127, 96, Fraction(10))


def test_a_fault_leaves_no_file(crossing, drive, tmp_path, monkeypatch) -> None:
    """E96, F57, EF35: a drawing that fails half-way leaves neither a torn video nor a temporary file."""
    original = Film.planes

    def breaks(self: Film, k: int) -> np.ndarray:
        if k == 3:
            raise RuntimeError("pen broken")
        return original(self, k)

    monkeypatch.setattr(Film, "planes", breaks)
    with pytest.raises(RuntimeError, match="pen broken"):
        write_clips(tmp_path, drive, crossing, ClipSettings(width=128, height=96), stem="a")
    assert list(tmp_path.iterdir()) == []


def test_clips_are_returned_by_the_writer(crossing, drive, tmp_path) -> None:
    """E87, E90: every view and form once, in order, bounded in steps; a stale file in the folder is not returned."""
    (tmp_path / "old.mp4").write_bytes(b"stale")
    settings = ClipSettings(views=clips.STATE_VIEWS, formats=("mp4", "gif", "png"), width=128, height=96, max_steps=4)
    found = write_clips(tmp_path, drive, crossing, settings, stem="case")
    stems = ("case", "case_topdown_sim")
    assert [path.name for path in found] == [f"{stem}.{form}" for stem in stems for form in ("mp4", "gif", "png")]
    assert len(decoded(found[0].read_bytes())) == 5
    from PIL import Image

    with Image.open(found[1]) as picture:
        assert picture.n_frames == 5  # type: ignore[attr-defined]


def test_gif_needs_a_frame() -> None:
    """E96: an empty GIF would not open, so there is none."""
    with pytest.raises(ValueError, match="without a frame"):
        gif(iter([]), 0.1)


def test_names_of_clips() -> None:
    """E89: the step is in the name, defaults are not, and a hostile scene name becomes a digest."""
    plain = clip_stem("USA_1-2.3", ego=-1, replicate=0, arm="policy", epoch=3, step=900)
    assert plain == "USA_1-2.3_epoch3_step900"
    full = clip_stem("a", ego=7, replicate=2, arm="idm", epoch=0, step=0)
    assert full == "a_ego7_r2_idm_epoch0_step0"
    for name in ("<script>alert(1)</script>", "../../etc", "x" * 300, ".", "a b", ""):
        stem = clip_stem(name, ego=-1, replicate=0, arm="policy", epoch=0, step=0)
        assert clips.PLAIN.fullmatch(stem), name
        assert name == "" or name not in stem or name == "."


def test_working_directory_and_environment_are_left_alone(crossing, drive, tmp_path, monkeypatch) -> None:
    """E92: drawing in a thread needs no display and no program, and changes nothing that other threads rely on."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("DISPLAY", raising=False)
    before, seen = (os.getcwd(), dict(os.environ)), []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.001):
            seen.append(os.getcwd() == before[0])

    watcher = threading.Thread(target=watch)
    watcher.start()
    write_clips(Path(tmp_path), drive, crossing, ClipSettings(width=128, height=96), stem="a")
    stop.set()
    watcher.join()
    assert seen
    assert all(seen)
    assert dict(os.environ) == before[1]
