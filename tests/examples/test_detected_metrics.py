"""Metrics of real frameworks, detected in their output and files, without any change to the program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gang import call

SUITE = Path(__file__).with_name("suite")
LIGHTNING = """
import lightning, torch
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import CSVLogger

class Model(BoringModel):
    def training_step(self, batch, index):
        found = super().training_step(batch, index)
        self.log("train_loss", found["loss"])
        return found

trainer = lightning.Trainer(accelerator="cpu", max_steps=8, logger=CSVLogger("."), log_every_n_steps=2,
    enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, limit_val_batches=0)
trainer.fit(Model())
"""


def points(home: Path, run: str) -> list[dict[str, object]]:
    code, output = call(home, "metrics", run, "-o", "json")
    assert code == 0, output
    found: list[dict[str, object]] = json.loads(output[output.index("{") :])["points"]
    return found


@pytest.mark.framework("tensorflow")
@pytest.mark.timeout(300)
def test_keras_prints_its_metrics(home: Path, python: str) -> None:
    home.mkdir()
    code, output = call(home, "run", "--name", "keras", "--", python, str(SUITE / "keras_fit.py"), timeout=240)
    assert code == 0, output
    found = points(home, "keras-1")
    assert {point["source"] for point in found} == {"auto"}
    last = found[-1]
    assert last["step"] == 3 * 6, "three epochs of six batches"
    assert {"loss", "mae", "val_loss", "val_mae"} <= set(last["metrics"])  # type: ignore[call-overload]


@pytest.mark.framework("torch")
@pytest.mark.timeout(300)
def test_lightning_writes_a_table(home: Path, python: str, tmp_path: Path) -> None:
    home.mkdir()
    work = tmp_path / "work"
    work.mkdir()
    (work / "fit.py").write_text(LIGHTNING)
    document = {"kind": "TrainingJob", "name": "fit", "code": str(work), "command": f"{python} fit.py"}
    (tmp_path / "job.yaml").write_text(json.dumps(document))
    code, output = call(home, "run", str(tmp_path / "job.yaml"), timeout=240)
    assert code == 0, output
    found = points(home, "fit-1")
    assert [point["step"] for point in found] == [1, 3, 5, 7]
    assert all(set(point["metrics"]) == {"train_loss"} for point in found)  # type: ignore[call-overload]
