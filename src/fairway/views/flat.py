"""The document of a run in the flat spelling, fit to be shown."""

from __future__ import annotations

import re
from typing import Any

from fairway.state.job import Job

MASK = "********"

_SECRET = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|(API|ACCESS|PRIVATE|SECRET|AUTH)_?KEY|APIKEY)(_|$)", re.I)


def flat_spec(job: Job) -> dict[str, Any]:
    """What was asked, without what is the default, and without values that look secret."""
    fields = job.spec.model_dump(mode="json", exclude_defaults=True)
    for place in (fields, *fields.get("roles", {}).values()):
        if "env" in place:
            place["env"] = {name: MASK if looks_secret(name) else value for name, value in place["env"].items()}
    return {"kind": "TrainingJob", "name": job.series, **fields}


def looks_secret(variable: str) -> bool:
    """Whether a variable's name says that its value is nobody's business: `HF_TOKEN`, `AWS_SECRET_ACCESS_KEY`."""
    return _SECRET.search(variable) is not None
