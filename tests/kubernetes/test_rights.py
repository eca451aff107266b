"""Who may do what: every permission that is granted is used, nothing else is asked for, and nobody has more than is written down.

The audit of all control planes of the session says what was used, so that this runs last.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from cluster.audit import HEARD, SYSTEM, Asked
from cluster.control_plane import ControlPlane
from cluster.installed import Installed

from fairway.engines.kubernetes.install.roles import CLUSTER_RULES, OWN_RULES

pytestmark = pytest.mark.last

SUITE = {
    "test_agent.py",
    "test_jobs.py",
    "test_serving.py",
    "test_verbs.py",
    "test_mpi.py",
    "test_content.py",
    "test_neighbours.py",
    "test_scheduler.py",
}
"""Where the permissions are used; only where all of them ran can it be said that one is not."""
UNSEEN = {
    (
        "fairway.dev",
        "trainingjobs/finalizers",
        "update",
    ): "asked by an admission plug-in that clusters may have, of whoever owns children",
    ("fairway.dev", "modelservices/finalizers", "update"): "the same",
    ("", "pods/exec", "create"): "asked by the API server itself when a container is entered",
}
"""Permissions that are no request of their own."""
RARE = {
    ("operator", "", "pods", "get"): "a pod was made, and the answer was lost",
    ("scheduler", "", "pods", "get"): "a pod was bound, and the answer was lost",
    ("scheduler", "", "pods", "delete"): "half a gang stayed bound",
    ("operator", "events.k8s.io", "events", "list"): "a pod that has its node does not begin",
    ("operator", "metrics.k8s.io", "pods", "list"): "where metrics-server is there",
    ("operator", "gateway.networking.k8s.io", "gateways", "get"): "where the Gateway API is there",
    ("operator", "gateway.networking.k8s.io", "httproutes", "create"): "where the Gateway API is there",
    ("operator", "gateway.networking.k8s.io", "httproutes", "patch"): "where the Gateway API is there",
    ("operator", "gateway.networking.k8s.io", "httproutes", "delete"): "where the Gateway API is there",
}
"""Permissions that are used where something rare happens, or where somebody else is on the cluster."""
PROVOKED = {("agent", "fairway.dev", "gpunodes", "delete"), ("agent", "", "pods", "list")}
"""What tests ask for on purpose, to be refused."""
EVERYBODYS = {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews", "clustertrustbundles"}
"""What every account may ask of itself."""


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    HEARD.add(control_plane.folder)  # What these tests themselves ask does not count.
    found = Installed(control_plane, tmp_path_factory.mktemp("rights"))
    found.install()
    return found


def granted(process: str, rules: dict[str, tuple[dict[str, Any], ...]]) -> set[Asked]:
    return {
        Asked(process, group, resource, verb)
        for rule in rules.get(process, ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


class Account:
    """One of our processes, as the API server knows it."""

    def __init__(self, plane: ControlPlane, process: str) -> None:
        self.server = plane.server
        user = f"system:serviceaccount:{SYSTEM}:fairway-{process}"
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}", "system:authenticated"]
        config = json.loads(Path(plane.kubeconfig(user, groups)).read_text())
        keys = config["users"][0]["user"]
        self.context = ssl.create_default_context(cafile=config["clusters"][0]["cluster"]["certificate-authority"])
        self.context.load_cert_chain(keys["client-certificate"], keys["client-key"])

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data, {"Content-Type": kind}, method=method)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30) as answer:
                # A watch that was begun is allowed; what comes does not matter.
                return answer.status, None if "watch=1" in path else json.loads(answer.read(1 << 20))
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode(errors="replace")


METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}


_known: dict[tuple[str, str], tuple[str, set[str]]] = {}


def places(plane: ControlPlane, group: str) -> tuple[str, set[str]]:
    """The path of a group, and its kinds that lie in no namespace. Rights are judged for kinds that are not there, too."""
    if (plane.server, group) not in _known:
        served = {each["name"]: each["preferredVersion"]["groupVersion"] for each in plane.get("/apis")[1]["groups"]}
        root = f"/apis/{served.get(group, f'{group}/v1')}" if group else "/api/v1"
        kinds = plane.get(root)[1]["resources"] if group in served or not group else []
        _known[plane.server, group] = (root, {each["name"] for each in kinds if not each["namespaced"]})
    return _known[plane.server, group]


def path_of(plane: ControlPlane, asked: Asked, name: str, namespace: str) -> str:
    """Where a permission is used: on an object that is not there, so that nothing is changed."""
    root, alone = places(plane, asked.group)
    plural, _, subresource = asked.resource.partition("/")
    path = f"{root}/{plural}" if plural in alone else f"{root}/namespaces/{namespace}/{plural}"
    if asked.verb in ("list", "watch") or (asked.verb == "create" and not subresource):
        return path + (
            "?watch=1&timeoutSeconds=1" if asked.verb == "watch" else "?limit=1" if asked.verb == "list" else "?dryRun=All"
        )
    return f"{path}/{name}" + (f"/{subresource}" if subresource else "")


@pytest.mark.parametrize("process", sorted(CLUSTER_RULES))
def test_every_permission_works_and_there_is_no_other(installed: Installed, process: str) -> None:
    account = Account(installed.plane, process)
    for rules, namespace in ((CLUSTER_RULES, "default"), (OWN_RULES, SYSTEM)):
        for rule in rules.get(process, ()):
            name = rule.get("resourceNames", ["nobody"])[0]
            for asked in sorted(granted(process, {process: (rule,)})):
                if (asked.group, asked.resource, asked.verb) in UNSEEN:
                    continue
                kind = "application/merge-patch+json" if asked.verb == "patch" else "application/json"
                body = {} if asked.verb in ("create", "patch", "update") else None
                status, answer = account.ask(METHODS[asked.verb], path_of(installed.plane, asked, name, namespace), body, kind)
                assert status not in (401, 403), f"{asked}: {answer}"
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": SYSTEM}}
    status, answer = account.ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review)
    assert status == 201, answer
    has = granted(process, {process: tuple(answer["status"]["resourceRules"])})
    may = granted(process, CLUSTER_RULES) | granted(process, OWN_RULES)
    assert {one for one in has if one.resource not in EVERYBODYS} == may


@pytest.mark.parametrize("process", sorted(CLUSTER_RULES))
def test_what_nobody_may_is_refused(installed: Installed, process: str) -> None:
    account = Account(installed.plane, process)
    hostile = [
        ("GET", "/api/v1/namespaces/kube-system/secrets"),
        ("GET", "/api/v1/secrets?watch=1&timeoutSeconds=1"),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings?dryRun=All"),
        ("POST", f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/default/token"),
        ("DELETE", "/api/v1/namespaces/default"),
        ("DELETE", "/api/v1/nodes/nobody"),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/nobody"),
    ]
    for method, path in hostile:
        status, answer = account.ask(method, path, {} if method == "POST" else None)
        assert status == 403, f"{process} may {method} {path}: {answer}"


def test_granted_is_used_and_used_is_granted(installed: Installed, request: pytest.FixtureRequest) -> None:
    del installed
    may = {one for process in CLUSTER_RULES for one in granted(process, CLUSTER_RULES) | granted(process, OWN_RULES)}
    ran = {item.path.name for item in request.session.items}
    outside = {one: uri for one, uri in HEARD.forbidden.items() if one not in PROVOKED}
    assert not outside, f"asked for, and not granted: {outside}"
    unused = sorted(one for one in may - HEARD.allowed if not _implied(one))
    missing = {name for name in SUITE if (Path(__file__).parent / name).exists()} - ran
    if missing:
        pytest.skip(f"not all ran that use rights ({', '.join(sorted(missing))}); not used so far: {unused}")
    assert not unused, f"granted, and used by nobody: {unused}"


def _implied(one: Asked) -> bool:
    """A watch brings what a list would, on servers that can; what is applied is a patch, and makes what is not there."""
    other = {"list": "watch", "create": "patch"}.get(one.verb)
    seen = other is not None and one._replace(verb=other) in HEARD.allowed
    return seen or one in RARE or (one.group, one.resource, one.verb) in UNSEEN
