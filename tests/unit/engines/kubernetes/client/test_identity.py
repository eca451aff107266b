import base64
import json
import ssl

import pytest

from fairway.engines.kubernetes.client.cluster_target import ClusterTarget, ClusterUser, ExecPlugin, KeyMaterial
from fairway.engines.kubernetes.client.identity import REREAD, ClientCredentials, read_credential, tls_context
from fairway.errors import DeniedError, NotFoundError, UsageError

V1 = "client.authentication.k8s.io/v1"


class Clock:
    """A clock that does not advance."""

    def __init__(self):
        self.time = 1_000_000_000.0

    def now(self):
        return self.time


def target(user, **more):
    return ClusterTarget("http://cluster", user, context="prod", **more)


async def test_a_token_file_is_read_again_after_a_minute(tmp_path):
    file, clock = tmp_path / "token", Clock()
    file.write_text("one\n")
    identity = ClientCredentials(target(ClusterUser(token_file=file)), clock)
    assert identity.stale
    await identity.refresh()
    assert identity.headers == {"Authorization": "Bearer one"}
    file.write_text("two")
    clock.time += REREAD - 1
    assert not identity.stale
    await identity.refresh()
    assert identity.headers == {"Authorization": "Bearer one"}
    clock.time += 1
    assert identity.stale
    await identity.refresh()
    assert identity.headers == {"Authorization": "Bearer two"}


async def test_a_token_file_that_is_gone(tmp_path):
    with pytest.raises(NotFoundError, match="gone cannot be read"):
        await ClientCredentials(target(ClusterUser(token_file=tmp_path / "gone")), Clock()).refresh()


async def test_a_fixed_token_never_gets_stale():
    clock = Clock()
    identity = ClientCredentials(target(ClusterUser(token="t", impersonate="ann", impersonate_groups=("nlp",))), clock)
    await identity.refresh()
    clock.time += 1e9
    assert not identity.stale
    assert identity.headers == {"Authorization": "Bearer t", "Impersonate-User": "ann", "Impersonate-Group": "nlp"}


async def test_a_name_and_a_password():
    identity = ClientCredentials(target(ClusterUser(username="ann", password="secret")), Clock())
    await identity.refresh()
    assert identity.headers["Authorization"] == "Basic " + base64.b64encode(b"ann:secret").decode()


def plugin_file(folder, text):
    path = folder / "login"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return ExecPlugin("./login", ("argument",), (("WHO", "ann"),), V1, hint="install it", cluster_info=True, folder=folder)


async def test_a_plugin_is_asked_again_before_its_credentials_end(tmp_path):
    calls = tmp_path / "calls"
    plugin = plugin_file(
        tmp_path,
        f'echo "$KUBERNETES_EXEC_INFO" >> {calls}\n'
        f"""printf '{{"apiVersion":"{V1}","kind":"ExecCredential","status":{{"token":"%s-%s",'\n"""
        f"""printf '"expirationTimestamp":"2001-09-09T02:00:00Z"}}}}\\n'""",
    )
    text = plugin.folder / "login"
    text.write_text(text.read_text().replace("%s-%s", "'$WHO-$1'"))
    clock = Clock()
    identity = ClientCredentials(target(ClusterUser(plugin=plugin), authority=KeyMaterial(data=b"CA")), clock)
    await identity.refresh()
    await identity.refresh()
    assert identity.headers == {"Authorization": "Bearer ann-argument"}
    (told,) = map(json.loads, calls.read_text().splitlines())
    assert told["spec"]["cluster"]["server"] == "http://cluster"
    assert base64.b64decode(told["spec"]["cluster"]["certificate-authority-data"]) == b"CA"
    clock.time = 1_000_000_800.0 - 31
    assert not identity.stale
    clock.time += 1
    assert identity.stale
    await identity.refresh()
    await identity.refresh(refused=True)
    assert len(calls.read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("exit 3", "ended with 3"),
        ("echo hello", "printed no ExecCredential"),
        ('echo \'{"status":{"token":"x"}}\'', "no ExecCredential"),
    ],
)
async def test_a_plugin_that_does_not_work(tmp_path, text, words):
    identity = ClientCredentials(target(ClusterUser(plugin=plugin_file(tmp_path, text))), Clock())
    with pytest.raises(DeniedError) as caught:
        await identity.refresh()
    assert words in caught.value.message
    assert "'prod'" in caught.value.message


async def test_a_plugin_that_is_not_there(tmp_path):
    plugin = ExecPlugin("no-such-login-program", hint="brew install login")
    with pytest.raises(NotFoundError) as caught:
        await ClientCredentials(target(ClusterUser(plugin=plugin)), Clock()).refresh()
    assert caught.value.fix == "brew install login"


async def test_a_plugin_that_wants_a_terminal():
    with pytest.raises(DeniedError, match="needs a terminal"):
        await ClientCredentials(target(ClusterUser(plugin=ExecPlugin("login", interactive="Always"))), Clock()).refresh()


def test_a_credential_with_a_certificate():
    said = {"apiVersion": V1, "status": {"clientCertificateData": "PEM", "clientKeyData": "KEY"}}
    assert read_credential(json.dumps(said).encode(), ExecPlugin("x"), "prod")["clientCertificateData"] == "PEM"


def test_what_is_no_certificate():
    with pytest.raises(UsageError, match="not a PEM certificate"):
        tls_context(b"hello")
    with pytest.raises(UsageError, match="do not work together"):
        tls_context(b"", b"hello", b"there")


def test_unchecked_certificates_only_when_asked_for():
    assert tls_context(b"").verify_mode is ssl.CERT_REQUIRED
    assert tls_context(b"", insecure=True).verify_mode is ssl.CERT_NONE


async def test_who_is_not_known_any_more_gets_new_credentials_where_there_are_some(tmp_path):
    file = tmp_path / "token"
    file.write_text("one")
    identity = ClientCredentials(target(ClusterUser(token_file=file)), Clock())
    await identity.refresh()
    file.write_text("two")
    assert await identity.renewed()
    assert identity.headers == {"Authorization": "Bearer two"}
    assert not await ClientCredentials(target(ClusterUser(token="t")), Clock()).renewed()
