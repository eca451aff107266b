"""Permissions: every granted permission is used, no other is requested, and no account has more than is documented.

The audit logs of all control planes show what was used, so this file runs last.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from cluster.audit import HEARD, SYSTEM, Asked, shared
from cluster.control_plane import ControlPlane
from cluster.installed import Installed
from cluster.process import wait_for

from fairway.engines.kubernetes.install.api_service import caller_roles
from fairway.engines.kubernetes.install.rbac_rule import CLUSTER_RULES, OWN_RULES

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
    "test_faults.py",
    "test_faults_crashes.py",
}
"""Test files that use the permissions; only if all of them ran can one be called unused."""
UNSEEN = {
    ("fairway.dev", "trainingjobs/finalizers", "update"): "asked by an admission plug-in, of whoever makes children of them",
    ("", "pods/exec", "create"): "asked by the API server itself when a container is entered",
}
"""Permissions that correspond to no request of their own."""
RARE = {
    ("operator", "", "pods", "get"): "a pod was made, and the answer was lost",
    ("scheduler", "", "pods", "get"): "a pod was bound, and the answer was lost",
    ("operator", "events.k8s.io", "events", "list"): "a pod that has its node does not begin",
    ("operator", "", "pods/exec", "get"): "a run has reached what it should, and is told to end",
    ("operator", "fairway.dev", "jobqueues", "delete"): "somebody deletes a queue by its name",
}
"""Permissions that are used in rare events only: a suite without real nodes may not see them."""
PROVOKED = {("agent", "fairway.dev", "gpunodes", "delete"), ("agent", "", "pods", "list")}
"""Requests that tests make on purpose, to be refused."""
EVERYBODYS = {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews", "clustertrustbundles"}
"""Permissions that every account has for itself."""


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    HEARD.add(control_plane.folder)  # Requests of these tests themselves do not count.
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
    """An account, as the API server knows it."""

    def __init__(self, plane: ControlPlane, user: str, groups: tuple[str, ...] = ()) -> None:
        self.server = plane.server
        config = json.loads(Path(plane.kubeconfig(user, groups)).read_text())
        keys = config["users"][0]["user"]
        self.context = ssl.create_default_context(cafile=config["clusters"][0]["cluster"]["certificate-authority"])
        self.context.load_cert_chain(keys["client-certificate"], keys["client-key"])

    @classmethod
    def of(cls, plane: ControlPlane, process: str) -> Account:
        """Return the account of one of our processes."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}", "system:authenticated")
        return cls(plane, f"system:serviceaccount:{SYSTEM}:fairway-{process}", groups)

    def use(self, plane: ControlPlane, asked: Asked, name: str, namespace: str) -> tuple[int, Any]:
        """Use a permission, without changing anything."""
        kind = "application/merge-patch+json" if asked.verb == "patch" else "application/json"
        body = {} if asked.verb in ("create", "patch", "update") else None
        return self.ask(METHODS[asked.verb], path_of(plane, asked, name, namespace), body, kind)

    def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data, {"Content-Type": kind}, method=method)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30) as answer:
                # An accepted watch is allowed; its events do not matter.
                return answer.status, None if "watch=1" in path else json.loads(answer.read(1 << 20))
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode(errors="replace")


METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
METHODS |= {"deletecollection": "DELETE"}

_known: dict[tuple[str, str], tuple[str, set[str]]] = {}


def places(plane: ControlPlane, group: str) -> tuple[str, set[str]]:
    """Return the path of a group, and its cluster-scoped kinds. Permissions are checked for kinds that do not exist, too."""
    if (plane.server, group) not in _known:
        served = {each["name"]: each["preferredVersion"]["groupVersion"] for each in plane.get("/apis")[1]["groups"]}
        root = f"/apis/{served.get(group, f'{group}/v1')}" if group else "/api/v1"
        kinds = plane.get(root)[1]["resources"] if group in served or not group else []
        _known[plane.server, group] = (root, {each["name"] for each in kinds if not each["namespaced"]})
    return _known[plane.server, group]


