"""Sizes of mapper states: grid, voxel, image, and how far a ray is followed.

A preset is admitted only if the true distance field, put on its grid and rendered, is off by less than 3 % of depth
(AbsRel) on its track: otherwise scores would say more about the grid than about the mapper.
"""

from __future__ import annotations

from dataclasses import dataclass

from skidpad.errors import CheckpointError, nearest

TRUNCATION_VOXELS = 4


@dataclass(frozen=True)
class Preset:
    """One size.

    shape      voxels along x, y, z of the state's frame
    voxel      metres
    image      rows, columns of every frame and query
    near, far  metres along a ray
    corner     metres from the anchor to the grid's corner; None: the grid is centred on what the warm-up measured
    block      voxels a side of the blocks it is held in, which divide its shape; None: as a whole
    """

    name: str
    shape: tuple[int, int, int]
    voxel: float
    image: tuple[int, int]
    near: float
    far: float
    corner: tuple[float, float, float] | None = None
    block: int | None = None

    @property
    def truncation(self) -> float:
        """Metres at which the stored distance saturates."""
        return TRUNCATION_VOXELS * self.voxel

    @property
    def voxels(self) -> int:
        return self.shape[0] * self.shape[1] * self.shape[2]

    @property
    def half(self) -> tuple[int, int, int]:
        """Cells of the completion layer, which has half the resolution."""
        x, y, z = self.shape
        return x // 2, y // 2, z // 2


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("embedded", (64, 64, 40), 0.08, (48, 64), 0.15, 5.6),
        Preset("small", (96, 96, 96), 0.06, (96, 128), 0.15, 6.0),
        # Ahead of the anchor, which is a camera about 1.6 m above the road.
        # Meant for a GPU, and the same on a CPU: a whole grid would be 340 MB per state.
        Preset("gpu", (256, 256, 256), 0.02, (192, 256), 0.15, 5.6, block=16),
        Preset("street", (104, 64, 16), 0.4, (48, 96), 0.5, 48.0, corner=(0.0, -12.8, -2.4)),
    )
}


def preset_named(name: str, where: str) -> Preset:
    """The preset of that name. Raises CheckpointError naming the known ones; `where` is who asks."""
    if name not in PRESETS:
        known = ", ".join(PRESETS)
        raise CheckpointError(f"{where}: preset {name!r} is unknown{nearest(name, PRESETS)}. Known: {known}.")
    return PRESETS[name]
