"""Certificates from files and inline, tokens in a pod's files, and the API server's own refusal."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
import yaml
from cluster.control_plane import ControlPlane

from fairway.app.system.clock import SystemClock
from fairway.engines.kubernetes.client import api, api_resource, errors
from fairway.engines.kubernetes.client import kubeconfig as client_kubeconfig
from fairway.engines.kubernetes.client.api import ApiClient


def embedded(kubeconfig: Path) -> dict:
    """Return the kubeconfig with all data inline."""
    content = yaml.safe_load(kubeconfig.read_text())
    for section, keys in (("clusters", ("certificate-authority",)), ("users", ("client-certificate", "client-key"))):
        inner = content[section][0][section.removesuffix("s")]
        for key in keys:
            data = Path(inner.pop(key)).read_bytes()
            inner[f"{key}-data"] = base64.b64encode(data).decode()
    return content


async def version(path: Path) -> str:
    async with api.connect(client_kubeconfig.read_kubeconfig(path).target(), SystemClock()) as client:
        return (await client.plain("/version"))["gitVersion"]


async def test_certificates_by_file_and_as_data(control_plane: ControlPlane, tmp_path: Path) -> None:
    given = control_plane.kubeconfig()
    assert "client-certificate-data" not in given.read_text()
    assert await version(given) == "v1.36.4"
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(embedded(given)))
    assert await version(path) == "v1.36.4"


async def test_another_authority_is_not_trusted_unless_told(control_plane: ControlPlane, tmp_path: Path) -> None:
    content = embedded(control_plane.kubeconfig())
    own = content["clusters"][0]["cluster"]
    own.pop("certificate-authority-data")
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(errors.Unavailable, match="its certificate is not accepted") as caught:
        await version(path)
    assert not caught.value.unknown
    own["insecure-skip-tls-verify"] = True
    path.write_text(yaml.safe_dump(content))
    assert await version(path) == "v1.36.4"


async def test_a_pods_own_token(control_plane: ControlPlane, client: ApiClient, namespace: str, tmp_path: Path) -> None:
    account = "/api/v1/namespaces/{}/serviceaccounts/{}"
    status, _ = control_plane.request("POST", account.format(namespace, "").rstrip("/"), {"metadata": {"name": "worker"}})
    assert status == 201
    status, made = control_plane.request("POST", account.format(namespace, "worker/token"), {"spec": {}})
    assert status == 201
    (tmp_path / "token").write_text(made["status"]["token"])
    (tmp_path / "ca.crt").write_bytes(control_plane.authority.pair.certificate.read_bytes())
    (tmp_path / "namespace").write_text(namespace)
    environ = {"KUBERNETES_SERVICE_HOST": control_plane.address, "KUBERNETES_SERVICE_PORT": str(control_plane.port)}
    target = client_kubeconfig.in_cluster(environ, tmp_path)
    async with api.connect(target, SystemClock()) as inside:
        with pytest.raises(errors.Forbidden) as caught:
            await inside.list(api_resource.PODS, target.namespace)
    assert f'User "system:serviceaccount:{namespace}:worker" cannot list resource "pods"' in caught.value.message
    assert caught.value.exit_code == 5


async def test_a_token_that_nobody_knows(control_plane: ControlPlane, tmp_path: Path) -> None:
    content = embedded(control_plane.kubeconfig())
    content["users"][0]["user"] = {"token": "invented"}
    path = tmp_path / "config"
    path.write_text(json.dumps(content))
    with pytest.raises(errors.Unauthorized, match="Unauthorized"):
        await version(path)


async def test_a_plugin_that_gives_a_certificate(control_plane: ControlPlane, tmp_path: Path) -> None:
    content = embedded(control_plane.kubeconfig())
    user = content["users"][0]["user"]
    plain = {key: base64.b64decode(user[f"client-{key}-data"]).decode() for key in ("certificate", "key")}
    status = {"clientCertificateData": plain["certificate"], "clientKeyData": plain["key"]}
    said = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    (tmp_path / "said.json").write_text(json.dumps(said))
    plugin = {"apiVersion": said["apiVersion"], "command": "cat", "args": [str(tmp_path / "said.json")]}
    content["users"][0]["user"] = {"exec": plugin}
    path = tmp_path / "config"
    path.write_text(json.dumps(content))
    assert await version(path) == "v1.36.4"
