"""Pictures of the demo: two photographs, and conversion to and from point sets."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bigsap.errors import OptionError

if TYPE_CHECKING:
    from PIL.Image import Image

Array: TypeAlias = npt.NDArray[Any]

_MISSING = 'the demo needs scikit-learn (its photographs) and pillow: pip install "bigsap[demo]"'


def photograph(name: str) -> Image:
    """Return a sample photograph of scikit-learn's wheel, in RGB; scikit-learn is not imported.

    name: ``"china.jpg"`` or ``"flower.jpg"``, 640 x 427, Creative Commons BY 2.0 (see README).
    Raises ImportError naming the extra if a package is missing.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise ImportError(_MISSING)
    try:
        from PIL import Image as pil
    except ImportError as error:
        raise ImportError(_MISSING) from error
    file = Path(package.submodule_search_locations[0]) / "datasets" / "images" / name
    with pil.open(file) as picture:
        return picture.convert("RGB")


def grid(pixels: int, aspect: float) -> tuple[int, int]:
    """Return (width, height) of the smallest grid near ``aspect`` with at least ``pixels``."""
    if pixels < 1:
        raise OptionError(f"pixels must be at least 1, got {pixels}")
    width = max(1, round(math.sqrt(pixels * aspect)))
    return width, -(-pixels // width)


def reduced(picture: Image, width: int, height: int) -> Array:
    """Return the picture averaged over a grid: uint8 (height, width, 3)."""
    from PIL import Image as pil

    return np.asarray(picture.resize((width, height), pil.Resampling.BOX))


def features(image: Array, position: float) -> Array:
    """Return one point (x, y, r, g, b) a pixel, row by row, with coordinates scaled to [0, 1].

    image: uint8 (height, width, 3). Returns float64 (height * width, 5). ``position`` >= 0
    multiplies the squared distance in (x, y), not that in (r, g, b). The image metric of Rubner et
    al. (2000), as in A1015, section 5.
    """
    if not (math.isfinite(position) and position >= 0):
        raise OptionError(f"position must be a finite number >= 0, got {position}")
    height, width, _ = image.shape
    y, x = np.mgrid[0:height, 0:width]
    place = np.stack([(x + 0.5) / width, (y + 0.5) / height], axis=-1) * math.sqrt(position)
    return np.concatenate([place, image / 255.0], axis=-1).reshape(-1, 5)


def recoloured(image: Array, palette: Array, column_of_row: Array) -> Array:
    """Return ``image`` with the colour of pixel k taken from pixel ``column_of_row[k]`` of palette."""
    colours = palette.reshape(-1, 3)
    return colours[column_of_row].reshape(image.shape)


def save_side_by_side(file: Path, images: list[Array], scale: int = 3, margin: int = 8) -> None:
    """Save images of one height as one PNG, each pixel ``scale`` wide, white between them."""
    from PIL import Image as pil

    large = [np.kron(image, np.ones((scale, scale, 1), np.uint8)) for image in images]
    blank = np.full((large[0].shape[0], margin, 3), 255, np.uint8)
    parts = [part for image in large for part in (blank, image)][1:]
    pil.fromarray(np.concatenate(parts, axis=1)).save(file)
