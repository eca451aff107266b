"""A service behind the real Envoy, through the whole daemon."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from daemon_home import DaemonHome
from test_services import ask as ask_once
from test_services import asking, connected, pids_of, service, write_model

from fairway.errors import UnavailableError
from fairway.serving.router.envoy.envoy_router import find_envoy

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def path() -> str:
    """Return a PATH on which Envoy is found, installed beside the tests or in the environment of proxies."""
    try:
        return f"{find_envoy().parent}:{os.environ['PATH']}"
    except UnavailableError:
        made = subprocess.run([ROOT / "scripts" / "framework-venv", "proxies"], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode and not os.environ.get("CI"):
        pytest.skip("the environment of proxies cannot be installed here")
    (found,) = (Path(made.stdout.strip()).parents[1] / "lib").glob("*/site-packages/envoy/_bin")
    return f"{found}:{os.environ['PATH']}"


@pytest.fixture
def behind_envoy(make_home: Callable[..., DaemonHome], path: str) -> DaemonHome:
    """A home that uses Envoy, with two versions of a model: the first adds 1, the second adds 2."""
    home = make_home("home", FAIRWAY_ROUTER="envoy", PATH=path)
    for number in (1, 2):
        home.ask("model", "register", "adds", str(write_model(home.work / f"v{number}.onnx", number)))
    return home


@pytest.mark.framework("proxies")
def test_a_release_and_a_new_daemon_behind_envoy_cost_no_request(behind_envoy: DaemonHome) -> None:
    home = behind_envoy
    home.ask("serve", "adds@1", "--replicas", "1..3")
    assert service(home)["router"] == "Envoy"
    assert "router:   Envoy" in home.ask("get", "service/adds")
    assert pids_of(home, "fairway.serving.router") == [], "nothing of ours is on the path"
    with asking(home) as askers:
        askers.new_answers(home, 11.0)
        home.ask("rollout", "start", "adds", "adds@2")
        askers.new_answers(home, 12.0)
        home.kill_daemon()
        askers.new_answers(home, 12.0)
        home.until(lambda: service(home)["ready_replicas"] == 1, "the next daemon")
        home.ask("scale", "service/adds", "2")
        home.until(lambda: service(home)["ready_replicas"] == 2, "the second replica")
        askers.new_answers(home, 12.0)
        home.ask("scale", "service/adds", "1")
        askers.new_answers(home, 12.0)
    assert askers.failures == []
    assert service(home)["failed"] == 0
    home.ask("delete", "service/adds")
    home.check_nothing_held()


@pytest.mark.framework("proxies")
def test_a_service_that_may_have_no_replica_keeps_our_router(behind_envoy: DaemonHome) -> None:
    home = behind_envoy
    document = {"kind": "ModelService", "name": "adds", "model": "adds@1", "replicas": {"min": 0, "max": 1}}
    home.ask("apply", "-f", home.write(document))
    home.until(lambda: service(home)["url"], "its port")
    assert "fairway's own: it may scale to zero" in home.ask("get", "service/adds")
    with connected(home) as connection:
        assert ask_once(connection)[0] == 200
    told = json.loads(home.ask("doctor", "-o", "json"))["findings"]
    (router,) = [finding["text"] for finding in told if finding["name"] == "router"]
    assert router.startswith("Envoy at ")
    home.ask("delete", "service/adds")


def test_a_router_that_nobody_knows_is_refused(make_home: Callable[..., DaemonHome]) -> None:
    home = make_home("home", FAIRWAY_ROUTER="nginx")
    assert home.start_child().wait(30) == 2
    assert "set it to fairway, envoy or auto" in (home.runtime / "child.log").read_text()
