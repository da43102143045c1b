"""Latitude and longitude to metres: transverse Mercator on the WGS 84 ellipsoid, after Krueger (R22, R25).

The series in the third flattening n, to its fourth power: below a millimetre within 10 degrees of the central meridian.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import FormatError

F64 = NDArray[np.float64]

_RADIUS_M = 6_378_137.0
_FLATTENING = 1.0 / 298.257223563
_N = _FLATTENING / (2.0 - _FLATTENING)
_MEAN_RADIUS_M = _RADIUS_M / (1.0 + _N) * (1.0 + _N**2 / 4.0 + _N**4 / 64.0)
_ALPHA = (
    _N / 2.0 - 2.0 * _N**2 / 3.0 + 5.0 * _N**3 / 16.0 + 41.0 * _N**4 / 180.0,
    13.0 * _N**2 / 48.0 - 3.0 * _N**3 / 5.0 + 557.0 * _N**4 / 1440.0,
    61.0 * _N**3 / 240.0 - 103.0 * _N**4 / 140.0,
    49_561.0 * _N**4 / 161_280.0,
)
_FARTHEST_DEG = 30.0

UTM_SCALE, UTM_EAST_M, UTM_SOUTH_M = 0.9996, 500_000.0, 10_000_000.0


def transverse_mercator(latitude: F64, longitude: F64, meridian: float, scale: float = 1.0) -> tuple[F64, F64]:
    """East and north (n,) f64 [m] of places (n,) f64 [degrees], from the equator at a central meridian [degrees].

    Raises FormatError for places that are no latitude and longitude, or far from the meridian.
    """
    away = (longitude - meridian + 180.0) % 360.0 - 180.0
    bad = ~((np.abs(latitude) < 85.0) & (np.abs(away) < _FARTHEST_DEG))
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise FormatError(
            f"place {at} is at latitude {latitude[at]:g}, longitude {longitude[at]:g} degrees, expected one within "
            f"{_FARTHEST_DEG:g} degrees of the meridian {meridian:g}."
        )
    sine, turn = np.sin(np.radians(latitude)), np.radians(away)
    bend = 2.0 * np.sqrt(_N) / (1.0 + _N)
    conformal = np.sinh(np.arctanh(sine) - bend * np.arctanh(bend * sine))
    north = np.arctan2(conformal, np.cos(turn))
    east = np.arcsinh(np.sin(turn) / np.hypot(conformal, np.cos(turn)))
    x, y = east.copy(), north.copy()
    for index, alpha in enumerate(_ALPHA, start=1):
        x += alpha * np.cos(2 * index * north) * np.sinh(2 * index * east)
        y += alpha * np.sin(2 * index * north) * np.cosh(2 * index * east)
    return scale * _MEAN_RADIUS_M * x, scale * _MEAN_RADIUS_M * y


def utm(latitude: F64, longitude: F64, epsg: int) -> tuple[F64, F64]:
    """East and north (n,) f64 [m] in a UTM zone of WGS 84: EPSG 32601 to 32660 in the north, 32701 to 32760 south.

    Raises FormatError for another code.
    """
    south, zone = epsg - 32_600 > 100, (epsg - 32_600) % 100
    if not (32_600 < epsg < 32_800 and 1 <= zone <= 60):
        raise FormatError(f"coordinate system EPSG:{epsg}, expected a UTM zone of WGS 84.")
    x, y = transverse_mercator(latitude, longitude, 6.0 * zone - 183.0, UTM_SCALE)
    return x + UTM_EAST_M, y + (UTM_SOUTH_M if south else 0.0)
