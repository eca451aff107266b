"""A real node: kubelet, containerd and kube-proxy in namespaces of their own, like a small machine.

It has its own processes, mounts, network and host name, and its own `/run`, `/var/lib` and `/var/log`. Ending its first process
ends everything in it, pods included; tests lose a node this way.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from cluster import cgroups, programs
from cluster.control_plane import ControlPlane
from cluster.network import Network
from cluster.process import wait_for

PAUSE = "fairway.test/pause:1"
DOMAIN = "cluster.local"
_CNI_FOLDERS = (Path("/opt/cni/bin"), Path("/usr/lib/cni"))
_DEBIAN = "containerd runc containernetworking-plugins busybox-static iproute2 iptables"

_NAMESPACES = ("--net", "--mount", "--pid", "--uts", "--ipc", "--propagation", "slave", "--mount-proc")
_FIRST_PROCESS = """
import os, signal, sys
own, name = sys.argv[1:]
for place in ("/run", "/var/lib", "/var/log"):
    os.spawnlp(os.P_WAIT, "mount", "mount", "-t", "tmpfs", "node", place)
os.spawnlp(os.P_WAIT, "mount", "mount", "--make-rshared", "/")
os.spawnlp(os.P_WAIT, "hostname", "hostname", name)
open(f"{own}/ready", "w").close()
while True:
    try:
        os.wait()
    except ChildProcessError:
        signal.pause()
