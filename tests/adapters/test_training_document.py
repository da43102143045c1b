"""The tour of docs/training.md runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "training.md"


def test_the_tour_runs():
    """S117-S121: the one code block of the document, as a reader would paste it."""
    (block,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S)
    names: dict[str, object] = {}
    exec(compile(block, str(DOCUMENT), "exec"), names)
    assert names["learn_from"].shape == (64,)
    assert names["shown"].obs.shape[0] == 64
