"""The daemon crashes at every act of serving and of the registry; the endpoint stays up, and the next one completes the work."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from daemon_home import DaemonHome, kill
from test_services import Askers, ask, pids_of, service, write_model

from fairway.app.system import crash_point

NOT_FOUND = 3
REFUSED = 5
"""Also returned when it was done already, and the response was lost."""
DOCUMENT = {
    "kind": "ModelService",
    "name": "adds",
    "model": "adds@champion",
    "grace": "2s",
    "sampling": {"rate": "100%", "dataset": "asked"},
}
PLACES = [f"{point}:{moment}" for point in crash_point.SERVING_POINTS for moment in ("before", "after")]
PLACES += [f"{point}:{moment}" for point in ("engine.spawn", "engine.signal") for moment in ("before", "after")]
"""Besides those of serving: start and stop of a replica."""
SAMPLED = [place for place in PLACES if place.startswith("samples.rename")]
"""Reached only when a replica was killed while writing a file."""
LATER = {"store.commit:after:3": 6, "router.rename:after:2": 3, "router.tell:after:2": 3, "registry.rename:after:4": 3}
"""Between the files of a plan and of a port, between a version and its alias, in the middle of a release: number of crashes."""
MOST_STORIES = 12


class Mortals(DaemonHome):
    """A home whose daemons crash, each at the next of some places."""

    places: tuple[str, ...] = ()
    persistence = 300.0
    """Long, because a command starts a few daemons that crash at each of several places."""

    def call(self, *words: str, say: str = "", more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command; if it has to start a daemon, that daemon crashes at the next place.

        A command that retries after a lost response starts another daemon that crashes at the same place.
        """
        place = next(iter(self.left), "")
        return super().call(*words, say=say, more={"FAIRWAY_CRASH_AT": place, **(more or {})})

    @property
    def left(self) -> list[str]:
        """The places at which no daemon has crashed so far."""
        path = self.path / "daemon.log"
        log = path.read_text() if path.exists() else ""
        died = Counter(re.findall(rf"{crash_point.DIES} (\S+)", log))
        left = []
        for place in self.places:
            point = ":".join(place.split(":")[:2])
            if died[point]:
                died[point] -= 1
            else:
                left.append(place)
        return left


def live(home: DaemonHome, *, killed: bool) -> None:
    """Serve a model, release a new version, and delete it. Requests without a response are repeated.

    If its first replica is `killed`, it leaves a file of requests that it was writing.
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
        until_answered(home, askers, 11.0)
        check_one_of_each(home)
        home.persist("rollout", "start", "adds", "adds@2")
        home.until(lambda: service(home) and pids_of(home, "--version 1") == [], "the end of the first version", within=60)
        until_answered(home, askers, 12.0)
        check_one_of_each(home)
        assert made(home) == replicas, "no replica was made twice"
    assert askers.failures == []
    home.persist("delete", "service/adds", well=(0, NOT_FOUND))
    home.until(lambda: asked_of(home) == ["adds@1", "adds@2"], "the sampled requests")
    home.persist("model", "promote", "adds@1", "champion", "--remove", well=(0, NOT_FOUND, REFUSED))
    home.persist("delete", "model/adds@1", well=(0, NOT_FOUND))
    home.until(lambda: home.persist("list", "models") and not list(home.path.glob("deleted-models/*")), "the version's space")


def until_answered(home: DaemonHome, askers: Askers, value: float) -> None:
    """Wait until there were more of these responses. Each look at the service restarts a daemon that has crashed."""
    wanted = askers.answers[value] + 20
    home.until(lambda: service(home) and askers.answers[value] >= wanted, f"answers of {value}", within=90)


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
    """Return all replicas that were ever created."""
    return {path.name for path in home.path.glob("jobs/default.services/*")}


def check_one_of_each(home: DaemonHome) -> None:
    """Assert that there are one replica, one keeper and one router."""
    for program in ("fairway.serving.replica", "fairway.serving.router.keeper", "fairway.serving.router.process"):
        assert len(pids_of(home, program)) == 1, home.processes()


def asked_of(home: DaemonHome) -> list[str]:
    """Return the versions of the model whose responses were sampled; each request must be there once."""
    found = json.loads(home.persist("data", "list", "-o", "json"))["datasets"]
    return found[-1]["models"] if found else []


def live_through(home: Mortals, places: Sequence[str], *, killed: bool = False) -> list[str]:
    """Play the story, with daemons that crash at these places in turn. Return the places that were not reached."""
    home.places = tuple(places)
    live(home, killed=killed)
    home.check_nothing_held()
    assert list(home.path.glob("routers/*")) == []
    assert pids_of(home, "fairway.serving") == []
    return home.left


@pytest.fixture
def make_mortals(tmp_path: Path) -> Iterator[Callable[[], Mortals]]:
    made: list[Mortals] = []

    def make() -> Mortals:
        made.append(Mortals(tmp_path, f"home-{len(made)}"))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("killed", [False, True])
def test_a_service_survives_the_death_of_the_daemon_at_every_act(make_mortals: Callable[[], Mortals], killed: bool) -> None:
    """A place that the story has already passed when its turn comes is tested in the next story."""
    left = [place for place in PLACES if (place in SAMPLED) == killed]
    for _ in range(MOST_STORIES):
        home = make_mortals()
        before, left = left, live_through(home, left, killed=killed)
        assert left != before, f"nothing reaches {left[0]}"
        if not left:
            return
        home.close()
    pytest.fail(f"not reached: {left}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", LATER)
def test_and_one_death_after_another_a_little_later(make_mortals: Callable[[], Mortals], place: str) -> None:
    """Each daemon gets some steps further than the one before, and crashes there."""
    assert len(live_through(make_mortals(), [place] * LATER[place])) < LATER[place] - 1
