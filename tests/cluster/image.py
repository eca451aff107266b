"""Images without a builder: archives in the OCI layout, written from files of this machine.

`fairway()` holds a shell, the interpreter that runs the tests at the path it has here, and Fairway with its dependencies. So an
environment of a framework on this machine, mounted at its own path, works inside too.
"""

from __future__ import annotations

import hashlib
import io
import json
import marshal
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Sequence
from importlib import metadata
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from cluster.node import PAUSE

FAIRWAY = "fairway.test/fairway:1"
_SOURCE = Path(__file__).parents[2] / "src" / "fairway"
_ALSO = (
    *("libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1"),
    *("libresolv.so.2", "libutil.so.1", "librt.so.1", "libdl.so.2", "libpthread.so.0"),
)
"""Libraries that compiled packages load from the system without declaring it."""
_LEFT_OUT = {"__pycache__", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages"}
_SYSTEM = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/tmp:/bin/sh\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}


class Layer:
    """A file system, or the changes that a layer adds to another."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        self._tar = tarfile.TarFile(fileobj=self._bytes, mode="w")
        self._names: set[str] = set()

    def file(self, place: str, content: bytes, mode: int = 0o644) -> None:
        """Add a file with this content."""
        entry = self._entry(place, tarfile.REGTYPE, mode)
        if entry:
            entry.size = len(content)
            self._tar.addfile(entry, io.BytesIO(content))

    def link(self, place: str, target: str) -> None:
        """Add a symbolic link."""
        entry = self._entry(place, tarfile.SYMTYPE, 0o777)
        if entry:
            entry.linkname = target
            self._tar.addfile(entry)

    def folder(self, place: str, mode: int = 0o755) -> None:
        """Add a folder, which may be empty."""
        entry = self._entry(place, tarfile.DIRTYPE, mode)
        if entry:
            self._tar.addfile(entry)

    def copy(self, path: Path, place: str | None = None) -> None:
        """Copy a file of this machine, to the same path unless another is given; links are followed.

        A module is copied with its compiled byte code, so that no pod has to compile anything.
        """
        place = place or str(path)
        self.file(place, path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644)
        if path.suffix == ".py":
            self.file(cache_from_source(place), _compiled(path))

    def copy_tree(self, folder: Path, place: str) -> None:
        """Copy a folder of this machine without the files that no program needs."""
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not _LEFT_OUT & set(path.relative_to(folder).parts) and path.suffix != ".a":
                self.copy(path, f"{place}/{path.relative_to(folder)}")

    def close(self) -> bytes:
        """Close the layer and return its content."""
        self._tar.close()
        return self._bytes.getvalue()

    def _entry(self, place: str, kind: bytes, mode: int) -> tarfile.TarInfo | None:
        """Return the entry of a path; None when it exists already. Parent folders are added, readable for all users."""
        place = place.strip("/")
        if place in self._names:
            return None
        parent = place.rpartition("/")[0]
        if parent:
            self.folder(parent)
        self._names.add(place)
        entry = tarfile.TarInfo(place)
        entry.type, entry.mode = kind, mode
        return entry


def write(
    path: Path, name: str, layers: Sequence[bytes], entry: Sequence[str] = (), environment: dict[str, str] | None = None
) -> Path:
    """Write an archive that `ctr images import` takes."""
    blobs = {_digest(layer): layer for layer in layers}
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()],
        "os": "linux",
        "config": {"Entrypoint": list(entry) or None, "Env": [f"{key}={value}" for key, value in (environment or {}).items()]},
        "rootfs": {"type": "layers", "diff_ids": list(blobs)},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _described(blobs, json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
        "layers": [_described(blobs, layer, "application/vnd.oci.image.layer.v1.tar") for layer in layers],
    }
    described = _described(blobs, json.dumps(manifest).encode(), manifest["mediaType"])
    named = {
        **described,
        "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.partition(":")[2]},
    }
    archive = Layer()
    archive.file("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    archive.file("index.json", json.dumps({"schemaVersion": 2, "manifests": [named]}).encode())
    for digest, blob in blobs.items():
        archive.file(f"blobs/{digest.replace(':', '/')}", blob)
    path.write_bytes(archive.close())
    return path


def pause(path: Path) -> Path:
    """Return the pause image, which holds a pod's network: a program that only waits."""
    return write(path, PAUSE, [_busybox().close()], ["/bin/sleep", "2147483647"])


