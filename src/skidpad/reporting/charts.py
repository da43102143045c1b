"""Line charts as inline SVG: what stands in a page, with its text as text and no address in it."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
COLOURS = ("#0969da", "#cf222e", "#1a7f37", "#9a6700", "#8250df", "#59636e")
SIZE_INCHES = (5.6, 2.5)


class Line(NamedTuple):
    """One line of a chart.

    x, y       (n,)    f64   NaN leaves a gap
    low, high  (n,)    f64   interval around y, or None
    dots       whether every point is marked, for few of them
    """

    label: str
    x: F64
    y: F64
    low: F64 | None = None
    high: F64 | None = None
    dots: bool = False


def line_chart(lines: Sequence[Line], *, x_label: str, y_label: str) -> str:
    """The chart as an `<svg>` element, the same text for the same lines."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    axes = figure.add_subplot()
    for line, colour in zip(lines, COLOURS, strict=False):
        marker = "o" if line.dots else ""
        axes.plot(line.x, line.y, color=colour, linewidth=1.6, marker=marker, markersize=3.5, label=line.label)
        if line.low is not None and line.high is not None:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel(x_label)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_ylabel(y_label)
    axes.grid(visible=True, color="#d1d9e0", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if len(lines) > 1:
        axes.legend(frameon=False, fontsize=8)
    return _svg(figure)


def _svg(figure: Any) -> str:
    """A figure's element alone: no XML head, no metadata, no namespaces, which inline SVG does without."""
    import matplotlib as mpl

    text = io.StringIO()
    # Names of clip paths and glyphs are hashes of what they show: with a fixed salt, equal charts are equal text.
    options: Any = {"svg.fonttype": "none", "svg.hashsalt": "skidpad", "font.family": "sans-serif", "font.size": 9}
    with mpl.rc_context(options):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    drawing = text.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r' xmlns(:\w+)?="[^"]*"', "", drawing)
    return drawing.replace("xlink:href", "href").strip()
