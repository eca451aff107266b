"""A separate control plane: etcd, the API server and the controllers, as processes on this machine.

RBAC and the admission of service accounts are enabled, as on a production cluster. Nothing is shared with another control plane,
and `stop` leaves nothing behind.
"""

from __future__ import annotations

import http.client
import json
import select
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from cluster import audit, folders, programs
from cluster.certificates import Authority, Pair
from cluster.process import Processes, StartError

LOOPBACK = "127.0.0.1"
SERVICES = "10.96.0.0/16"
_ATTEMPTS = 3


class ControlPlane:
    """`with ControlPlane() as plane:` runs one; `plane.kubeconfig()` is the file with which an administrator reaches it."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        address: str = LOOPBACK,
        services: str = SERVICES,
        apiserver: Sequence[str] = (),
        controllers: Sequence[str] = (),
        outlive: bool = False,
    ) -> None:
        """Nothing starts yet.

        Args:
            folder: holds all files of the control plane; `stop` removes it. By default a new one under the folder of runs.
            address: where the API server listens.
            services: the addresses for Services.
            apiserver: additional flags of the API server; they override ours.
            controllers: the same for the controllers.
            outlive: whether it keeps running when this process ends.
        """
        self.folder = folder or folders.new(outlive=outlive)
        self.address = address
        self.services = services
        self.processes = Processes(self.folder, outlive=outlive)
        self.authority = Authority(self.folder / "keys")
        self._flags = (tuple(apiserver), tuple(controllers))
        self._etcd_ports = (0, 0)
        self._kept = threading.local()
        self.port = 0

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://{self.address}:{self.port}"

    def __enter__(self) -> ControlPlane:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything; returns when the API server is ready and the controllers work.

        Raises:
            ProgramsMissingError: the programs are not built.
            StartError: a component did not start; nothing is left running then.
        """
        try:
            self.start_etcd()
            self.start_apiserver()
            self.start_controllers()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process by its id and remove the folder."""
        self.end()
        audit.HEARD.add(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)

    def end(self) -> None:
        """End every process by its id; the folder stays."""
        self.hang_up()
        self.processes.end_all()

    def start_etcd(self) -> None:
        """Start etcd; only this API server knows its address."""
        program = programs.find("etcd")

        def command(ports: tuple[int, ...]) -> list[str | Path]:
            client, peer = (f"http://{LOOPBACK}:{port}" for port in ports)
            return [
                program,
                "--data-dir", self.folder / "etcd",
                "--listen-client-urls", client,
                "--advertise-client-urls", client,
                "--listen-peer-urls", peer,
                "--initial-advertise-peer-urls", peer,
                "--initial-cluster", f"default={peer}",
                "--unsafe-no-fsync",
                "--quota-backend-bytes", str(8 << 30),
                "--log-level", "warn",
            ]  # fmt: skip

        self._etcd_ports = self._listen("etcd", LOOPBACK, self._etcd_ports, command, lambda ports: _answers(LOOPBACK, ports[0]))

    def start_apiserver(self) -> None:
        """Start the API server, on the same port as in an earlier run of it; returns when it is ready."""
        program = programs.find("kube-apiserver")
        signing = self.authority.bare("service-accounts")
        names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
        addresses = {LOOPBACK, self.address, _first_address(self.services)}
        own = self.authority.server(
            "apiserver", [*(f"DNS:{name}" for name in names), *(f"IP:{each}" for each in sorted(addresses))]
        )
        to_kubelets = self.authority.client("kube-apiserver-kubelet-client", ["system:masters"])
        # The front proxy has an authority of its own, which signs nothing else.
        front = Authority(self.folder / "front")
        passing = front.client("front-proxy-client")

        def command(ports: tuple[int, ...]) -> list[str | Path]:
            return [
                program,
                "--etcd-servers", f"http://{LOOPBACK}:{self._etcd_ports[0]}",
                "--bind-address", self.address,
                "--advertise-address", self.address,
                "--secure-port", str(ports[0]),
                "--tls-cert-file", own.certificate,
                "--tls-private-key-file", own.key,
                "--client-ca-file", self.authority.pair.certificate,
                "--authorization-mode", "Node,RBAC",
                "--enable-admission-plugins", "NodeRestriction",
                "--anonymous-auth=false",
                "--allow-privileged=true",
                "--service-cluster-ip-range", self.services,
                "--service-account-issuer", "https://kubernetes.default.svc",
                "--service-account-key-file", signing.certificate,
                "--service-account-signing-key-file", signing.key,
                "--kubelet-certificate-authority", self.authority.pair.certificate,
                "--kubelet-client-certificate", to_kubelets.certificate,
                "--kubelet-client-key", to_kubelets.key,
                "--kubelet-preferred-address-types", "InternalIP",
                *audit.flags(self.folder),
                "--requestheader-client-ca-file", front.pair.certificate,
                "--requestheader-allowed-names", "front-proxy-client",
                "--requestheader-username-headers", "X-Remote-User",
                "--requestheader-group-headers", "X-Remote-Group",
                "--requestheader-extra-headers-prefix", "X-Remote-Extra-",
                "--proxy-client-cert-file", passing.certificate,
                "--proxy-client-key-file", passing.key,
                *self._flags[0],
            ]  # fmt: skip

        self.port = self._listen("kube-apiserver", self.address, (self.port,), command, self._ready)[0]

    def compact(self) -> None:
        """Compact etcd: drop every revision but the newest."""

        def ask(path: str, body: dict[str, Any]) -> Any:
            connection = http.client.HTTPConnection(LOOPBACK, self._etcd_ports[0], timeout=10)
            connection.request("POST", path, json.dumps(body))
            answer = json.loads(connection.getresponse().read())
            connection.close()
            return answer

        revision = ask("/v3/kv/range", {"key": "AA=="})["header"]["revision"]
        ask("/v3/kv/compaction", {"revision": revision, "physical": True})

    def start_controllers(self) -> None:
        """Start the controller manager; returns when it has created the first service account."""
        signing = self.authority.bare("service-accounts")
        self.processes.start(
            "kube-controller-manager",
            [
                programs.find("kube-controller-manager"),
                "--kubeconfig", self.kubeconfig("system:kube-controller-manager"),
                "--service-account-private-key-file", signing.key,
                "--root-ca-file", self.authority.pair.certificate,
                "--cluster-signing-cert-file", self.authority.pair.certificate,
                "--cluster-signing-key-file", self.authority.pair.key,
                "--use-service-account-credentials=true",
                "--leader-elect=false",
                "--secure-port=0",
                "--kube-api-qps", "500",
                "--kube-api-burst", "1000",
                *self._flags[1],
            ],
        )  # fmt: skip
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self.processes.wait_for("kube-controller-manager", "the first service account", lambda: self.get(account)[0] == 200)

    def start_scheduler(self, *flags: str) -> None:
        """Start kube-scheduler as well, for comparison; returns when it is the leader."""
        self.processes.start(
            "kube-scheduler",
            [
                programs.find("kube-scheduler"),
                "--kubeconfig", self.kubeconfig("system:kube-scheduler"),
                "--secure-port=0",
                *flags,
            ],
        )  # fmt: skip
        lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
        self.processes.wait_for("kube-scheduler", "its lease", lambda: self.get(lease)[0] == 200)

    def kubeconfig(self, user: str = "admin", groups: Sequence[str] | None = None) -> Path:
        """Return a kubeconfig for this user, created if missing; `admin` may do everything, other users what RBAC grants."""
        groups = ("system:masters",) if groups is None and user == "admin" else tuple(groups or ())
        pair = self.authority.client(user, groups)
        path = self.folder / f"{'-'.join((user, *groups)).replace(':', '-')}.kubeconfig"
        if not path.exists():
            path.write_text(json.dumps(_kubeconfig(self.server, self.authority.pair.certificate, user, pair), indent=1))
        return path

    def get(self, path: str) -> tuple[int, Any]:
        """Send a GET as the administrator; return the status and the body. Status 0: the API server does not respond."""
        return self.request("GET", path)

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        """Send one request as the administrator; the connection is kept for the next request of the same thread."""
        try:
            connection = self._connection()
            connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": kind})
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self.hang_up()
            return 0, None
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(text) if is_json else text.decode(errors="replace")

    def apply(self, document: dict[str, Any], path: str) -> dict[str, Any]:
        """Server-side apply of one document at this path, as the administrator."""
        query = "fieldManager=tests&force=true"
        status, answer = self.request("PATCH", f"{path}?{query}", document, "application/apply-patch+yaml")
        assert status in (200, 201), f"{path}: {status} {answer}"
        return answer

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """Run `kubectl ARGUMENTS` as the administrator and return its output.

        Raises:
            RuntimeError: it failed; with its error output.
        """
        ended = subprocess.run(
            [programs.find("kubectl"), "--kubeconfig", self.kubeconfig(), *arguments],
            input=given, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        if ended.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {ended.stderr}")
        return ended.stdout

    def _connection(self) -> http.client.HTTPSConnection:
        """Return this thread's connection, or a new one when the server has closed it meanwhile."""
        kept = getattr(self._kept, "connection", None)
        if kept and kept.port == self.port and kept.sock and not select.select([kept.sock], [], [], 0)[0]:
            return kept
        self.hang_up()
        pair = self.authority.client("admin", ("system:masters",))
        context = ssl.create_default_context(cafile=str(self.authority.pair.certificate))
        context.load_cert_chain(pair.certificate, pair.key)
        self._kept.connection = http.client.HTTPSConnection(self.address, self.port, context=context, timeout=30)
        return self._kept.connection

    def hang_up(self) -> None:
        """Close the connection of this thread; a thread that sent requests should call it before it ends."""
        kept = getattr(self._kept, "connection", None)
        if kept:
            kept.close()
            self._kept.connection = None

    def _ready(self, ports: tuple[int, ...]) -> bool:
        self.port = ports[0]
        return _answers(self.address, self.port) and self.get("/readyz")[0] == 200

    def _listen(self, name: str, address: str, ports: tuple[int, ...], command: Any, is_ready: Any) -> tuple[int, ...]:
        """Start a server on these ports; the kernel picks a port for 0, and again if another process took it first."""
        for attempt in range(_ATTEMPTS):
            chosen = tuple(port or _free_port(address) for port in ports)
            self.processes.start(name, command(chosen))
            try:
                self.processes.wait_for(name, f"{name} on {chosen}", lambda chosen=chosen: is_ready(chosen))
            except StartError as failed:
                self.processes.end(name)
                if "address already in use" not in str(failed) or attempt + 1 == _ATTEMPTS or all(ports):
                    raise
            else:
                return chosen
        raise AssertionError


def _kubeconfig(server: str, authority: Path, user: str, pair: Pair) -> dict[str, Any]:
    """Write a kubeconfig. JSON is valid YAML, so this needs no library."""
    context = {"cluster": "test", "user": user, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": user, "user": {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}}],
        "contexts": [{"name": "test", "context": context}],
        "current-context": "test",
    }


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


def _first_address(network: str) -> str:
    base = network.split("/")[0].split(".")
    return ".".join([*base[:3], str(int(base[3]) + 1)])