"""
"""Mounts the node's own folders, in memory because images load slowly from a disk; then it reaps orphaned processes, as every
first process must.
"""


def missing() -> str:
    """Return why real nodes cannot run here; an empty string when they can."""
    if os.getuid():
        return "real nodes need root"
    absent = [name for name in ("containerd", "ctr", "runc", "ip", "iptables", "nsenter", "unshare") if not shutil.which(name)]
    if absent or not _cni_folder():
        return f"real nodes need {', '.join(absent) or 'the CNI plug-ins'}: apt-get install {_DEBIAN}"
    allowed = subprocess.run(["unshare", *_NAMESPACES, "--fork", "true"], capture_output=True, text=True, check=False)
    return f"real nodes need namespaces of their own: {allowed.stderr.strip()}" if allowed.returncode else ""


class Node:
    """One real node. `index` counts from 1."""

    def __init__(self, plane: ControlPlane, network: Network, index: int) -> None:
        self.name = f"node-{index}"
        self.address = network.plan.node(index)
        self.index = index
        self.folder = plane.folder / self.name
        self.cgroup = f"{plane.folder.name}-{self.name}"
        self._plane = plane
        self._network = network

    @property
    def pid(self) -> int:
        """The id of its first process, as seen from this machine."""
        return _children(self._plane.processes.pid(self.name))[0]

    def start(self, archives: Iterable[Path] = ()) -> None:
        """Start it; returns when containerd has imported the images of the archives. The node is ready a few seconds later.

        The kubelet starts after the import. An import makes short-lived mounts, and a kubelet that lists the mounts in such a
        moment exits.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        cgroups.make(self.cgroup)
        processes = self._plane.processes
        first = (sys.executable, "-I", "-c", _FIRST_PROCESS, self.folder, self.name)
        processes.start(self.name, ["unshare", *_NAMESPACES, "--fork", "--kill-child", *first])
        processes.wait_for(self.name, "its first process", (self.folder / "ready").exists)
        self._network.plug_in(self.index, self.pid)
        self.start_containerd()
        self.load(archives)
        self.start_kubelet()
        self.start_proxy()

    def start_containerd(self) -> None:
        """Start the container runtime; returns when it responds."""
        self._write_runtime()
        self._start("containerd", ["containerd", "--config", self.folder / "containerd.toml"])
        asked = self.enter(*_CTR, "version")
        self._plane.processes.wait_for(
            f"{self.name}-containerd",
            "containerd",
            lambda: subprocess.run(asked, capture_output=True, check=False).returncode == 0,
        )

    def start_kubelet(self) -> None:
        """Start the kubelet."""
        config = self.folder / "kubelet.json"
        config.write_text(json.dumps(self._kubelet(), indent=1))
        user = self._plane.kubeconfig(f"system:node:{self.name}", ["system:nodes"])
        kubelet = [programs.find("kubelet"), "--config", config, "--kubeconfig", user]
        self._start("kubelet", [*kubelet, "--hostname-override", self.name, "--node-ip", self.address])

    def start_proxy(self) -> None:
        """Start kube-proxy."""
        self._start("kube-proxy", proxy(self._plane, self._network, self.name))

    def kill(self) -> None:
        """Lose the node: everything in it ends at once, without notice to the API server."""
        for name in [name for name in self._plane.processes.names() if name.startswith(f"{self.name}-")]:
            self._plane.processes.end(name)
        self._plane.processes.end(self.name)
        wait_for("the end of its processes", lambda: not self._processes_left())

    def end(self, program: str, number: int = signal.SIGKILL) -> None:
        """End one of its programs (`kubelet`, `containerd`, `kube-proxy`); pods keep running."""
        name = f"{self.name}-{program}"
        for child in _children(self._plane.processes.pid(name)):
            os.kill(child, number)
        self._plane.processes.end(name)

    def remove(self) -> None:
        """Lose it for good: its control group is removed too."""
        self.kill()
        cgroups.remove(self.cgroup)

    def enter(self, *command: str | Path) -> list[str]:
        """Return the command line that runs a command on the node."""
        return [
            *("nsenter", "--target", str(self.pid), "--net", "--mount", "--pid", "--uts", "--ipc"),
            *map(str, command),
        ]

    def load(self, archives: Iterable[Path]) -> None:
        """Import images."""
        for archive in archives:
            subprocess.run(self.enter(*_CTR, "images", "import", archive), check=True, capture_output=True)

    def _start(self, program: str, command: list[str | Path]) -> None:
        self._plane.processes.start(f"{self.name}-{program}", self.enter(*command))

    def _processes_left(self) -> bool:
        return any((hierarchy / "cgroup.procs").read_text() for hierarchy in cgroups.below(self.cgroup))

    def _write_runtime(self) -> None:
        (self.folder / "containerd.toml").write_text(_CONTAINERD.format(cni=_cni_folder(), own=self.folder))
        (self.folder / "cni").mkdir(exist_ok=True)
        addresses = {"type": "host-local", "ranges": [[{"subnet": self._network.plan.pods(self.index)}]]}
        (self.folder / "cni" / "10-pods.conflist").write_text(
            json.dumps(
                {
                    "cniVersion": "1.0.0",
                    "name": "pods",
                    # Pods are routed, not bridged: so Services work whatever the machine's bridge settings are.
                    "plugins": [
                        {"type": "ptp", "ipam": {**addresses, "routes": [{"dst": "0.0.0.0/0"}]}},
                        {"type": "portmap", "capabilities": {"portMappings": True}},
                    ],
                }
            )
        )

    def _kubelet(self) -> dict[str, object]:
        own = self._plane.authority.server(self.name, [f"DNS:{self.name}", f"IP:{self.address}"])
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "tlsCertFile": str(own.certificate),
            "tlsPrivateKeyFile": str(own.key),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._plane.authority.pair.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": "unix:///run/containerd.sock",
            "clusterDNS": [self._network.plan.switch],
            "clusterDomain": DOMAIN,
            "resolvConf": "",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            # The disk is shared with the machine: no pod may be evicted and no image collected because other files filled it.
            "evictionHard": dict.fromkeys(("nodefs.available", "nodefs.inodesFree", "imagefs.available"), "0%"),
            "imageGCHighThresholdPercent": 100,
            "nodeLeaseDurationSeconds": 20,
            "syncFrequency": "10s",
        }


_CTR = ("ctr", "--address", "/run/containerd.sock", "--namespace", "k8s.io")

_CONTAINERD = """\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = "/run/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "fairway.test/pause:1"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni}"
conf_dir = "{own}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""
"""`restrict_oom_score_adj`: without CAP_SYS_RESOURCE no pod would start."""


def proxy(plane: ControlPlane, network: Network, name: str) -> list[str | Path]:
    """Return the command line of kube-proxy."""
    return [
        programs.find("kube-proxy"),
        "--kubeconfig", plane.kubeconfig("system:kube-proxy"),
        "--hostname-override", name,
        "--proxy-mode", "iptables",
        "--cluster-cidr", network.plan.cluster,
        "--conntrack-max-per-core", "0",
        "--iptables-sync-period", "5s",
        "--iptables-min-sync-period", "100ms",
    ]  # fmt: skip


def _cni_folder() -> Path | None:
    return next((folder for folder in _CNI_FOLDERS if (folder / "ptp").exists()), None)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
