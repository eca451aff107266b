"""The programs of the cluster: from `KUBEBUILDER_ASSETS` if set, else built from Go modules once and kept.

They lie in `~/.cache/fairway-cluster` (or `FAIRWAY_CLUSTER_CACHE`), in a folder named after the versions that `go.mod` pins.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
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
    """Programs that are built in one step: tests that need only the first group do not wait for the others."""

    name: str
    module: str
    packages: dict[str, str]
    """Program -> Go package."""
    asked: bool = False
    """Whether it is built only on explicit request: building takes longer than the few tests that use it justify."""
    without: tuple[tuple[str, str, str], ...] = ()
    """(Go module, file, replacement): parts of other modules that take most of the build time and that are not needed here."""


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
        {name: _KUBERNETES + name for name in ("kubelet", "kube-proxy", "kube-scheduler")},
    ),
    Group("names", "addons", {"coredns": "./coredns"}),
    Group("charts", "addons", {"helm": "helm.sh/helm/v4/cmd/helm"}),
    Group(
        "gateway",
        "gateway",
        {"traefik": "github.com/traefik/traefik/v3/cmd/traefik"},
        asked=True,
        without=(("github.com/go-acme/lego/v4", "providers/dns/zz_gen_dns_providers.go", "without/dns.go.txt"),),
    ),
)


class ProgramsMissingError(Exception):
    """A program is missing; the message says what to do."""


def kubernetes_version() -> str:
    """The Kubernetes version that is built, as in `1.36.4`."""
    found = re.search(r"k8s\.io/kubernetes v(\S+)", (MODULES / "kubernetes" / "go.mod").read_text())
    assert found
    return found[1]


def cache() -> Path:
    """Return the folder with everything that is kept between runs."""
    given = os.environ.get("FAIRWAY_CLUSTER_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else base / "fairway-cluster"


def find(name: str) -> Path:
    """Return the path of a program, if it exists; nothing is built.

    Raises:
        ProgramsMissingError: it does not exist.
    """
    group = _group(name)
    for folder in _places(group):
        if os.access(folder / name, os.X_OK):
            return folder / name
    how = f"`PYTHONPATH=tests .venv/bin/python -m cluster build {group.name}`" if group.asked else "`make cluster-programs`"
    fix = f"run {how}" if shutil.which("go") else f"install Go 1.26 and run {how}"
    raise ProgramsMissingError(
        f"the program {name} of the test cluster is not built: {fix}, or set KUBEBUILDER_ASSETS to a folder with it"
    )


def build(*names: str) -> None:
    """Build what is missing of these groups (by default all but those built on request only); takes minutes once.

    Raises:
        ProgramsMissingError: Go is not installed, or the build failed.
    """
    for group in GROUPS:
        if group.name in names or not (names or group.asked):
            _build(group)


def _group(program: str) -> Group:
    return next(group for group in GROUPS if program in group.packages)


def _folder(group: Group) -> Path:
    """Return the folder, named after the versions that are built, so that another version never uses the old programs."""
    sources = [path for path in sorted((MODULES / group.module).rglob("*")) if path.is_file()]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    return cache() / f"{group.module}-{kubernetes_version()}-{digest}"


def _places(group: Group) -> Iterator[Path]:
    given = os.environ.get("KUBEBUILDER_ASSETS")
    if given:
        yield Path(given)
    yield _folder(group)


def _build(group: Group) -> None:
    if all(map(_there, group.packages)):
        return
    with _alone(group):
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
    """Return the name that `go build` gives the program of a package: the last path component that is no version."""
    return next(part for part in reversed(package.split("/")) if not re.fullmatch(r"v\d+", part))


def _compile(go: str, group: Group, names: list[str], out: Path) -> None:
    version = kubernetes_version()
    major, minor, _ = version.split(".")
    stamp = "k8s.io/component-base/version.git"
    flags = f"-s -w -X {stamp}Version=v{version} -X {stamp}Major={major} -X {stamp}Minor={minor}"
    less = _leave_out(go, group, out) if group.without else ()
    built = subprocess.run(
        [go, "build", *less, "-trimpath", "-ldflags", flags, "-o", f"{out}/", *(group.packages[name] for name in names)],
        cwd=MODULES / group.module,
        env={**os.environ, "CGO_ENABLED": "0"},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if built.returncode:
        raise ProgramsMissingError(f"building {', '.join(names)} failed:\n{built.stderr[-2000:]}")


def _leave_out(go: str, group: Group, work: Path) -> list[str]:
    """Return the flag that builds some modules from a reduced copy: Go's own module cache cannot be changed."""
    here = MODULES / group.module
    pinned = (here / "go.mod").read_text()
    for number, (module, file, ours) in enumerate(group.without):
        told = subprocess.run(
            [go, "mod", "download", "-json", module], cwd=here, capture_output=True, text=True, timeout=300, check=False
        )
        if told.returncode:
            raise ProgramsMissingError(f"{module} cannot be had: {told.stdout[-500:]} {told.stderr[-500:]}")
        copy = work / f"module-{number}"
        shutil.copytree(json.loads(told.stdout)["Dir"], copy, copy_function=shutil.copyfile)
        for folder in (copy, *(path for path in copy.rglob("*") if path.is_dir())):
            folder.chmod(0o755)
        shutil.copyfile(here / ours, copy / file)
        pinned += f"\nreplace {module} => {copy}\n"
    (work / "go.mod").write_text(pinned)
    shutil.copyfile(here / "go.sum", work / "go.sum")
    return ["-modfile", str(work / "go.mod")]


@contextmanager
def _alone(group: Group) -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / f"{group.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
