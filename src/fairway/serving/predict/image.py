"""Images as rows: each file one row, resized and normalised as the model takes it. By Pillow, of the extra `fairway[images]`.

The model's input says how: its shape gives the order (N, channels, height, width or N, height, width, channels) and the size,
its type the range (UINT8: 0 to 255, floating point: 0 to 1). `fairway.json` beside the model can say more, in `image`:

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
from fairway.serving.replica.datatypes import DTYPES
from fairway.state.model import TensorSpec

Array = NDArray[Any]
ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
_MOST_PIXELS = 200_000_000


class Rules(msgspec.Struct, frozen=True):
    """How an image becomes numbers. What is not given follows from the model's input."""

    size: tuple[int, int] | None = None
    """Height and width."""
    resize: Literal["crop", "stretch", "pad"] = "crop"
    """crop: the shorter side fits, and the middle is kept; stretch: to the size; pad: the longer side fits, black around it."""
    colour: Literal["RGB", "BGR"] = "RGB"
    scale: float | None = None
    """What each value from 0 to 255 is multiplied with."""
    mean: tuple[float, ...] = ()
    """Taken from each channel after that..."""
    std: tuple[float, ...] = ()
    """...which is then divided by this."""


class _Card(msgspec.Struct):
    image: Rules = Rules()


@dataclass(frozen=True)
class Layout:
    """The shape of one image for a model."""

    height: int
    width: int
    channels: int
    """0: a matrix without a dimension of channels."""
    first: bool
    """Channels come before height and width."""


class ImageFolder:
    """Images, one row each, in the order of their names."""

    is_text = True

    def __init__(self, paths: Sequence[Path], root: Path) -> None:
        _pillow()
        self._paths = paths
        self.names: Sequence[str] = tuple(str(path.relative_to(root)) for path in paths)
        self.count = len(paths)
        self._spec: TensorSpec | None = None
        self._rules = Rules()
        self._layout: Layout | None = None

    def fit(self, inputs: Sequence[TensorSpec], rules: Rules) -> None:
        """Read them as this model takes them."""
        if len(inputs) != 1:
            message = f"images are one input, and the model takes {len(inputs)}: {', '.join(spec.name for spec in inputs)}"
            raise UsageError(message, fix="write the inputs as .npz, .jsonl or .parquet")
        self._spec, self._rules = inputs[0], rules
        self._layout = layout_of(inputs[0], rules)

    def read(self, start: int, stop: int) -> dict[str, Array]:
        """These images, as one array."""
        spec, layout = self._spec, self._layout
        assert spec is not None
        assert layout is not None
        rows = [_row(path, spec, layout, self._rules) for path in self._paths[start:stop]]
        return {spec.name: np.stack(rows)}


def read_rules(folder: Path) -> Rules:
    """What `fairway.json` of a model says of images."""
    path = folder / "fairway.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Card).image
    except FileNotFoundError:
        return Rules()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        message = f"{path}: {error}"
        raise UsageError(message, fix="see `fairway.json` in docs/predict.md") from None


def layout_of(spec: TensorSpec, rules: Rules) -> Layout:
    """How the model wants an image."""
    shape = spec.shape[1:]
    if len(shape) == 2:
        height, width, channels, first = *shape, 0, True
    elif len(shape) == 3 and shape[0] in (1, 3):
        channels, height, width, first = *shape, True
    elif len(shape) == 3 and shape[2] in (1, 3):
        height, width, channels, first = *shape, False
    else:
        message = f"the input {spec.name!r} of shape {list(spec.shape)} is no image: 1 or 3 channels, height and width are needed"
        raise UsageError(message, fix="write the rows as .npy, .npz, .jsonl or .parquet")
    given = rules.size or (-1, -1)
    height, width = (wanted if wanted > 0 else said for wanted, said in zip((height, width), given, strict=True))
    if height < 1 or width < 1:
        message = f"the input {spec.name!r} of shape {list(spec.shape)} does not say how large an image is"
        raise UsageError(message, fix='say it in fairway.json beside the model: {"image": {"size": [HEIGHT, WIDTH]}}')
    counts = {len(each) for each in (rules.mean, rules.std) if each} - {1, max(1, channels)}
    if counts:
        message = f"`mean` and `std` have {sorted(counts)} values, and an image has {max(1, channels)} channels"
        raise UsageError(message, fix="give one value, or one for each channel")
    return Layout(height, width, channels, first)


def _row(path: Path, spec: TensorSpec, layout: Layout, rules: Rules) -> Array:
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
        raise UsageError(message, fix="mend it, or take it out of the folder") from None


def _resized(image: Any, size: tuple[int, int], how: str) -> Any:
    from PIL import Image, ImageOps  # noqa: PLC0415  # the same

    if image.size == size:
        return image
    bilinear = Image.Resampling.BILINEAR
    if how == "stretch":
        return image.resize(size, bilinear)
    return ImageOps.pad(image, size, bilinear) if how == "pad" else ImageOps.fit(image, size, bilinear)


def _pillow() -> Any:
    try:
        from PIL import Image  # noqa: PLC0415  # the same
    except ImportError:
        message = "images are read by Pillow, which is not installed"
        raise UsageError(message, fix="pip install 'fairway[images]'") from None
    return Image
