"""Pictures as an mp4 that plays everywhere: H.264, yuv420p, index in front, one encoder thread, the same bytes twice.

Drawing and encoding overlap: the encoder releases the interpreter lock, so it runs beside the drawing of the next
frame. A file appears when it is complete or not at all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.files import replace

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.video.stream import VideoStream

PRESET = "ultrafast"
QUALITY = 23  # x264's constant quantiser: at 10 frames/s its rate factor doubles the bytes and costs a third more time
# What `planes` makes, said in the file: a player that is not told takes a large picture for BT.709 and shifts colours.
COLOURS = {"color_range": 1, "colorspace": 6, "color_primaries": 1, "color_trc": 1}  # limited, BT.601, 709, 709
PENDING = 4  # frames drawn ahead of the encoder


class Mp4:
    """An mp4 being made, frame by frame, in a temporary folder of its own that closing removes.

    width, height  [px]  even
    fps            frames per second, as a fraction of whole numbers

    Raises ValueError for an odd size or a rate that is not positive.
    """

    def __init__(self, width: int, height: int, fps: Fraction) -> None:
        import av

        if width <= 0 or height <= 0 or width % 2 or height % 2:
            raise ValueError(f"video of {width} x {height} pixels: both sides must be even")
        if fps <= 0:
            raise ValueError(f"video of {fps} frames per second: must be above 0")
        self.width, self.height = width, height
        # A real file, since moving the index to the front opens it again by name.
        self._folder = tempfile.TemporaryDirectory(prefix="skidpad-video-")
        self._file = Path(self._folder.name) / "film.mp4"
        self._container: OutputContainer = av.open(
            str(self._file), "w", format="mp4", options={"movflags": "+faststart", "fflags": "+bitexact"}
        )
        self._stream: VideoStream = self._container.add_stream("libx264", rate=fps)
        self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
        self._stream.options = {"preset": PRESET, "qp": str(QUALITY)}
        self._stream.codec_context.thread_count = 1
        for name, code in COLOURS.items():
            setattr(self._stream.codec_context, name, code)
        self._stream.codec_context.flags |= 1 << 23  # bit-exact: no version strings in the file
        self.frames = 0

    def encode(self, yuv: NDArray[np.uint8]) -> None:
        """Append one frame as `planes` gives it. The encoder reads the array itself: it must not be written over."""
        import av

        frame = av.VideoFrame.from_numpy_buffer(yuv, format="yuv420p")
        frame.pts, frame.time_base = self.frames, 1 / Fraction(self._stream.average_rate or 1)
        self._container.mux(self._stream.encode(frame))
        self.frames += 1

    def finish(self) -> bytes:
        """The file. Raises ValueError when no frame was added: such a file would not open."""
        if not self.frames:
            raise ValueError("a video without a frame would not open")
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._file.read_bytes()

    def __enter__(self) -> Mp4:
        return self

    def __exit__(self, *exc: object) -> None:
        self._container.close()
        self._folder.cleanup()


class Planes(NamedTuple):
    """Brightness and the two colour differences of a picture of W x H pixels, as views into one array.

    luma       (H, W)          u8
    blue, red  (H / 2, W / 2)  u8   one value per 2 x 2 pixels
    """

    luma: NDArray[np.uint8]
    blue: NDArray[np.uint8]
    red: NDArray[np.uint8]


def planes(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """An RGB picture (H, W, 3) u8 with even sides as yuv420p planes, (3 H / 2, W) u8 (ITU-R BT.601, limited range)."""
    import cv2

    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_RGB2YUV_I420), dtype=np.uint8)


def split(yuv: NDArray[np.uint8], height: int, width: int) -> Planes:
    """The planes that lie in an array (3 H / 2, W) u8 one after the other."""
    flat, pixels = yuv.reshape(-1), height * width
    quarter, half = pixels // 4, (height // 2, width // 2)
    return Planes(
        flat[:pixels].reshape(height, width),
        flat[pixels : pixels + quarter].reshape(half),
        flat[pixels + quarter :].reshape(half),
    )


def paste(target: Planes, picture: NDArray[np.uint8], left: int, top: int) -> None:
    """Put an RGB picture (h, w, 3) u8 into planes with its upper left corner at pixel (left, top); all four even."""
    height, width = picture.shape[:2]
    part = split(planes(picture), height, width)
    target.luma[top : top + height, left : left + width] = part.luma
    target.blue[top // 2 : (top + height) // 2, left // 2 : (left + width) // 2] = part.blue
    target.red[top // 2 : (top + height) // 2, left // 2 : (left + width) // 2] = part.red


def encode_film(pictures: Iterable[NDArray[np.uint8]], width: int, height: int, fps: Fraction) -> bytes:
    """Pictures as an mp4 file.

    pictures  (3 H / 2, W) u8 as `planes` gives them, each an array of its own: the encoder reads it while the next is
              drawn

    Raises ValueError for no picture, an odd size or a bad rate.
    """
    with Mp4(width, height, fps) as video:
        with ThreadPoolExecutor(1) as encoder:
            pending: list[Future[Any]] = []
            for picture in pictures:
                pending.append(encoder.submit(video.encode, picture))
                if len(pending) > PENDING:
                    pending.pop(0).result()
            for future in pending:
                future.result()
        return video.finish()


def write_film(path: Path, pictures: Iterable[NDArray[np.uint8]], width: int, height: int, fps: Fraction) -> None:
    """Write an mp4; after any fault the file is absent, old, or complete. Errors as `encode_film`."""
    replace(path, encode_film(pictures, width, height, fps))
