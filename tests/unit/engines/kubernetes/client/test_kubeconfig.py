import base64
import os
from pathlib import Path

import pytest
import yaml

from fairway.engines.kubernetes.client.cluster_target import KeyMaterial
from fairway.engines.kubernetes.client.kubeconfig import find, in_cluster, read_kubeconfig
from fairway.errors import NotFoundError, UsageError

CLUSTER = {"server": "https://10.0.0.1:6443/", "certificate-authority-data": base64.b64encode(b"CA").decode()}


def write(path: Path, user=None, cluster=None, **more) -> Path:
    content = {
        "current-context": "prod",
        "contexts": [
            {"name": "prod", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "staging", "context": {"cluster": "c"}},
        ],
        "clusters": [{"name": "c", "cluster": cluster or CLUSTER}],
        "users": [{"name": "u", "user": user or {"token": "abc"}}],
        **more,
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_the_current_context(tmp_path):
    target = read_kubeconfig(write(tmp_path / "config")).target()
    assert (target.server, target.namespace, target.context) == ("https://10.0.0.1:6443", "team", "prod")
    assert target.authority == KeyMaterial(data=b"CA")
    assert target.user.token == "abc"
    assert "abc" not in repr(target)


def test_another_context_without_a_user(tmp_path):
    target = read_kubeconfig(write(tmp_path / "config")).target("staging")
    assert (target.namespace, target.user.token) == ("default", "")


def test_files_lie_beside_the_kubeconfig(tmp_path):
    for name in ("c.crt", "c.key"):
        (tmp_path / name).write_text(name)
    user = {"client-certificate": "c.crt", "client-key": str(tmp_path / "c.key"), "tokenFile": "token"}
    found = read_kubeconfig(write(tmp_path / "config", user)).target().user
    assert found.certificate.read() == b"c.crt"
    assert found.key.file == tmp_path / "c.key"
    assert found.token_file == tmp_path / "token"


def test_of_several_files_the_first_counts(tmp_path):
    first = write(tmp_path / "a", {"token": "first"})
    second = write(tmp_path / "b", {"token": "second"}, **{"current-context": "other"})
    extra = tmp_path / "c"
    extra.write_text("contexts:\n- name: more\n  context: {cluster: c, user: u}\n")
    config = read_kubeconfig(first, second, extra)
    assert config.current == "prod"
    assert config.target().user.token == "first"
    assert config.target("more").user.token == "first"


def test_an_exec_plugin(tmp_path):
    given = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./login",
        "args": ["--now"],
        "env": [{"name": "A", "value": "b"}],
        "installHint": "brew install login\n",
        "provideClusterInfo": True,
        "interactiveMode": "Never",
    }
    plugin = read_kubeconfig(write(tmp_path / "config", {"exec": given})).target().user.plugin
    assert plugin is not None
    assert (plugin.command, plugin.arguments, plugin.env) == ("./login", ("--now",), (("A", "b"),))
    assert (plugin.hint, plugin.cluster_info, plugin.folder) == ("brew install login", True, tmp_path)


@pytest.mark.parametrize(
    ("user", "cluster", "words"),
    [
        ({"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}, None, "without a command"),
        ({"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, None, "v1alpha1"),
        ({"auth-provider": {"name": "gcp"}}, None, "auth-provider 'gcp'"),
        ({"client-certificate-data": base64.b64encode(b"x").decode()}, None, "no client-key"),
        ({"client-key-data": "§"}, None, "not base64"),
        ({"client-key": "gone.key"}, None, "gone.key, which does not exist"),
        (None, {"server": "10.0.0.1"}, "'10.0.0.1', which is not a URL"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path, user, cluster, words):
    path = write(tmp_path / "config", user, cluster)
    with pytest.raises((UsageError, NotFoundError)) as caught:
        read_kubeconfig(path).target()
    assert str(path) in caught.value.message
    assert words in caught.value.message
    assert caught.value.fix


def test_a_context_that_is_not_there(tmp_path):
    path = write(tmp_path / "config")
    with pytest.raises(NotFoundError) as caught:
        read_kubeconfig(path).target("prd")
    assert f"{path} has no context 'prd'" in caught.value.message
    assert "it has prod, staging" in caught.value.message
    assert caught.value.fix == "did you mean 'prod'?"


def test_no_current_context(tmp_path):
    with pytest.raises(UsageError, match=r"no current-context; it has prod, staging"):
        read_kubeconfig(write(tmp_path / "config", **{"current-context": ""})).target()


def test_a_cluster_that_is_not_there(tmp_path):
    path = write(tmp_path / "config", clusters=[])
    with pytest.raises(NotFoundError, match=r"no cluster 'c' \(of context 'prod'\); it has none"):
        read_kubeconfig(path).target()


@pytest.mark.parametrize("text", ["{", "- a", "contexts: [{context: {}}]"])
def test_no_kubeconfig_at_all(tmp_path, text):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_kubeconfig(path)
    assert str(path) in caught.value.message


def test_finding_goes_by_the_variable_then_home_then_the_pod(tmp_path):
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config", {"token": "home"})
    named = write(tmp_path / "named", {"token": "named"})
    missing = tmp_path / "missing"
    both = {"KUBECONFIG": f"{missing}{os.pathsep}{named}"}
    assert find(both, home=tmp_path).user.token == "named"
    assert find({}, home=tmp_path).user.token == "home"
    assert find({}, home=tmp_path, context="staging").context == "staging"
    with pytest.raises(NotFoundError, match=str(missing)):
        find({"KUBECONFIG": str(missing), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, home=tmp_path)
    with pytest.raises(NotFoundError, match="does not exist"):
        find({}, home=missing)


def test_in_a_pod(tmp_path):
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    with pytest.raises(NotFoundError, match="no service account token"):
        in_cluster(environ, tmp_path)
    for name in ("token", "ca.crt", "namespace"):
        (tmp_path / name).write_text(f"{name}\n")
    target = in_cluster(environ, tmp_path)
    assert target.server == "https://[fd00::1]:6443"
    assert (target.user.token_file, target.namespace) == (tmp_path / "token", "namespace")
    with pytest.raises(NotFoundError, match="does not run in a pod"):
        in_cluster({}, tmp_path)
