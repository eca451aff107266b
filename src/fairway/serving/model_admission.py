"""Checks before a service is created whether a replica can load its model, with the same code that the replica uses.

The check runs in a process of its own, because the daemon should load neither numpy nor the files of a model. `python -m
fairway.serving.model_admission FOLDER FORMAT RUNTIME` prints the error as JSON, or nothing when the model can be served.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from fairway.errors import FairwayError, RefusedError
from fairway.spec.service import ServiceSpec
from fairway.state.model import ModelVersion

log = logging.getLogger("fairway.services")

_PATIENCE = 20.0
"""Timeout of the check, in seconds. After it the service is admitted, and the replica reports any error itself."""


class ModelAdmission:
    """Refuses a service whose replicas could not load their model. `folder` lays out the files of a version."""

    def __init__(self, folder: Callable[[ModelVersion], Path]) -> None:
        self._folder = folder

    async def check(self, version: ModelVersion, spec: ServiceSpec) -> None:
        """Raise the error with which the replica would end.

        That is: a file is missing or damaged, no runtime supports the format, or loading it needs a consent that was not given.
        """
        folder = await asyncio.to_thread(self._folder, version)
        command = [sys.executable, "-I", "-m", "fairway.serving.model_admission", str(folder), version.format, str(spec.runtime)]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(_PATIENCE):
                output, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            log.warning("%s: the check whether it can be served did not finish within %.0f s", version, _PATIENCE)
            return
        if output:
            error = json.loads(output)
            message = f"{version} cannot be served: {error['message'].replace(str(folder), 'its folder')}"
            raise RefusedError(message, fix=error["fix"])


def main(arguments: list[str]) -> int:
    """Run the check and print its error, if any, as JSON."""
    from fairway.serving.replica.model.version_folder import find  # noqa: PLC0415  # the daemon imports this module and must not load numpy

    folder, format_, runtime = arguments
    try:
        # The consent to unpickle was given when the version was registered; the replica assumes the same.
        find(Path(folder), format_, runtime, allow_pickle=True)
    except FairwayError as error:
        sys.stdout.write(json.dumps({"message": error.message, "fix": error.fix}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
