"""Init containers that bring everything into a task's pod, so that no image needs to be built. Pure."""

from __future__ import annotations

import posixpath
import re
from typing import Any

from fairway.engines.kubernetes import annotation
from fairway.engines.kubernetes.operator.installation import FrameworkRuntime, InstallationSettings
from fairway.engines.kubernetes.operator.manifest.input import PodInputs
from fairway.state.job import JobState

Manifest = dict[str, Any]

INJECTED = "/fairway/inject"
CODE = "/fairway/code"
BUNDLE = "/fairway/bundle"
RUN = "/fairway/run"
CACHE = "/fairway/cache"
ENVIRONMENT = "/fairway/environment"
CHECKPOINTS = f"{RUN}/checkpoints"
SECRETS = "fairway-secrets"
"""The Secret of a namespace whose keys documents name."""
BRINGER = "code"
"""The init container that fetches code, data and the newest checkpoint; it connects to the operator."""
ENVIRONMENT_STEP = "environment"
_INSTALLER = re.compile(r"(PIP|UV)_\w+")


def steps(
    job: JobState, installation: InstallationSettings, runtime: FrameworkRuntime, code: str, data: PodInputs
) -> list[Manifest]:
    """Return the init containers, in order."""
    containers = [_bringer(job, installation, code, data)]
    return [*containers, _environment(job, runtime)] if job.spec.environment.requirements else containers


def volumes(job: JobState, installation: InstallationSettings, code: str) -> list[Manifest]:
    """Return the volumes that the init containers and the task share."""
    result: list[Manifest] = [
        {"name": "inject", "emptyDir": {}},
        {"name": "code", "emptyDir": {}},
        {"name": "run", **installation.run_volume},
    ]
    if code and not code.startswith(annotation.BLOB):
        result.append({"name": "bundle", "configMap": {"name": code}})
    if job.spec.environment.requirements:
        result.append({"name": "cache", **(installation.cache_volume or {"emptyDir": {}})})
        result.append({"name": "environment", "emptyDir": {}})
    return result


def mounts(job: JobState) -> list[Manifest]:
    """Return the mounts of the task's container."""
    result: list[Manifest] = [
        {"name": "inject", "mountPath": INJECTED, "readOnly": True},
        {"name": "code", "mountPath": CODE},
        run_mount(job),
    ]
    return result + (environment_mounts(job, writing=False) if job.spec.environment.requirements else [])


def run_mount(job: JobState) -> Manifest:
    """Return the mount of the run's own folder on the volume of all runs."""
    return {"name": "run", "mountPath": RUN, "subPath": f"{job.key.namespace}/{job.key.name}"}


def environment_mounts(job: JobState, *, writing: bool) -> list[Manifest]:
    """Return the mounts of environments, separate for each namespace: what builds an environment decides what code runs in it."""
    mode = {} if writing else {"readOnly": True}
    return [
        {"name": "cache", "mountPath": CACHE, "subPath": job.key.namespace, **mode},
        {"name": "environment", "mountPath": ENVIRONMENT, **mode},
    ]


def _bringer(job: JobState, installation: InstallationSettings, code: str, data: PodInputs) -> Manifest:
    command = ["python3", "-m", "fairway.engines.kubernetes.operator.unpack", "--inject", INJECTED, "--code", CODE]
    used: list[Manifest] = [{"name": "inject", "mountPath": INJECTED}, {"name": "code", "mountPath": CODE}]
    if code.startswith(annotation.BLOB):
        command += ["--digest", code.removeprefix(annotation.BLOB)]
    elif code:
        command += ["--bundle", f"{BUNDLE}/code.tar.gz"]
        used.append({"name": "bundle", "mountPath": BUNDLE, "readOnly": True})
    elif job.spec.code.git is not None:
        command += [f"--git={job.spec.code.git.url}", f"--ref={job.spec.code.git.ref}"]
    for path, folder in data.fetched:
        command.append(f"--fetch={path}={folder}")
    used += data.filled
    if not installation.shares_runs:
        command += ["--checkpoints", CHECKPOINTS]
        used.append(run_mount(job))
    return {
        "name": BRINGER,
        "image": installation.image,
        "command": command,
        "volumeMounts": used,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _environment(job: JobState, runtime: FrameworkRuntime) -> Manifest:
    """Return the init container that builds the environment.

    It uses the task's own image, since that decides which packages fit.
    """
    requirements = posixpath.join(CODE, job.spec.environment.requirements)
    command = [runtime.python, "-m", "fairway.runtime.pod.environment", f"--requirements={requirements}", "--cache", CACHE]
    variables = {**runtime.env, **job.spec.env, "PYTHONPATH": INJECTED, "PYTHONDONTWRITEBYTECODE": "1"}
    env: list[Manifest] = [{"name": name, "value": value} for name, value in variables.items()]
    # A private package index is configured by variables; its password is a secret.
    names = [name for name in job.spec.secrets if _INSTALLER.fullmatch(name)]
    env += [{"name": name, "valueFrom": {"secretKeyRef": {"name": SECRETS, "key": name}}} for name in names]
    return {
        "name": ENVIRONMENT_STEP,
        "image": runtime.image,
        "command": [*command, "--link", ENVIRONMENT, f"--salt={job.origin.code_digest}"],
        "env": env,
        "volumeMounts": [
            {"name": "inject", "mountPath": INJECTED, "readOnly": True},
            {"name": "code", "mountPath": CODE},
            *environment_mounts(job, writing=True),
            *runtime.mounts,
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
