"""Scheduler and operator on simulated nodes: `python benchmarks/kubernetes.py scheduler ROW [COUNT [NODES]]`.

Each row of the table is one command, of about four minutes at full size on two idle cores: `singles` (10,000 pods), `delays`,
`gangs` (1,000 of 8), `memory` (10,000 pods, with the first sync), `idle` (1,000 jobs); on 1,000 nodes. `all [NODES [SHARE]]` runs
all of them, one after the other.

Everything runs on one control plane, one after the other, kube-scheduler first. Bindings and writes, with their times and users,
are read from the API server's audit log, by the server's clock: a rate is the number of bindings less one over the time from the
first to the last. Pods exist before the scheduler starts. kwok makes the nodes ready and is then stopped, so that no simulated
kubelet runs during a measurement; the node controller gets long timeouts.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import tell
from cluster import kwok
from cluster.control_plane import ControlPlane
from cluster.installed import Installed
from cluster.process import wait_for
from kubernetes_audit import KUBE, OPERATOR, OURS, Audit, Written

from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.client import api, api_resource, kubeconfig
from fairway.engines.kubernetes.client.api import ApiClient

NAMESPACE = "default"
GANG = 8
ROUNDS = 10
IDLE = 30.0
IN_FLIGHT = 16
PATIENCE = 150.0
"""Timeout for bindings in seconds, so that no row takes much longer than four minutes."""
PATIENT = ["--node-monitor-grace-period=2h", "--node-monitor-period=1m", "--terminated-pod-gc-threshold=0"]
_FAST = ["--kube-api-qps=5000", "--kube-api-burst=5000"]
_LASTING = ["--leader-elect-lease-duration=5m", "--leader-elect-renew-deadline=4m"]
"""On a fully loaded machine kube-scheduler would otherwise lose its lease, and exit."""


COMMANDS = {"operator": ["fairway.bootstrap", "operate"], "scheduler": ["fairway.engines.kubernetes.scheduler"]}


class Starter:
    """Starts separate interpreters: a measured process must not share its imports with others, as the tests' processes do."""

    def start(self, name: str, env: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Start one of Fairway's processes."""
        with log.open("ab") as words:
            return subprocess.Popen([sys.executable, "-m", *COMMANDS[name]], env=env, stdout=words, stderr=words)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class Apart(Installed):
    """Fairway on a control plane, each process in its own interpreter."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        super().__init__(plane, folder)
        self._nursery: Any = Starter()

    def stop(self) -> None:
        """Stop the running processes."""
        super().stop()
        self._nursery = Starter()


class Bench:
    """A control plane, and the measurements on it."""

    def __init__(self, plane: ControlPlane, audit: Audit, installed: Installed) -> None:
        self.plane, self.audit, self.installed = plane, audit, installed
        self.steps: list[dict[str, float]] = []
        """Of each delay: when pods were requested and created, and when they were bound, in seconds."""
        self.seen: list[Written] = []
        """All writes during the last wait for bindings."""

    # Pods

    async def _many(self, act: Callable[[ApiClient, Any], Awaitable[object]], what: Iterable[Any]) -> None:
        left = iter(what)
        async with api.connect(kubeconfig.find(os.environ), SystemClock()) as client:

            async def hand() -> None:
                for one in left:
                    await act(client, one)

            await asyncio.gather(*(hand() for _ in range(IN_FLIGHT)))

    def make(self, pods: Iterable[dict[str, Any]]) -> None:
        """Create pods."""
        asyncio.run(self._many(lambda client, pod: client.create(api_resource.PODS, pod, NAMESPACE), pods))

    def clear(self) -> None:
        """Delete every job and every pod."""
        self.plane.request("DELETE", f"/apis/{api_resource.TRAINING_JOBS.api_version}/namespaces/{NAMESPACE}/trainingjobs")
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        while self.plane.get(f"{path}?limit=1")[1]["items"]:
            self.plane.request("DELETE", f"{path}?gracePeriodSeconds=0")
            for pod in self.plane.get(f"{path}?limit={GANG}")[1]["items"]:
                # The operator waits for the kubelet's final status of its pods, and there is no kubelet.
                free = {"metadata": {"finalizers": None}}
                self.plane.request("PATCH", f"{path}/{pod['metadata']['name']}", free, "application/merge-patch+json")

    def binds(self, user: str, count: int, patience: float = PATIENCE) -> list[Written]:
        """Wait until this user has bound `count` pods."""
        found: list[Written] = []
        self.seen.clear()

        def enough() -> bool:
            news = self.audit.news()
            self.seen.extend(news)
            found.extend(one for one in news if one.what == "pods/binding" and one.user == user)
            return len(found) >= count

        if user == KUBE:
            self.plane.processes.wait_for("kube-scheduler", f"{count} pods bound", enough, patience)
        else:
            wait_for(f"{count} pods bound", enough, patience, lambda: f"{len(found)} are. {self.installed.last_words()}")
        return found

    # Schedulers

    @contextmanager
    def kube_scheduler(self) -> Iterator[None]:
        """Run kube-scheduler without a limit on its request rate."""
        self.plane.start_scheduler(*_FAST, *_LASTING)
        try:
            yield
        finally:
            self.plane.processes.end("kube-scheduler")
            # The next one would wait for its lease to expire.
            self.plane.request("DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler")

    @contextmanager
    def ours(self, *names: str) -> Iterator[None]:
        """Run Fairway's processes, each with its own account."""
        self.audit.news()  # Writes of earlier processes do not count.
        for name in names:
            self.installed.start(name)
        try:
            yield
        finally:
            self.installed.stop()

    def ready(self, user: str) -> float:
        """Wait until this user's process leads; return the CPU time that it took until then."""
        pid = self.installed.processes[user.rsplit("-", 1)[1]].pid
        used = 0.0
        while not any(one.user == user and one.what == "leases" for one in self.audit.news()):
            used = _cpu(pid)
            time.sleep(0.005)
        return used

    # Measurements

    def singles(self, pods: int) -> None:
        """Measure single pods bound per second, by both schedulers."""
        self.make(_single(number, "default-scheduler") for number in range(pods))
        began = time.time()
        with self.kube_scheduler():
            theirs = self._pace(KUBE, pods, began)
        self.clear()
        self.make(_single(number, annotation.SCHEDULER) for number in range(pods))
        began = time.time()
        with self.ours("scheduler"):
            own = self._pace(OURS, pods, began)
            cpu = 1000 * _cpu(self.installed.processes["scheduler"].pid) / pods
        self.clear()
        ratio = own["rate"] / theirs["rate"]
        what = f"{pods} single pods: bound a second / kube-scheduler"
        tell(what, ratio, ">= 1.0", met=ratio >= 1, ours=own, kube=theirs, cpu_ms_a_pod=round(cpu, 2))

    def delays(self, rounds: int) -> None:
        """Measure the first gang on an empty cluster, by both schedulers; as pods, and as a TrainingJob."""
        with self.kube_scheduler():
            their_delays = [self._delay(KUBE, lambda n=n: self._gang(n, "default-scheduler")) for n in range(rounds)]
        with self.ours("scheduler"):
            self.ready(OURS)
            delays = [self._delay(OURS, lambda n=n: self._gang(n, annotation.SCHEDULER)) for n in range(rounds)]
            self.audit.news()
            self.installed.start("operator")
            self.ready(OPERATOR)
            self.steps.clear()
            whole = [self._delay(OURS, lambda n=n: self._apply(n)) for n in range(rounds)]
        steps = {name: _milli([one[name] for one in self.steps]) for name in self.steps[0]}
        for what, found, more in (("pods", delays, {}), ("a TrainingJob", whole, {"steps_ms": steps})):
            ratio = statistics.median(found) / statistics.median(their_delays)
            seen = {"ours_ms": _milli(found), "kube_ms": _milli(their_delays), **more}
            tell(
                f"from applying {what} to {GANG} pods bound / kube-scheduler for the same pods",
                ratio,
                "<= 3",
                met=ratio <= 3,
                **seen,
            )

    def _pace(self, user: str, pods: int, began: float) -> dict[str, float]:
        """Return bindings per second, the same to the last Event, and seconds since the process started."""
        binds = self.binds(user, pods)
        first, last = min(one.done for one in binds), max(one.done for one in binds)
        told = [one.done for one in self.seen if one.what == "events" and one.user == user]
        by_then = len(told)
        # Events never delay a binding, and kube-scheduler drops some when it is busy.
        quiet = time.monotonic()
        while len(told) < pods and time.monotonic() - quiet < 3.0:
            fresh = [one.done for one in self.audit.news() if one.what == "events" and one.user == user]
            quiet = time.monotonic() if fresh else quiet
            told += fresh
            time.sleep(0.05)
        found = {"rate": (pods - 1) / (last - first), "rate_with_events": len(told) / (max(told) - first)}
        found |= {"events": len(told), "events_by_the_last_bind": by_then, "seconds_from_start": last - began}
        return {name: round(value, 1) for name, value in found.items()}

    def _delay(self, user: str, act: Callable[[], None]) -> float:
        """Return the seconds from the first request of what `act` applies to the last of eight bindings."""
        self.audit.news()
        act()
        last = max(one.done for one in self.binds(user, GANG, 30.0))
        made = [one for one in self.seen if one.what in ("pods", "trainingjobs") and one.verb == "create"]
        began = min(one.asked for one in made)
        pods = [one for one in made if one.what == "pods"]
        first = min(one.asked for one in self.seen if one.what == "pods/binding")
        moments = {"first_pod": min(one.asked for one in pods), "last_pod": max(one.done for one in pods), "first_bind": first}
        self.steps.append({name: at - began for name, at in {**moments, "last_bind": last}.items()})
        self.clear()
        return last - began

    def _gang(self, number: int, scheduler: str) -> None:
        self.make(_member(number, index, scheduler) for index in range(GANG))

    def _apply(self, number: int) -> None:
        self._jobs([_job(f"run-{number}", GANG, suspend=False)])

    def _jobs(self, jobs: Iterable[dict[str, Any]]) -> None:
        asyncio.run(self._many(lambda client, job: client.create(api_resource.TRAINING_JOBS, job, NAMESPACE), jobs))

    def gangs(self, count: int) -> None:
        """Measure gangs bound per second, and how long each is bound in part."""
        self.make(_member(number, index, annotation.SCHEDULER) for number in range(count) for index in range(GANG))
        with self.ours("scheduler"):
            found = self.binds(OURS, count * GANG)
        self.clear()
        by_gang: dict[str, list[float]] = {}
        for one in found:
            by_gang.setdefault(one.name.rsplit("-", 1)[0], []).append(one.done)
        windows = sorted(1000 * (max(times) - min(times)) for times in by_gang.values())
        whole = sorted(max(times) for times in by_gang.values())
        rate = (count - 1) / (whole[-1] - whole[0])
        middle, late = windows[len(windows) // 2], windows[int(len(windows) * 0.99)]
        more = {"window_ms_median": round(middle, 1), "window_ms_p99": round(late, 1)}
        tell(f"{count} gangs of {GANG}: gangs a second", rate, "reported", met=len(by_gang) == count, **more)

    def footprint(self, pods: int) -> None:
        """Measure the memory of both processes with these pods cached, and the CPU time of caching them."""
        self.make(_known(number) for number in range(pods))
        total, cpu = 0.0, {}
        with self.ours("operator"):
            cpu["operator"] = self.ready(OPERATOR) - _cpu_of_imports("fairway.bootstrap.operator")
            with _settled(self.installed.processes["operator"].pid) as pid:
                operator = _pss(pid)
            self.audit.news()
            self.installed.start("scheduler")
            cpu["scheduler"] = self.ready(OURS) - _cpu_of_imports("fairway.engines.kubernetes.scheduler.__main__")
            with _settled(self.installed.processes["scheduler"].pid) as pid:
                scheduler = _pss(pid)
            total = operator + scheduler
        self.clear()
        parts = {"operator": round(operator), "scheduler": round(scheduler)}
        tell(f"operator + scheduler with {pods} pods cached, PSS in MB", total, "<= 300", met=total <= 300, **parts)
        for name, used in cpu.items():
            tell(f"first sync of the {name}, {pods} pods: CPU in s without imports", used, "<= 1", met=used <= 1)

    def idle(self, jobs: int) -> None:
        """Measure CPU and writes of an idle operator."""
        self._jobs(_job(f"idle-{number}", 2, suspend=True) for number in range(jobs))
        with self.ours("operator"), _settled(self.installed.processes["operator"].pid) as pid:
            self.audit.news()
            cpu, began = _cpu(pid), time.monotonic()
            time.sleep(IDLE)
            share = 100 * (_cpu(pid) - cpu) / (time.monotonic() - began)
            writes = [one for one in self.audit.news() if one.user == OPERATOR and one.what != "leases"]
        tell(f"operator idle with {jobs} jobs, in % of a core", share, "<= 1", met=share <= 1)
        tell("its writes meanwhile but the Lease", len(writes), "0", met=not writes)


def _milli(seconds: list[float]) -> int:
    return round(1000 * statistics.median(seconds))


@contextmanager
def _settled(pid: int) -> Iterator[int]:
    """Wait until the process has used almost no CPU for two seconds."""
    before, quiet = -1.0, 0
    while quiet < 4:
        used = _cpu(pid)
        quiet = quiet + 1 if used - before <= 0.02 else 0
        before = used
        time.sleep(0.5)
    yield pid


def _cpu(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _cpu_of_imports(module: str) -> float:
    code = f"import time, importlib; importlib.import_module('{module}'); print(time.process_time())"
    rounds = [subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE).stdout for _ in range(3)]
    return min(map(float, rounds))


def _pss(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _single(number: int, scheduler: str) -> dict[str, Any]:
    return _pod(f"single-{number}", scheduler)


def _member(gang: int, index: int, scheduler: str) -> dict[str, Any]:
    mark = annotation.GangAnnotation(f"gang-{gang}.a0", {"worker": annotation.RoleAnnotation(GANG, GANG, GANG)})
    labels = {annotation.RUN: f"gang-{gang}", annotation.ROLE: "worker", annotation.INDEX: str(index)}
    return _pod(f"gang-{gang}-{index}", scheduler, labels, annotation.write_gang(mark))


def _known(number: int) -> dict[str, Any]:
    """Return a pod that both processes cache and neither acts on: it is placed already, and belongs to no run."""
    pod = _member(number // GANG, number % GANG, annotation.SCHEDULER)
    pod["metadata"]["labels"] = {
        annotation.MANAGED_BY: annotation.MANAGER,
        annotation.ROLE: "worker",
        annotation.INDEX: str(number % GANG),
    }
    pod["spec"]["nodeName"] = f"fake-{number % 100}"
    return pod


def _pod(name: str, scheduler: str, labels: dict[str, str] | None = None, noted: dict[str, str] | None = None) -> dict[str, Any]:
    need = {"cpu": "100m", "memory": "64Mi"}
    container = {"name": "task", "image": "none", "resources": {"requests": need}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}, "annotations": noted or {}},
        "spec": {"schedulerName": scheduler, "automountServiceAccountToken": False, "containers": [container]},
    }


def _job(name: str, workers: int, *, suspend: bool) -> dict[str, Any]:
    role = {"replicas": {"min": workers, "max": workers}, "command": ["python", "train.py"], "resources": {"cpu": "100m"}}
    return {
        "apiVersion": api_resource.TRAINING_JOBS.api_version,
        "kind": api_resource.TRAINING_JOBS.kind,
        "metadata": {"name": name},
        "spec": {"framework": "pytorch", "suspend": suspend, "roles": {"worker": role}},
    }


ROWS: dict[str, tuple[Callable[[Bench, int], None], int]] = {
    "singles": (Bench.singles, 10_000),
    "delays": (Bench.delays, ROUNDS),
    "gangs": (Bench.gangs, 1_000),
    "memory": (Bench.footprint, 10_000),
    "idle": (Bench.idle, 1_000),
}
"""Rows by name: the measurement, and its count."""
NODES = 1_000


def scheduler(*words: str) -> None:
    """Measure one row, `ROW [COUNT [NODES]]`, or all of them: `all [NODES [SHARE]]`, with only a share of each count."""
    name, *numbers = words or ("all",)
    if name != "all":
        part, count = ROWS[name]
        nodes = int(numbers[1]) if len(numbers) > 1 else NODES
        _measure(nodes, [(part, int(numbers[0]) if numbers else count)])
        return
    nodes = int(numbers[0]) if numbers else NODES
    share = float(numbers[1]) if len(numbers) > 1 else 1.0
    _measure(nodes, [(part, max(1, round(share * count))) for part, count in ROWS.values()])


def _measure(nodes: int, parts: list[tuple[Callable[[Bench, int], None], int]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        audit = Audit(Path(place))
        with ControlPlane(apiserver=audit.flags, controllers=PATIENT) as plane:
            os.environ["KUBECONFIG"] = str(plane.kubeconfig())
            kwok.add_nodes(plane, nodes)
            plane.processes.end("kwok")
            installed = Apart(plane, Path(place))
            installed.install()
            bench = Bench(plane, audit, installed)
            for part, count in parts:
                part(bench, count)
