"""Whether a replica would find its model: asked before a service is made, with the code by which a replica finds it.

In a process of its own, because the daemon should load neither numpy nor the files of a model.
`python -m fairway.serving.admission FOLDER FORMAT RUNTIME` prints the error as JSON, and nothing when all is well.
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
"""Seconds; a check that takes longer says nothing, and the replica will."""


class ModelAdmission:
    """Refuses a service whose replicas could not find their model. `folder`: lays out the files of a version."""

    def __init__(self, folder: Callable[[ModelVersion], Path]) -> None:
        self._folder = folder

    async def check(self, version: ModelVersion, spec: ServiceSpec) -> None:
        """Raise what the replica would end with: a file that is missing or damaged, a format that nothing runs, no consent."""
        folder = await asyncio.to_thread(self._folder, version)
        command = [sys.executable, "-I", "-m", "fairway.serving.admission", str(folder), version.format, str(spec.runtime)]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(_PATIENCE):
                told, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            log.warning("%s: whether it can be served was not known after %.0f s", version, _PATIENCE)
            return
        if told:
            error = json.loads(told)
            message = f"{version} cannot be served: {error['message'].replace(str(folder), 'its folder')}"
            raise RefusedError(message, fix=error["fix"])


def main(arguments: list[str]) -> int:
    """Look once."""
    from fairway.serving.replica.folder import find  # noqa: PLC0415  # the daemon imports this module, and not numpy

    folder, format_, runtime = arguments
    try:
        # Consent was given when the version was registered, as it is for the replica.
        find(Path(folder), format_, runtime, allow_pickle=True)
    except FairwayError as error:
        sys.stdout.write(json.dumps({"message": error.message, "fix": error.fix}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
