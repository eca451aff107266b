"""SIGKILL to each process of the serving side, in every order and in pairs at once, while clients send requests.

Promises under test: a service of which one replica is left responds again within two seconds of each kill. Each failed request
failed for a reason that a kill explains, and the router that answered it has counted it. `make soak` plays all orders; CI plays a
few of them, drawn with a seed. Each has a service of its own, because replicas that end often are replaced ever more slowly.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from daemon_home import DaemonHome, is_alive, kill
from test_services import service

from fairway.serving.router.wire_format import decode_load
from fairway.state.serving.load import RouteLoad

AGAIN = 2.0
"""Seconds from a kill to the next successful response."""
CI_AGAIN = 15.0
"""The same on a machine that is busy with other work; the exact bound is for `make soak`."""
PREDICT = "/v1/models/adds:predict"
ASK = json.dumps({"instances": [[10, 20]]})
CLIENTS = 4
MODEL = """
class Model:
    signature = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
    }

    def load(self, folder):
        pass

    def predict(self, inputs):
        return {"y": inputs["x"] + 1}
"""
REPLICA_SIDE = ("replica", "worker", "supervisor")
KINDS = ("daemon", "keeper", "router", *REPLICA_SIDE)
ORDERS = list(itertools.permutations(KINDS))
PAIRS = list(itertools.combinations((*KINDS, "nursery"), 2))
CI_ORDERS = random.Random(16).sample(ORDERS, 1)
CI_PAIRS = [("keeper", "router"), ("daemon", "worker")]
THREE = ("daemon", "keeper", "router")
"""All processes between clients and replicas."""


@dataclass(frozen=True)
class Failure:
    """A request that failed."""

    asked: float
    failed: float
    cause: str
    """`refused`, `reset`, `closed`, or the status."""
    request_id: str
    words: str


@dataclass
class Clients:
    """Clients that send requests continuously, each on a kept connection."""

    port: int
    answered: int = 0
    last_asked: float = 0.0
    """When the latest successful request was sent."""
    failures: list[Failure] = field(default_factory=list)
    longest: float = 0.0
    """The longest time between two successful responses, in seconds."""

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._seen = time.monotonic()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(CLIENTS)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self._over.is_set():
            asked = time.monotonic()
            try:
                connection.request("POST", PREDICT, ASK, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._note(asked, _cause(error), "", repr(error))
            else:
                if answer.status == 200:
                    assert json.loads(body) == {"predictions": [[11.0, 21.0]]}
                    self._answered(asked)
                else:
                    self._note(asked, str(answer.status), answer.headers.get("x-request-id", ""), body.decode())
            self._over.wait(0.004)
        connection.close()

    def _answered(self, asked: float) -> None:
        now = time.monotonic()
        with self._lock:
            self.answered += 1
            self.last_asked = max(self.last_asked, asked)
            self.longest = max(self.longest, now - self._seen)
            self._seen = now

    def _note(self, asked: float, cause: str, request_id: str, words: str) -> None:
        with self._lock:
            self.failures.append(Failure(asked, time.monotonic(), cause, request_id, words))


def _cause(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "reset"
    # Also when the connection ends within a response.
    return "closed" if isinstance(error, http.client.HTTPException) else type(error).__name__


class Killer:
    """Kills processes of one service, and records when."""

    def __init__(self, home: DaemonHome, clients: Clients) -> None:
        self.home = home
        self.clients = clients
        self.kills: list[tuple[float, float, str]] = []
        """Start and end of the kill, and the kind of process."""
        self.again: list[tuple[str, float]] = []
        """The kind that was killed, and the seconds until a request that was sent afterwards succeeded."""

    def pid(self, kind: str) -> int:
        """Return a process of this kind, once it exists and, for the replica side, once another replica is ready."""
        if kind in REPLICA_SIDE:
            self.home.until(lambda: _ready(self.home) > 1, "two ready replicas", within=60)
        return self.home.until(lambda: next(iter(self.find(kind)), 0), f"a {kind}", within=60)

    def find(self, kind: str) -> list[int]:
        """Return the processes of this kind."""
        home = self.home
        if kind == "supervisor":
            found = [pid for pid, text in home.processes().items() if text.startswith("supervisor of replica")]
            return [pid for pid in found if is_alive(pid)]
        if kind == "nursery":
            return [pid for pid, text in home.processes().items() if "supervision.fork_server" in text and "-c" in text][:1]
        programs = {
            "daemon": "fairway.bootstrap",
            "keeper": "fairway.serving.router.keeper",
            "router": "fairway.serving.router.process",
            "replica": "-m fairway.serving.replica",
            "worker": "serving/replica/worker.py",
        }
        return [pid for pid, text in home.processes().items() if programs[kind] in text]

    def kill(self, *kinds: str) -> None:
        """Kill one of each kind at once."""
        pids = [self.pid(kind) for kind in kinds]
        began = time.monotonic()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it ended together with the first one
                kill(pid)
        self.kills += [(began, time.monotonic(), kind) for kind in kinds]

    def await_answer(self, bound: float) -> None:
        """Wait for the response to a request that was sent after the last kill."""
        _, until, kind = self.kills[-1]
        self.home.until(lambda: self.clients.last_asked > until, f"an answer after the kill of the {kind}", within=30)
        took = time.monotonic() - until
        self.again.append((kind, took))
        assert took < bound, f"answered {took:.2f} s after the kill of the {kind}; {self.kills}"


def _ready(home: DaemonHome) -> int:
    return int(service(home)["ready_replicas"])


@pytest.fixture(scope="module")
def registered(shared_home: DaemonHome) -> DaemonHome:
    """A Python class behind two replicas: each has a worker process beside it."""
    home = shared_home
    home.environment["PATH"] = f"{os.path.dirname(sys.executable)}:{home.environment['PATH']}"
    folder = home.work / "model"
    folder.mkdir()
    (folder / "model.py").write_text(MODEL)
    home.ask("model", "register", "adds", str(folder), "--format", "python")
    return home


@contextlib.contextmanager
def serving(home: DaemonHome, replicas: int) -> Iterator[None]:
    """Yield a new service with this many ready replicas."""
    home.persist("serve", "adds@1", "--replicas", str(replicas))
    try:
        home.until(lambda: _ready(home) == replicas, "ready replicas", within=60)
        yield
    finally:
        home.persist("delete", "service/adds", well=(0, 3))
        home.until(lambda: "adds" not in home.persist("list", "services", "-o", "name"), "the end of the service", within=60)


@contextlib.contextmanager
def under_load(home: DaemonHome) -> Iterator[Killer]:
    """Run clients, and look at the service continuously: like any command, that starts a daemon that was killed."""
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            service(home)
            over.wait(0.1)

    looks = threading.Thread(target=look, daemon=True)
    looks.start()
    try:
        with Clients(int(service(home)["url"].rpartition(":")[2])) as clients:
            home.until(lambda: clients.answered > 20, "first answers")
            yield Killer(home, clients)
            before = clients.answered
            home.until(lambda: clients.answered > before + 20, "answers at the end")
    finally:
        over.set()
        looks.join(60)


def counted(home: DaemonHome) -> list[RouteLoad]:
    """Return what each router process of the service has counted."""
    found = []

    async def look(path: str) -> bytes:
        reader, writer = await asyncio.open_unix_connection(path, limit=1 << 24)
        writer.write(b"look\n")
        line = await reader.readline()
        writer.close()
        return line

    for path in home.runtime.glob("fairway/router-*/*.sock"):
        with contextlib.suppress(OSError):
            found.append(decode_load(asyncio.run(look(str(path)))))
    return found


EXPLAINS = {
    "refused": {"router", "keeper"},
    "reset": {"router"},
    "closed": {"router"},
    "502": set(REPLICA_SIDE),
    "503": set(REPLICA_SIDE),
}
"""The kinds of process whose kill may cause each failure."""
LATE = 3.0
"""Seconds after a kill in which its failures end."""


def failed(load: RouteLoad) -> int:
    """Return the requests that a router has answered with an error of its own or of a replica."""
    return sum(revision.failed for revision in load.revisions.values()) + load.expired


def check_accounts(killer: Killer) -> Counter[str]:
    """Assert that a kill explains each failure, and that the living routers have counted theirs; return the causes."""
    failures = killer.clients.failures
    for each in failures:
        near = {kind for began, until, kind in killer.kills if each.asked <= until + LATE and each.failed >= began}
        assert near & EXPLAINS.get(each.cause, set()), f"no kill explains {each}; {killer.kills}"
    for load in counted(killer.home):
        seen = [each for each in failures if each.request_id.startswith(load.epoch[:16] + "-")]
        assert failed(load) == len(seen), (load, seen)
    return Counter(each.cause for each in failures)


def play(home: DaemonHome, steps: Sequence[Sequence[str]], replicas: int, bound: float) -> None:
    """Kill what each step names, each step as soon as a request succeeded after the previous one."""
    with serving(home, replicas):
        with under_load(home) as killer:
            for step in steps:
                killer.kill(*step)
                killer.await_answer(bound)
        causes = check_accounts(killer)
    words = {each.words for each in killer.clients.failures if each.words}
    slowest = max(took for _, took in killer.again)
    longest = killer.clients.longest
    name = " ".join("+".join(step) for step in steps)
    print(
        f"\n{name}: {killer.clients.answered} answered, failed {dict(causes)},",
        f"again {slowest:.2f} s, longest gap {longest:.2f} s",
        words,
    )


@pytest.mark.parametrize("order", CI_ORDERS, ids=" ".join)
def test_a_few_orders(registered: DaemonHome, order: Sequence[str]) -> None:
    play(registered, [[kind] for kind in order], 4, CI_AGAIN)


@pytest.mark.parametrize("pair", [*CI_PAIRS, THREE], ids="+".join)
def test_a_few_pairs_at_once(registered: DaemonHome, pair: Sequence[str]) -> None:
    play(registered, [pair], 2, CI_AGAIN)


@pytest.mark.soak
@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_every_order(registered: DaemonHome, order: Sequence[str]) -> None:
    """Three of the kinds end a replica, and their replicas are replaced ever more slowly: four replicas, so that one is left."""
    play(registered, [[kind] for kind in order], 4, AGAIN)


@pytest.mark.soak
@pytest.mark.parametrize("pair", [pair for pair in PAIRS if not set(pair) <= set(REPLICA_SIDE)], ids="+".join)
def test_every_pair_at_once(registered: DaemonHome, pair: Sequence[str]) -> None:
    play(registered, [pair], 2, AGAIN)


@pytest.mark.soak
def test_all_but_the_replicas_at_once(registered: DaemonHome) -> None:
    play(registered, [THREE], 2, AGAIN)


@pytest.mark.soak
def test_one_of_each_kind_at_once(registered: DaemonHome) -> None:
    """The processes of the replica side may belong to three replicas: four, so that one is left."""
    play(registered, [(*KINDS, "nursery")], 4, AGAIN)


@pytest.mark.soak
@pytest.mark.parametrize("pair", list(itertools.combinations(REPLICA_SIDE, 2)), ids="+".join)
def test_every_pair_of_a_replica_at_once(registered: DaemonHome, pair: Sequence[str]) -> None:
    """The two may belong to two replicas: three, so that one is left."""
    play(registered, [pair], 3, AGAIN)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.soak) for kind in REPLICA_SIDE])
def test_the_only_replica_is_replaced(registered: DaemonHome, kind: str) -> None:
    """Without another replica, requests wait in the router for a cold start; those in flight are lost."""
    with serving(registered, 1):
        with under_load(registered) as killer:
            pid = next(iter(killer.find(kind)))
            began = time.monotonic()
            kill(pid)
            killer.kills.append((began, time.monotonic(), kind))
            killer.await_answer(CI_AGAIN)
        causes = check_accounts(killer)
    print(f"\none replica, {kind}: answered again after {killer.again[0][1]:.2f} s; failed {dict(causes)}")
