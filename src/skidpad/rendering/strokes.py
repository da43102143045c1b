"""What is drawn over a background that is kept: each stroke knows which pixels it may touch.

A film restores, draws and converts only those pixels, so the cost of a frame is that of what moves in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.rendering.topdown import SHIFT, Camera, draw_line, draw_scale, scale_words

Picture = NDArray[np.uint8]
Colour = tuple[int, int, int]

TEXT_COLOUR: Colour = (36, 41, 47)
TEXT_SIZE, LABEL_SIZE, LINE_PX = 0.55, 0.45, 24
LEGEND_FROM = 220  # px: to the left of it stands the scale


class Box(NamedTuple):
    """Pixels of a picture, right and bottom exclusive; all four are even, since yuv420p has a colour per 2 x 2."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def window(self) -> tuple[slice, slice]:
        """Rows and columns."""
        return slice(self.top, self.bottom), slice(self.left, self.right)


class Strokes:
    """Strokes in the order in which they are drawn into a picture of `width` x `height` px, both even.

    Coordinates are fixed-point pixels with SHIFT fractional bits, as `Camera.pixels` gives them, unless said
    otherwise. What lies outside the picture is left out.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.boxes: list[Box] = []
        self._draw: list[Callable[[Picture], object]] = []

    def onto(self, picture: Picture) -> None:
        """Draw everything."""
        for draw in self._draw:
            draw(picture)

    def polygons(
        self, outlines: NDArray[np.int32], colours: Sequence[Colour], borders: Sequence[Colour | None]
    ) -> None:
        """Filled outlines (m, n, 2) i32, antialiased, each with its colour and, if any, a border of 2 px."""
        if len(outlines) == 0:
            return
        low, high = (outlines.min(axis=1) >> SHIFT) - 3, (outlines.max(axis=1) >> SHIFT) + 4
        seen = np.flatnonzero(((high > 0) & (low < (self.width, self.height))).all(axis=1))
        corners = np.concatenate([low[seen], high[seen]], axis=1).tolist()
        for n, (left, top, right, bottom) in zip(seen.tolist(), corners, strict=True):
            self._add((left, top, right, bottom), _filled(outlines[n], colours[n], borders[n]))

    def line(self, pixels: NDArray[np.int32], colour: Colour, width: int) -> None:
        """A line through (n, 2) i32, `width` px wide, antialiased."""
        self._around(pixels, width // 2 + 3, lambda picture: draw_line(picture, pixels, colour, width))

    def ring(self, column: int, row: int, radius: int, colour: Colour) -> None:
        """A circle, 2 px wide."""
        import cv2

        corners = np.array([[column - radius, row - radius], [column + radius, row + radius]])
        self._around(
            corners,
            4,
            lambda picture: cv2.circle(picture, (column, row), radius, colour, 2, cv2.LINE_AA, SHIFT),
        )

    def label(self, text: str, column: int, row: int, colour: Colour) -> None:
        """A word whose base line starts at pixel (column, row)."""
        import cv2

        (width, height), below = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, LABEL_SIZE, 1)
        self._add(
            (column - 2, row - height - 3, column + width + 3, row + below + 3),
            lambda picture: write(picture, text, column, row, colour, LABEL_SIZE),
        )

    def panel(self, words: Sequence[str]) -> None:
        """Lines in the upper left corner, as `put_words` writes them."""
        self._add(panel_box(words), lambda picture: put_words(picture, words))

    def legend(self, entries: Sequence[tuple[Colour, str]]) -> None:
        """What colours mean, lower right, where the picture is wide enough for it."""
        import cv2

        widths = [cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, LABEL_SIZE, 1)[0][0] + 32 for _, text in entries]
        left, top = self.width - sum(widths) - 8, self.height - 34
        if left < LEGEND_FROM:
            return

        def draw(picture: Picture) -> None:
            panel = picture[top : self.height - 8, left : self.width - 8]
            panel[:] = panel // 4 + 191
            column = left + 8
            for (colour, text), width in zip(entries, widths, strict=True):
                cv2.rectangle(picture, (column, top + 8), (column + 9, top + 17), colour, cv2.FILLED)
                write(picture, text, column + 15, top + 18, TEXT_COLOUR, LABEL_SIZE)
                column += width

        self._add((left, top, self.width, self.height), draw)

    def scale(self, camera: Camera) -> None:
        """The bar of a round length, lower left."""
        length = scale_words(camera)[1]
        self._add((8, camera.height - 48, 24 + max(length, 80), camera.height), lambda at: draw_scale(at, camera))

    def _around(self, pixels: NDArray[np.int32], margin: int, draw: Callable[[Picture], object]) -> None:
        (left, top), (right, bottom) = (pixels.min(axis=0) >> SHIFT).tolist(), (pixels.max(axis=0) >> SHIFT).tolist()
        self._add((left - margin, top - margin, right + margin + 1, bottom + margin + 1), draw)

    def _add(self, box: tuple[int, int, int, int], draw: Callable[[Picture], object]) -> None:
        left, top = max(box[0], 0) & ~1, max(box[1], 0) & ~1
        right, bottom = (min(box[2], self.width) + 1) & ~1, (min(box[3], self.height) + 1) & ~1
        if left < right and top < bottom:
            self.boxes.append(Box(left, top, right, bottom))
            self._draw.append(draw)


def _filled(outline: NDArray[np.int32], colour: Colour, border: Colour | None) -> Callable[[Picture], None]:
    import cv2

    def draw(picture: Picture) -> None:
        cv2.fillPoly(picture, [outline], colour, cv2.LINE_AA, SHIFT)
        if border:
            cv2.polylines(picture, [outline], True, border, 2, cv2.LINE_AA, SHIFT)

    return draw


def write(picture: Picture, text: str, column: int, row: int, colour: Colour, size: float) -> None:
    """Write a line of text, its base line starting at pixel (column, row)."""
    import cv2

    cv2.putText(picture, text, (column, row), cv2.FONT_HERSHEY_SIMPLEX, size, colour, 1, cv2.LINE_AA)


def panel_box(words: Sequence[str]) -> tuple[int, int, int, int]:
    """Pixels of the panel behind lines in the upper left corner: left, top, right, bottom."""
    import cv2

    widest = max(cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, TEXT_SIZE, 1)[0][0] for text in words)
    return 8, 8, 24 + widest, 16 + LINE_PX * len(words)


def put_words(picture: Picture, words: Sequence[str]) -> None:
    """Write lines into the upper left corner, on a pale panel, so that they can be read over any map."""
    left, top, right, bottom = panel_box(words)
    panel = picture[top:bottom, left:right]
    panel[:] = panel // 4 + 191
    for line, text in enumerate(words):
        write(picture, text, 16, 28 + LINE_PX * line, TEXT_COLOUR, TEXT_SIZE)
