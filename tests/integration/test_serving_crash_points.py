"""The daemon dies at every act of serving and of the registry; the endpoint answers on, and the next one finishes the work."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal

import pytest
from daemon_home import DaemonHome, kill
from test_services import Askers, ask, pids_of, service, write_model

from fairway.app import crash

NOT_FOUND = 3
REFUSED = 5
"""Also when it was done already, and the answer was lost."""
DOCUMENT = {
    "kind": "ModelService",
    "name": "adds",
    "model": "adds@champion",
    "grace": "2s",
    "sampling": {"rate": "100%", "dataset": "asked"},
}
PLACES = [f"{point}:{moment}" for point in crash.SERVING_POINTS for moment in ("before", "after")]
REPLICAS = [f"{point}:{moment}" for point in ("engine.spawn", "engine.signal") for moment in ("before", "after")]
"""Start and stop of the first replica."""
LATER = [f"store.commit:after:{count}" for count in range(2, 22, 3)]
LATER += [f"router.rename:after:{count}" for count in (2, 3, 4, 6)] + [f"router.tell:after:{count}" for count in (2, 3)]
LATER += [f"registry.rename:after:{count}" for count in (4, 8, 12)] + ["engine.spawn:after:2", "registry.remove:after:3"]
"""Between the file of a plan and the one of a port, between a version and its alias, in the middle of a release."""


def live(home: DaemonHome, *, killed: bool) -> None:
    """A model is served, released anew, and goes again. Whatever gets no answer is asked again.

    When its first replica is `killed`, it leaves a file of requests that it was writing.
    """
    for number in (1, 2):
        home.persist("model", "register", "adds", str(write_model(home.work / f"v{number}.onnx", number)))
    home.persist("model", "promote", "adds@1", "champion")
    home.persist("apply", "-f", home.write(DOCUMENT))
    home.until(lambda: service(home)["phase"] == "Ready", "the service")
    replicas = {"adds-r1-1", "adds-r2-2"}
    if killed:
        replicas = {"adds-r1-1", "adds-r1-2", "adds-r2-3"}
        lose_replica(home)
    with Askers(int(service(home)["url"].rpartition(":")[2])) as askers:
        askers.new_answers(home, 11.0)
        check_one_of_each(home)
        home.persist("rollout", "start", "adds", "adds@2")
        home.until(lambda: service(home) and pids_of(home, "--version 1") == [], "the end of the first version", within=60)
        askers.new_answers(home, 12.0)
        check_one_of_each(home)
        assert made(home) == replicas, "no replica was made twice"
    assert askers.failures == []
    home.persist("delete", "service/adds", well=(0, NOT_FOUND))
    home.until(lambda: asked_of(home) == ["adds@1", "adds@2"], "the sampled requests")
    home.persist("model", "promote", "adds@1", "champion", "--remove", well=(0, NOT_FOUND, REFUSED))
    home.persist("delete", "model/adds@1", well=(0, NOT_FOUND))
    home.until(lambda: home.persist("list", "models") and not list(home.path.glob("deleted-models/*")), "the version's space")


def lose_replica(home: DaemonHome) -> None:
    """Kill the only replica after it has sampled a request."""
    port = int(service(home)["url"].rpartition(":")[2])
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        assert ask(connection)[0] == 200
    home.until(lambda: any(path.stat().st_size for path in home.path.glob("jobs/*/*/shared/requests/*")), "the sample")
    (replica,) = pids_of(home, "fairway.serving.replica")
    kill(replica)
    home.until(lambda: service(home)["ready_replicas"] and pids_of(home, "fairway.serving.replica") != [replica], "another one")


def made(home: DaemonHome) -> set[str]:
    """The replicas that there ever were."""
    return {path.name for path in home.path.glob("jobs/default.services/*")}


def check_one_of_each(home: DaemonHome) -> None:
    """One replica, one keeper and one router."""
    for program in ("fairway.serving.replica", "fairway.serving.router.keeper", "fairway.serving.router.process"):
        assert len(pids_of(home, program)) == 1, home.processes()


def asked_of(home: DaemonHome) -> list[str]:
    """The versions of the model whose answers were sampled; each request must be there once."""
    found = json.loads(home.persist("data", "list", "-o", "json"))["datasets"]
    return found[-1]["models"] if found else []


def live_through(home: DaemonHome, place: str) -> bool:
    """The story with a daemon that dies at a place. Whether it came there."""
    daemon = home.start_child(FAIRWAY_CRASH_AT=place)
    home.until(lambda: home.status()["running"] or daemon.poll() is not None, "the start of the daemon")
    live(home, killed=place.startswith("samples.rename"))
    if daemon.poll() is None:
        return False
    assert daemon.returncode == -signal.SIGKILL
    home.check_nothing_held()
    assert list(home.path.glob("routers/*")) == []
    assert pids_of(home, "fairway.serving") == []
    return True


@pytest.mark.timeout(240)
@pytest.mark.parametrize("place", PLACES + REPLICAS)
def test_a_service_survives_the_death_of_the_daemon(home: DaemonHome, place: str) -> None:
    assert live_through(home, place), f"nothing reaches {place}"


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("place", LATER)
def test_and_a_death_a_little_later(home: DaemonHome, place: str) -> None:
    assert live_through(home, place), f"nothing reaches {place}"
