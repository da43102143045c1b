"""Videos and still frames of recorded cases as files: their names, and writing several views of one case in one pass.

The paths come from the writer, in order; nothing is ever found by listing a folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from skidpad.artifacts.digests import digest_value
from skidpad.artifacts.files import replace
from skidpad.rendering.observed_views import ObservedFilm
from skidpad.rendering.strokes import Picture
from skidpad.rendering.topdown import png
from skidpad.rendering.video import write_film
from skidpad.rendering.views import Film, StateView
from skidpad.runs.trace import Trace
from skidpad.scenes.scene import Scene
from skidpad.settings.schema import ViewName

Format = Literal["mp4", "gif", "png"]
STATE_VIEWS: tuple[StateView, ...] = get_args(StateView)
VIEWS: tuple[ViewName, ...] = get_args(ViewName)
FORMATS: tuple[Format, ...] = get_args(Format)
PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,100}")
GIF_WIDTH = 640  # px: a GIF stores whole frames, so it is kept small


@dataclass(frozen=True)
class ClipSettings:
    """How clips are drawn.

    views          in order; each is a file of its own
    formats        mp4; gif; png: the middle frame
    width, height  px, even
    max_steps      steps shown; None shows all
    """

    views: tuple[ViewName, ...] = ("sim_state",)
    formats: tuple[Format, ...] = ("mp4",)
    width: int = 1280
    height: int = 720
    max_steps: int | None = None


def file_part(name: str) -> str:
    """A name of a scene, arm or evaluator as part of a file name: itself, or a short digest where a file system or a
    shell could stumble over it."""
    return name if PLAIN.fullmatch(name) and not name.startswith(".") else digest_value(name, "file part")[:12]


def clip_stem(scene: str, *, ego: int, replicate: int, arm: str, epoch: int, step: int) -> str:
    """File name of a clip without view and ending (E89): <scene>[_ego<track>][_r<K>][_<arm>]_epoch<E>_step<N>.

    ego  the track under test where the evaluator runs several cases of one scene, -1 where the scene says who it is

    Replicate 0 and the evaluated policy ("policy") go without saying; `write_clips` appends any view but sim_state.
    """
    words = [file_part(scene)]
    words += [f"ego{ego}"] if ego >= 0 else []
    words += [f"r{replicate}"] if replicate else []
    words += [file_part(arm)] if arm != "policy" else []
    return "_".join([*words, f"epoch{epoch}", f"step{step}"])


def write_clips(
    folder: Path, trace: Trace, scene: Scene, settings: ClipSettings, *, stem: str, caption: str = ""
) -> list[Path]:
    """Draw one case in every view and format into a folder, and return the files in order.

    stem  file name as `clip_stem` gives it; each file is complete or absent
    """
    written: list[Path] = []
    folder.mkdir(parents=True, exist_ok=True)
    for view in settings.views:
        film = film_of(trace, scene, view, width=settings.width, height=settings.height, title=caption)
        frames = len(film) if settings.max_steps is None else min(len(film), settings.max_steps + 1)
        name = stem if view == "sim_state" else f"{stem}_{view}"
        for form in settings.formats:
            path = folder / f"{name}.{form}"
            if form == "png":
                replace(path, png(film.frame(frames // 2)))
            elif form == "gif":
                replace(path, gif(_frames(film, frames), trace.meta.dt))
            else:
                write_film(path, (film.planes(k) for k in range(frames)), settings.width, settings.height, rate(trace))
            written.append(path)
    return written


def film_of(
    trace: Trace, scene: Scene, view: ViewName, *, width: int, height: int, title: str = ""
) -> Film | ObservedFilm:
    """The frames of a case in one view. Errors as `Film` and `ObservedFilm`."""
    if view == "sim_state" or view == "topdown_sim":
        return Film(trace, scene, view, width=width, height=height, title=title)
    return ObservedFilm(trace, grid=view == "bev_all", width=width, height=height, title=title)


def _frames(film: Film | ObservedFilm, count: int) -> Iterator[Picture]:
    return (film.frame(k) for k in range(count))


def rate(trace: Trace) -> Fraction:
    """Frames per second at which a film of the trace shows real time."""
    return Fraction(1_000_000, trace.meta.dt_us)


def gif(pictures: Iterator[Picture] | Sequence[Picture], seconds: float) -> bytes:
    """Pictures as an animated GIF, at most GIF_WIDTH pixels wide, each shown for `seconds`.

    Raises ValueError for no picture.
    """
    import io

    import cv2
    from PIL import Image

    images = []
    for picture in pictures:
        height, width = picture.shape[:2]
        if width > GIF_WIDTH:
            size = (GIF_WIDTH, max(2, round(height * GIF_WIDTH / width)))
            picture = np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)
        images.append(Image.fromarray(picture).quantize(64, dither=Image.Dither.NONE))
    if not images:
        raise ValueError("a GIF without a frame would not open")
    file = io.BytesIO()
    duration = max(20, round(1000 * seconds / 10) * 10)
    images[0].save(file, "GIF", save_all=True, append_images=images[1:], duration=duration, loop=0, optimize=False)
    return file.getvalue()
