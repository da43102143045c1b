"""Scenes and traces by hand are written with `driving.py` of the metrics' tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation_metrics"))