def path_of(plane: ControlPlane, asked: Asked, name: str, namespace: str) -> str:
    """Return the path at which a permission is used: of an object that does not exist, so that nothing is changed."""
    root, alone = places(plane, asked.group)
    plural, _, subresource = asked.resource.partition("/")
    path = f"{root}/{plural}" if plural in alone else f"{root}/namespaces/{namespace}/{plural}"
    if asked.verb in ("list", "watch", "deletecollection") or (asked.verb == "create" and not subresource):
        return path + (
            "?watch=1&timeoutSeconds=1" if asked.verb == "watch" else "?limit=1" if asked.verb == "list" else "?dryRun=All"
        )
    return f"{path}/{name}" + (f"/{subresource}" if subresource else "")


@pytest.mark.parametrize("process", sorted(CLUSTER_RULES))
def test_every_permission_works_and_there_is_no_other(installed: Installed, process: str) -> None:
    account = Account.of(installed.plane, process)
    for rules, namespace in ((CLUSTER_RULES, "default"), (OWN_RULES, SYSTEM)):
        for rule in rules.get(process, ()):
            name = rule.get("resourceNames", ["nobody"])[0]
            for asked in sorted(granted(process, {process: (rule,)})):
                if (asked.group, asked.resource, asked.verb) in UNSEEN:
                    continue
                status, answer = account.use(installed.plane, asked, name, namespace)
                assert status not in (401, 403), f"{asked}: {answer}"
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": SYSTEM}}
    status, answer = account.ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review)
    assert status == 201, answer
    has = granted(process, {process: tuple(answer["status"]["resourceRules"])})
    may = granted(process, CLUSTER_RULES) | granted(process, OWN_RULES)
    assert {one for one in has if one.resource not in EVERYBODYS} == may


@pytest.mark.parametrize("process", sorted(CLUSTER_RULES))
def test_what_nobody_may_is_refused(installed: Installed, process: str) -> None:
    account = Account.of(installed.plane, process)
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


PEOPLE = ("view", "edit", "admin")
"""The roles that every cluster has, from the least to the most privileged; ours are aggregated into them."""


@pytest.mark.parametrize("role", PEOPLE)
def test_people_may_what_their_role_says_where_they_have_it_and_nowhere_else(
    installed: Installed, namespace: str, role: str
) -> None:
    plane, who = installed.plane, f"somebody-who-may-{role}"
    head = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": who, "namespace": namespace},
    }
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": who}
    given = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/{who}"
    plane.apply({**head, "roleRef": given, "subjects": [subject]}, path)
    person = Account(plane, who)
    ours = {one["metadata"]["name"].removeprefix("fairway-"): tuple(one["rules"]) for one in caller_roles({})}
    may = {one for below in PEOPLE[: PEOPLE.index(role) + 1] for one in granted(below, ours)}
    there = {one for one in may if one.resource.partition("/")[0] not in places(plane, one.group)[1]}
    jobs = f"/apis/fairway.dev/v1alpha1/namespaces/{namespace}/trainingjobs"
    wait_for("the roles are added up", lambda: person.ask("GET", jobs)[0] == 200, 60.0)
    for asked in sorted(there):
        status, answer = person.use(plane, asked, "nobody", namespace)
        assert status not in (401, 403), f"{asked}: {answer}"
        assert person.use(plane, asked, "nobody", "default")[0] == 403, f"{asked} in another namespace"
    if role == "view":
        assert person.ask("POST", f"{jobs}?dryRun=All", {})[0] == 403


def test_granted_is_used_and_used_is_granted(installed: Installed, request: pytest.FixtureRequest) -> None:
    del installed
    may = {one for process in CLUSTER_RULES for one in granted(process, CLUSTER_RULES) | granted(process, OWN_RULES)}
    folder = shared()
    ran = {item.path.name for item in request.session.items} | (HEARD.recall(folder) if folder else set())
    outside = {one: uri for one, uri in HEARD.forbidden.items() if one not in PROVOKED}
    assert not outside, f"asked for, and not granted: {outside}"
    unused = sorted(one for one in may - HEARD.allowed if not _implied(one))
    missing = {name for name in SUITE if (Path(__file__).parent / name).exists()} - ran
    if missing:
        pytest.skip(f"not all ran that use rights ({', '.join(sorted(missing))}); not used so far: {unused}")
    assert not unused, f"granted, and used by nobody: {unused}"


def _implied(one: Asked) -> bool:
    """A watch replaces a list, on servers that support it; an apply is a patch, and creates a missing object."""
    other = {"list": "watch", "create": "patch"}.get(one.verb)
    seen = other is not None and one._replace(verb=other) in HEARD.allowed
    return seen or one in RARE or (one.group, one.resource, one.verb) in UNSEEN
