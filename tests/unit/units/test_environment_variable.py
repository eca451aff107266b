"""Which of a caller's environment variables reach a run."""

from __future__ import annotations

import pytest

from fairway.units.environment_variable import machine_variables, visible_devices


def test_the_machines_variables_go_along_and_the_persons_do_not():
    machines = {"PATH": "/bin", "LD_LIBRARY_PATH": "/lib", "HF_HOME": "/hf", "https_proxy": "a", "HTTP_PROXY": "b", "LC_ALL": "C"}
    persons = {"HF_TOKEN": "s", "AWS_SECRET_ACCESS_KEY": "s", "EDITOR": "vi", "CUDA_VISIBLE_DEVICES": "1", "PYTHONPATH": "x"}
    assert machine_variables(machines | persons) == machines


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        (None, None),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1", ["1"]),
        ("0, GPU-ab", ["0", "GPU-ab"]),
        ("0,-1,1", ["0"]),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(text, devices):
    assert visible_devices(text) == devices
