"""The scrape configuration and the dashboard of `examples/24-observability`. Other tests check the metrics on a real service."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "24-observability"


def test_the_files_are_what_prometheus_and_grafana_read() -> None:
    (job,) = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    assert job["metrics_path"] == "/metrics"
    board = json.loads((FOLDER / "grafana.json").read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 8
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    documented = (ROOT / "docs" / "observability.md").read_text()
    for target in (target for panel in panels for target in panel["targets"]):
        for name in re.findall(r"\b(?:fairway|nv|request|revision)_[a-z_]+", target["expr"]):
            assert f"`{name.removesuffix('_bucket')}`" in documented