def fairway(path: Path, extras: Iterable[str] = ()) -> Path:
    """Return the image with Fairway of this checkout, with the optional dependencies of EXTRAS."""
    system = _busybox()
    for place, text in _SYSTEM.items():
        system.file(place, text.encode())
    system.folder("tmp", 0o1777)
    system.folder("root", 0o755)
    _copy_python(system, extras)
    own = Layer()
    own.copy_tree(_SOURCE, f"{_site()}/fairway")
    own.file(f"{sys.base_prefix}/bin/fairway", f"#!{sys.base_prefix}/bin/python3\n{_SCRIPT}".encode(), 0o755)
    environment = {
        "PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return write(path, FAIRWAY, [system.close(), own.close()], (), environment)


_SCRIPT = "import sys\n\nfrom fairway.cli.main import main\n\nsys.exit(main())\n"


def _compiled(path: Path) -> bytes:
    """Return the byte code of a module, never to be checked against its source: files of an image have no date."""
    source, state = path.read_bytes(), path.stat()
    written = [int(state.st_mtime) & 0xFFFFFFFF, state.st_size & 0xFFFFFFFF]
    head = MAGIC_NUMBER + bytes(4) + b"".join(number.to_bytes(4, "little") for number in written)
    try:
        kept = Path(cache_from_source(path)).read_bytes()
    except FileNotFoundError:
        kept = b""
    code = kept[len(head) :] if kept.startswith(head) else marshal.dumps(compile(source, str(path), "exec", dont_inherit=True))
    unchecked = (1).to_bytes(4, "little")
    return MAGIC_NUMBER + unchecked + source_hash(source) + code


def _busybox() -> Layer:
    layer = Layer()
    found = shutil.which("busybox")
    assert found, "apt-get install busybox-static"
    layer.copy(Path(found), "bin/busybox")
    for applet in subprocess.run([found, "--list"], capture_output=True, text=True, check=True).stdout.split():
        layer.link(f"bin/{applet}", "busybox")
    return layer


def _site() -> str:
    """Return where the interpreter finds packages even when it ignores its environment variables."""
    return sysconfig.get_path("purelib", vars={"base": sys.base_prefix, "platbase": sys.base_prefix})


def _copy_python(layer: Layer, extras: Iterable[str]) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    program = Path(sys.base_prefix) / "bin" / version
    layer.copy(program.resolve(), f"{sys.base_prefix}/bin/{version}")
    for name in ("python", "python3"):
        layer.link(f"{sys.base_prefix}/bin/{name}", version)
    library = Path(sysconfig.get_path("stdlib"))
    layer.copy_tree(library, str(library))
    compiled = [program, *(library / "lib-dynload").glob("*.so")]
    for distribution in _needed("fairway", tuple(extras), {}).values():
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            if path.is_file() and ".." not in file.parts and not _LEFT_OUT & set(file.parts):
                layer.copy(path, f"{_site()}/{file}")
                compiled += [path] if ".so" in path.suffixes else []
    for path in _libraries(compiled):
        layer.copy(path)


def _needed(name: str, extras: Sequence[str], found: dict[str, metadata.Distribution]) -> dict[str, metadata.Distribution]:
    """Return the installed distributions that a package depends on."""
    for text in metadata.requires(name) or ():
        wanted = Requirement(text)
        marker = wanted.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            key = re.sub(r"[-_.]+", "-", wanted.name).lower()
            if key not in found:
                found[key] = metadata.distribution(key)
                _needed(key, tuple(wanted.extras), found)
    return found


def _libraries(compiled: list[Path]) -> list[Path]:
    """Return the shared libraries of the machine that these files load, and the loader."""
    listed = subprocess.run(["ldd", *compiled], capture_output=True, text=True, check=False).stdout
    paths = set(re.findall(r"(/\S+) \(0x", listed))
    folders = {str(Path(path).parent) for path in paths}
    paths |= {f"{folder}/{name}" for folder in folders for name in _ALSO}
    ours = ("/lib", "/usr/lib", f"{sys.base_prefix}/lib/lib")  # the rest lies in packages, which are copied whole
    return sorted(Path(path) for path in paths if path.startswith(ours) and Path(path).exists())


def _described(blobs: dict[str, bytes], blob: bytes, kind: str) -> dict[str, Any]:
    digest = _digest(blob)
    blobs[digest] = blob
    return {"mediaType": kind, "digest": digest, "size": len(blob)}


def _digest(blob: bytes) -> str:
    return "sha256:" + hashlib.sha256(blob).hexdigest()
