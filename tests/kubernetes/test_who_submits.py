"""Who asks: by command, by program or by hand. Groups are those that the API server knows; nobody writes others into objects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.control_plane import ControlPlane
from cluster.installed import Installed, Jobs
from cluster.process import wait_for
from cluster.record import API_SERVICE, Person, start_operator

import fairway
from fairway.engines.kubernetes.install.vouching import vouching
from fairway.errors import DeniedError

pytestmark = pytest.mark.timeout(300)

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
QUEUE = {
    "apiVersion": "fairway.dev/v1alpha1",
    "kind": "JobQueue",
    "metadata": {"name": "language"},
    "spec": {"members": ["group:nlp"]},
}
QUEUES = "/apis/fairway.dev/v1alpha1/jobqueues"


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    found = Installed(control_plane, tmp_path_factory.mktemp("fairway"))
    found.install()
    policies = [(one, f"{ADMISSION}/{PLURALS[one['kind']]}/{one['metadata']['name']}") for one in vouching("fairway-system")]
    for one, path in policies:
        control_plane.apply(one, path)
    control_plane.apply(QUEUE, f"{QUEUES}/language")
    start_operator(found)
    yield found
    found.stop()
    for path in (*(path for _, path in policies), API_SERVICE, f"{QUEUES}/language"):
        control_plane.request("DELETE", path)


def person(installed: Installed, namespace: str, folder: Path, name: str, groups: list[str]) -> Person:
    """Somebody who may edit, and is of these groups."""
    installed.plane.kubectl("-n", namespace, "create", "rolebinding", name, "--clusterrole=edit", f"--user={name}")
    found = Person(installed.plane, folder, name, namespace, groups)
    found.env["FAIRWAY_CONTEXT"] = "lab"
    return found


def made_by_hand(name: str, namespace: str, **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "fairway.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {f"fairway.dev/{key}": value for key, value in annotations.items()},
        },
        "spec": {"queue": "language", "roles": {"worker": {"command": ["python", "train.py"]}}},
    }


def test_members_are_judged_by_the_groups_that_the_api_server_knows(installed: Installed, namespace: str, tmp_path: Path) -> None:
    jobs = Jobs(installed, namespace)
    ann = person(installed, namespace, tmp_path, "ann", ["nlp", "everybody"])
    submitted = ann.run("submit", "--queue", "language", "--name", "words", "--", "python", "-c", "1")
    assert submitted.stdout == "words-1\n"
    noted = jobs.get("words-1")["metadata"]["annotations"]
    assert (noted["fairway.dev/user"], noted["fairway.dev/groups"]) == ("ann", '["nlp"]')

    bob = person(installed, namespace, tmp_path, "bob", ["vision"])
    refused = bob.run("submit", "--queue", "language", "--name", "words", "--", "python", "-c", "1", code=5).stderr
    assert "bob may not submit to the queue language: group:nlp may" in refused
    assert "or use another queue: default" in refused

    # Nobody writes it by hand, on a new object or on one that is there.
    def forged(**annotations: str) -> tuple[int, Any]:
        return installed.plane.request("POST", jobs.path, made_by_hand("forged", namespace, **annotations))

    wait_for("the policy holds", lambda: forged(user="ann")[0] == 422, 60.0)
    status, answer = forged(groups='["nlp"]')
    assert status == 422
    assert "Fairway's operator alone writes it: leave it out, or submit the document with `fairway submit`" in answer["message"]

    def patch(**annotations: str | None) -> int:
        body = {"metadata": {"annotations": {f"fairway.dev/{key}": value for key, value in annotations.items()}}}
        kind = "application/merge-patch+json"
        return installed.plane.request("PATCH", f"{jobs.path}/words-1", body, kind)[0]

    assert patch(user="root") == 422
    assert patch(note="seen") == 200
    assert patch(groups=None) == 200

    # What names nobody is nobody's: it may use the queues that are open to all.
    bare = json.dumps(made_by_hand("bare", namespace))
    installed.plane.kubectl("apply", "-f", "-", given=bare)
    said = jobs.until("bare", "is refused", lambda status: status.get("reason") == "Refused")["message"]
    assert "nobody is named by an object that was made without Fairway: use `fairway submit`" in said


async def test_a_program_acts_on_a_cluster_as_a_command_does(
    installed: Installed, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a loop, as in a notebook, both the client that waits and the one that is awaited."""
    cleo = person(installed, namespace, tmp_path, "cleo", [])
    monkeypatch.setenv("KUBECONFIG", str(cleo.kubeconfig))
    (cleo.work / "train.py").write_text("print(1)\n")
    document = {"kind": "TrainingJob", "name": "small", "code": str(cleo.work), "command": "python train.py"}
    client = fairway.Client(context="lab")
    assert client.plan(document).jobs
    job = client.submit(document, workers=2)
    assert (job.name, job.user, job.replicas) == ("small-1", "cleo", 2)
    assert Jobs(installed, namespace).get("small-1")["metadata"]["annotations"]["fairway.dev/code"].startswith("blob:")
    async with fairway.AsyncClient(context="lab") as awaited:
        assert [one.name for one in (await awaited.list()).jobs] == ["small-1"]
        waiting = asyncio.create_task(awaited.wait("small"))
        with pytest.raises(TimeoutError):
            await awaited.wait("small", timeout=0.5)
        await asyncio.to_thread(client.stop, "small")
        assert (await waiting).phase.value == "Stopped"
        assert [change.phase.value async for change in awaited.watch("small")][-1:] == ["Stopped"]
    assert client.delete("small-1") == ("small-1",)
    with pytest.raises(DeniedError, match='User "cleo" cannot list'):
        fairway.Client(context="lab", namespace="kube-system").list()
