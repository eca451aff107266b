"""The chart renders the same objects: whatever a setting changes in them, a chart value changes too."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from fairway.engines.kubernetes.install.helm_chart import chart
from fairway.engines.kubernetes.install.manifest import digest, everything, settings
from fairway.engines.kubernetes.operator.installation import InstallationSettings

HERE = InstallationSettings(image="fairway:1")
OTHERS: dict[str, Any] = {
    "gpus": "fairway",
    "run_volume": {"persistentVolumeClaim": {"claimName": "runs"}},
    "record": {"emptyDir": {}},
    "resources": {name: {"requests": {"cpu": "7"}} for name in HERE.resources},
    "gpu_nodes": {"gpu": "yes"},
}
"""Alternative values for settings for which none can be generated."""


def shown(installation: InstallationSettings) -> str:
    """Return the objects as JSON, without the content of the operator's settings."""
    text = settings(installation)
    plain = json.dumps(everything(installation)).replace(digest(text), "DIGEST")
    return plain.replace(json.dumps(text), '"SETTINGS"')


def other(name: str) -> InstallationSettings:
    value = getattr(HERE, name)
    made = OTHERS.get(name) or (not value if isinstance(value, bool) else 7 if isinstance(value, int) else "something-else")
    return msgspec.structs.replace(HERE, **{name: made})


@pytest.fixture(scope="module")
def templates() -> dict[str, str]:
    return {place: text for place, text in chart(HERE).items() if place.startswith("templates/")}


@pytest.mark.parametrize(
    "name", [field.name for field in msgspec.structs.fields(InstallationSettings) if field.name != "namespace"]
)
def test_a_setting_that_objects_show_is_a_value_of_theirs(templates: dict[str, str], name: str) -> None:
    if isinstance(getattr(HERE, name), dict | str | bool | int) and shown(other(name)) != shown(HERE):
        assert f".Values.{name}" in "".join(templates.values())


def test_no_mark_is_left_and_braces_of_descriptions_stay_braces(templates: dict[str, str]) -> None:
    assert not [place for place, text in templates.items() if "@@" in text]
    assert '{{ "{{" }}' in templates["templates/kinds.yaml"] or "{{" not in templates["templates/kinds.yaml"]
