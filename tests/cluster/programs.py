"""The programs of the cluster: from `KUBEBUILDER_ASSETS` where they are there, else built from Go modules once and kept.

They lie in `~/.cache/fairway-cluster` (or `FAIRWAY_CLUSTER_CACHE`), in a folder named for what `go.mod` pins.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parent / "go"
_KUBERNETES = "k8s.io/kubernetes/cmd/"


@dataclass(frozen=True)
class Group:
    """Programs that are built in one step: what needs only the first does not wait for the others."""

    name: str
    module: str
    packages: dict[str, str]
    """Program -> Go package."""


GROUPS = (
    Group(
        "control-plane",
        "kubernetes",
        {
            "etcd": "go.etcd.io/etcd/server/v3",
            "kube-apiserver": _KUBERNETES + "kube-apiserver",
            "kube-controller-manager": _KUBERNETES + "kube-controller-manager",
            "kubectl": _KUBERNETES + "kubectl",
            "kwok": "sigs.k8s.io/kwok/cmd/kwok",
        },
    ),
    Group(
        "nodes",
        "kubernetes",
        {name: _KUBERNETES + name for name in ("kubectl", "kubelet", "kube-proxy", "kube-scheduler")},
    ),
    Group("addons", "addons", {"coredns": "./coredns", "helm": "helm.sh/helm/v4/cmd/helm"}),
)


class ProgramsMissingError(Exception):
    """A program is not there; the message says what to do."""


def kubernetes_version() -> str:
    """The version that is built, as in `1.36.4`."""
    found = re.search(r"k8s\.io/kubernetes v(\S+)", (MODULES / "kubernetes" / "go.mod").read_text())
    assert found
    return found[1]


def cache() -> Path:
    """The folder with everything that is kept between runs."""
    given = os.environ.get("FAIRWAY_CLUSTER_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else base / "fairway-cluster"


def find(name: str) -> Path:
    """The program, when it is there; nothing is built.

    Raises:
        ProgramsMissingError: it is not.
    """
    for folder in _places(_group(name)):
        if os.access(folder / name, os.X_OK):
            return folder / name
    fix = "run `make cluster-programs`" if shutil.which("go") else "install Go 1.26 and run `make cluster-programs`"
    raise ProgramsMissingError(
        f"the program {name} of the test cluster is not built: {fix}, or set KUBEBUILDER_ASSETS to a folder with it"
    )


def build(*names: str) -> None:
    """Have these groups (all, when none is named), building what is missing; takes minutes the first time.

    Raises:
        ProgramsMissingError: there is no Go, or it failed.
    """
    for group in GROUPS:
        if not names or group.name in names:
            _build(group)


def _group(program: str) -> Group:
    return next(group for group in GROUPS if program in group.packages)


def _folder(group: Group) -> Path:
    """Named for what it is built from, so that another version never meets the old programs."""
    sources = [path for path in sorted((MODULES / group.module).rglob("*")) if path.is_file()]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    return cache() / f"{group.module}-{kubernetes_version()}-{digest}"


def _places(group: Group) -> Iterator[Path]:
    given = os.environ.get("KUBEBUILDER_ASSETS")
    if given:
        yield Path(given)
    yield _folder(group)


def _build(group: Group) -> None:
    with _alone():
        missing = [name for name in group.packages if not _there(name)]
        if not missing:
            return
        go = shutil.which("go")
        if go is None:
            raise ProgramsMissingError(f"{', '.join(missing)} cannot be built: there is no `go` on PATH; install Go 1.26")
        folder = _folder(group)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as made:
            _compile(go, group, missing, Path(made))
            for name in missing:
                (Path(made) / _built_name(group.packages[name])).replace(folder / name)


def _there(name: str) -> bool:
    try:
        return bool(find(name))
    except ProgramsMissingError:
        return False


def _built_name(package: str) -> str:
    """What `go build` calls the program of a package: its last part that is no version."""
    return next(part for part in reversed(package.split("/")) if not re.fullmatch(r"v\d+", part))


def _compile(go: str, group: Group, names: list[str], out: Path) -> None:
    version = kubernetes_version()
    major, minor, _ = version.split(".")
    stamp = "k8s.io/component-base/version.git"
    flags = f"-s -w -X {stamp}Version=v{version} -X {stamp}Major={major} -X {stamp}Minor={minor}"
    built = subprocess.run(
        [go, "build", "-trimpath", "-ldflags", flags, "-o", f"{out}/", *(group.packages[name] for name in names)],
        cwd=MODULES / group.module,
        env={**os.environ, "CGO_ENABLED": "0"},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if built.returncode:
        raise ProgramsMissingError(f"building {', '.join(names)} failed:\n{built.stderr[-2000:]}")


@contextmanager
def _alone() -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
