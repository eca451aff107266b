"""The cluster as pytest fixtures. Tests are skipped with a clear message when its programs are missing.

`FAIRWAY_CLUSTER=require` turns that into a failure.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from cluster import kwok
from cluster.control_plane import ControlPlane
from cluster.nodes import RealCluster
from cluster.programs import ProgramsMissingError

_NUMBERS = itertools.count()


@contextmanager
def skipping_what_is_missing(by: str = "FAIRWAY_CLUSTER") -> Iterator[None]:
    """Turn a missing program into a skipped test, or into a failed one where this environment variable requires it."""
    try:
        yield
    except ProgramsMissingError as missing:
        if os.environ.get(by) == "require":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """One control plane for all tests of the session: each test works in a namespace of its own (`namespace`)."""
    plane = ControlPlane()
    with skipping_what_is_missing():
        plane.start()
    yield plane
    plane.stop()


@pytest.fixture
def own_control_plane() -> Iterator[Callable[..., ControlPlane]]:
    """Creates control planes for one test alone, which may break them: `own_control_plane(apiserver=["--flag"])`."""
    made: list[ControlPlane] = []

    def make(**options: object) -> ControlPlane:
        made.append(ControlPlane(**options))
        with skipping_what_is_missing():
            made[-1].start()
        return made[-1]

    yield make
    for plane in made:
        plane.stop()


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one test; its deletion is requested at the end."""
    status, answer = control_plane.request("POST", "/api/v1/namespaces", {"metadata": {"generateName": "test-"}})
    assert status == 201, answer
    name = answer["metadata"]["name"]
    yield name
    control_plane.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def kwok_nodes(control_plane: ControlPlane) -> Iterator[Callable[..., list[str]]]:
    """Adds simulated nodes for one test: `kwok_nodes(3, capacity={"nvidia.com/gpu": "8"})`; they are removed at the end.

    Their names are new each time: kwok may miss a node that is created again at once under the same name.
    """
    made: list[str] = []

    def add(count: int, **options: object) -> list[str]:
        made.extend(kwok.add_nodes(control_plane, count, **{"prefix": f"fake{next(_NUMBERS)}", **options}))
        return list(made)

    yield add
    kwok.remove_nodes(control_plane, made)


@pytest.fixture(scope="module")
def real_nodes() -> Iterator[RealCluster]:
    """One cluster with two real nodes and a control plane per file of tests: each file installs different things."""
    cluster = RealCluster(2)
    with skipping_what_is_missing():
        cluster.start()
    yield cluster
    cluster.stop()
