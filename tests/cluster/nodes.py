"""A whole cluster: a control plane, a network, real nodes and a name server."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from cluster import cgroups, folders, image, kernel, network, node, programs
from cluster.control_plane import ControlPlane
from cluster.network import Network
from cluster.node import Node
from cluster.process import Processes, wait_for

_DNS_MAY = [
    {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
]


_LOST_SOON = ("--node-monitor-period=2s", "--node-monitor-grace-period=20s")
"""A node that does not respond counts as lost after 20 s instead of 50, to keep tests short."""


class RealCluster:
    """`with RealCluster(2) as cluster:` runs one; `cluster.plane` is its control plane."""

    def __init__(
        self, count: int = 2, *, apiserver: Sequence[str] = (), controllers: Sequence[str] = (), outlive: bool = False
    ) -> None:
        """Nothing starts yet. The options are those of `ControlPlane`."""
        folder = folders.new(outlive=outlive)
        plan = network.claim(folder)
        self.plane = ControlPlane(
            folder,
            address=plan.machine,
            services=plan.services,
            apiserver=apiserver,
            controllers=(*_LOST_SOON, *controllers),
            outlive=outlive,
        )
        self.network = Network(plan, self.plane.processes)
        self.nodes = [Node(self.plane, self.network, index) for index in range(1, count + 1)]

    def __enter__(self) -> RealCluster:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything; returns when every node is ready.

        Raises:
            ProgramsMissingError: the programs are not built.
            StartError: a component did not start; nothing is left running then.
        """
        reason = node.missing()
        if reason:
            raise programs.ProgramsMissingError(reason)
        kernel.remember(self.plane.folder)
        try:
            self.network.start()
            self.plane.start()
            self._start_names()
            pause = image.pause(self.plane.folder / "pause.tar")
            for each in self.nodes:
                each.start([pause])
            for each in self.nodes:
                self.wait_ready(each)
            self._start_way_to_services()
        except BaseException:
            self.stop()
            raise

    def load(self, archive: Path) -> None:
        """Import an image on every node."""
        for each in self.nodes:
            each.load([archive])

    def wait_ready(self, which: Node) -> None:
        """Return when the API server reports the node as ready."""
        path = f"/api/v1/nodes/{which.name}"

        def is_ready() -> bool:
            status, answer = self.plane.get(path)
            conditions = answer["status"].get("conditions", ()) if status == 200 else ()
            return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

        self.plane.processes.wait_for(f"{which.name}-kubelet", f"{which.name} to be ready", is_ready)

    def stop(self) -> None:
        """Stop everything; nothing is left."""
        self.plane.end()
        remove(self.plane.folder)

    def _start_names(self) -> None:
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "system:coredns"}}
        self.plane.apply({**role, "rules": _DNS_MAY}, f"{rbac}/clusterroles/system:coredns")
        binding = {
            **role,
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:coredns"}],
        }
        self.plane.apply(binding, f"{rbac}/clusterrolebindings/system:coredns")
        settings = self.plane.folder / "Corefile"
        settings.write_text(
            _COREFILE.format(
                address=self.network.plan.switch, domain=node.DOMAIN, kubeconfig=self.plane.kubeconfig("system:coredns")
            )
        )
        self._in_switch("coredns", [programs.find("coredns"), "-conf", settings])
        asked = network.inside(self.network.pid, "busybox", "wget", "-q", "-O", "-", "http://127.0.0.1:8181/ready")
        self.plane.processes.wait_for(
            "coredns", "the name server", lambda: subprocess.run(asked, capture_output=True, check=False).returncode == 0
        )

    def _start_way_to_services(self) -> None:
        """Route this machine to Services through the switch, so that the loss of a node does not cut it off."""
        name = self.nodes[0].name  # it must be that of a node, nothing else depends on it
        self._in_switch("kube-proxy", [*node.proxy(self.plane, self.network, name), "--masquerade-all"])

    def _in_switch(self, name: str, command: list[str | Path]) -> None:
        self.plane.processes.start(name, network.inside(self.network.pid, *command))


_COREFILE = """\
. {{
    bind {address}
    errors
    ready 127.0.0.1:8181
    kubernetes {domain} in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 0
    }}
}}
"""


def remove(folder: Path) -> None:
    """Stop the cluster of a folder, whichever process started it and however it ended, and remove everything it created."""
    processes = Processes(folder)
    processes.end_all()
    groups = [f"{folder.name}-{path.name}" for path in folder.glob("node-*") if path.is_dir()]
    for group in groups:
        wait_for("the end of its pods", lambda group=group: not _occupied(group))
        cgroups.remove(group)
    kernel.restore(folder)
    for claim in folder.parent.glob("network-*"):
        if claim.is_symlink() and claim.readlink() == folder:
            claim.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def _occupied(group: str) -> bool:
    return any((folder / "cgroup.procs").read_text() for folder in cgroups.below(group))
