"""Images as rows: each file is one row, resized and normalised for the model. Uses Pillow, from the extra `fairway[images]`.

The model's input determines the conversion: its shape gives the order (N, channels, height, width or N, height, width, channels)
and the size, its type the range (UINT8: 0 to 255, floating point: 0 to 1). `image` in the `fairway.json` beside the model can set
more:

    {"image": {"size": [224, 224], "resize": "crop", "colour": "RGB", "scale": 0.00392, "mean": [0.485, ...], "std": [...]}}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairway.errors import UsageError
from fairway.serving.replica.model.datatype import DTYPES
from fairway.state.model import TensorSpec

Array = NDArray[Any]
ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
_MOST_PIXELS = 200_000_000


class ImageRules(msgspec.Struct, frozen=True):
    """How an image is converted to numbers. Values that are not set follow from the model's input."""

    size: tuple[int, int] | None = None
    """Height and width."""
    resize: Literal["crop", "stretch", "pad"] = "crop"
    """crop: fit the shorter side and keep the centre; stretch: to the size; pad: fit the longer side, with black borders."""
    colour: Literal["RGB", "BGR"] = "RGB"
    scale: float | None = None
    """Factor for each value from 0 to 255."""
    mean: tuple[float, ...] = ()
    """Subtracted from each channel after scaling."""
    std: tuple[float, ...] = ()
    """Divisor of each channel after that."""


class _ImageModelCard(msgspec.Struct):
    image: ImageRules = ImageRules()


@dataclass(frozen=True)
class ImageLayout:
    """The shape of one image for a model."""

    height: int
    width: int
    channels: int
    """0: a matrix without a channel dimension."""
    first: bool
    """Whether channels come before height and width."""


class ImageFolder:
    """Images of a folder, one per row, in the order of their names."""

    is_text = True

    def __init__(self, paths: Sequence[Path], root: Path) -> None:
        _pillow()
        self._paths = paths
        self.names: Sequence[str] = tuple(str(path.relative_to(root)) for path in paths)
        self.count = len(paths)
        self._spec: TensorSpec | None = None
        self._rules = ImageRules()
        self._layout: ImageLayout | None = None

    def fit(self, inputs: Sequence[TensorSpec], rules: ImageRules) -> None:
        """Set the model's input for which the images are converted."""
        if len(inputs) != 1:
            message = f"images fill one input, but the model takes {len(inputs)}: {', '.join(spec.name for spec in inputs)}"
            raise UsageError(message, fix="write the inputs as .npz, .jsonl or .parquet")
        self._spec, self._rules = inputs[0], rules
        self._layout = layout_of(inputs[0], rules)

    def read(self, start: int, stop: int) -> dict[str, Array]:
        """Return these images as one array."""
        spec, layout = self._spec, self._layout
        assert spec is not None
        assert layout is not None
        rows = [_row(path, spec, layout, self._rules) for path in self._paths[start:stop]]
        return {spec.name: np.stack(rows)}


def read_rules(folder: Path) -> ImageRules:
    """Return the image rules of a model's `fairway.json`."""
    path = folder / "fairway.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=_ImageModelCard).image
    except FileNotFoundError:
        return ImageRules()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"{path}: {error}"
        raise UsageError(message, fix="see `fairway.json` in docs/predict.md") from None


def layout_of(spec: TensorSpec, rules: ImageRules) -> ImageLayout:
    """Return the image layout that the model's input requires."""
    shape = spec.shape[1:]
    if len(shape) == 2:
        height, width, channels, first = *shape, 0, True
    elif len(shape) == 3 and shape[0] in (1, 3):
        channels, height, width, first = *shape, True
    elif len(shape) == 3 and shape[2] in (1, 3):
        height, width, channels, first = *shape, False
    else:
        message = (
            f"the input {spec.name!r} of shape {list(spec.shape)} is not an image: it needs height, width, and 1 or 3 channels"
        )
        raise UsageError(message, fix="write the rows as .npy, .npz, .jsonl or .parquet")
    size = rules.size or (-1, -1)
    height, width = (length if length > 0 else setting for length, setting in zip((height, width), size, strict=True))
    if height < 1 or width < 1:
        message = f"the input {spec.name!r} of shape {list(spec.shape)} does not define the size of the images"
        raise UsageError(message, fix='set it in fairway.json beside the model: {"image": {"size": [HEIGHT, WIDTH]}}')
    counts = {len(values) for values in (rules.mean, rules.std) if values} - {1, max(1, channels)}
    if counts:
        message = f"`mean` and `std` have {sorted(counts)} values, but an image has {max(1, channels)} channels"
        raise UsageError(message, fix="give one value, or one for each channel")
    return ImageLayout(height, width, channels, first)


def _row(path: Path, spec: TensorSpec, layout: ImageLayout, rules: ImageRules) -> Array:
    image = _opened(path, "RGB" if layout.channels == 3 else "L")
    values = np.asarray(_resized(image, (layout.width, layout.height), rules.resize))
    if layout.channels == 3 and rules.colour == "BGR":
        values = values[:, :, ::-1]
    dtype = np.dtype(DTYPES[spec.datatype])
    scale = rules.scale if rules.scale is not None else 1 / 255 if dtype.kind == "f" else None
    if scale is not None or rules.mean or rules.std:
        values = values.astype(np.float32) * np.float32(1.0 if scale is None else scale)
        values = (values - np.asarray(rules.mean or 0.0, np.float32)) / np.asarray(rules.std or 1.0, np.float32)
    if layout.channels:
        values = values.reshape(layout.height, layout.width, layout.channels)
        values = values.transpose(2, 0, 1) if layout.first else values
    typed: Array = values.astype(dtype)
    return typed


def _opened(path: Path, mode: str) -> Any:
    pillow = _pillow()
    try:
        with pillow.open(path) as image:
            if image.width * image.height > _MOST_PIXELS:
                message = f"{path} has {image.width} x {image.height} pixels, more than {_MOST_PIXELS:,}"
                raise UsageError(message, fix="make it smaller")
            from PIL import ImageOps  # noqa: PLC0415  # an extra

            return ImageOps.exif_transpose(image).convert(mode)
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
        message = f"{path}: {error}"
        raise UsageError(message, fix="repair it, or remove it from the folder") from None


def _resized(image: Any, size: tuple[int, int], how: str) -> Any:
    from PIL import Image, ImageOps  # noqa: PLC0415  # an extra

    if image.size == size:
        return image
    bilinear = Image.Resampling.BILINEAR
    if how == "stretch":
        return image.resize(size, bilinear)
    return ImageOps.pad(image, size, bilinear) if how == "pad" else ImageOps.fit(image, size, bilinear)


def _pillow() -> Any:
    try:
        from PIL import Image  # noqa: PLC0415  # an extra
    except ImportError:
        message = "images are read by Pillow, which is not installed"
        raise UsageError(message, fix="pip install 'fairway[images]'") from None
    return Image
