"""The probe on a real driver."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fairway.devices.nvidia_probe import NvidiaProbe

pytestmark = pytest.mark.gpu

COMPUTE = "import ctypes, sys; c = ctypes.CDLL('libcuda.so.1'); p = ctypes.c_void_p()\n" + (
    "assert c.cuInit(0) == 0 and c.cuCtxCreate_v2(ctypes.byref(p), 0, 0) == 0; print('on', flush=True); sys.stdin.read()"
)
"""Uses the first device, with nothing but the driver."""


@pytest.fixture
def probe() -> NvidiaProbe:
    found = NvidiaProbe.open()
    if found is None:
        pytest.skip("no NVIDIA driver on this machine")
    return found


def test_every_device_has_an_identity_and_memory(probe: NvidiaProbe) -> None:
    found = probe.devices(lambda _: False)
    assert found
    assert all(device.uuid.startswith("GPU-") and device.type and device.memory > 10**9 for device in found)
    assert probe.devices(lambda _: True) == tuple(found)


def test_a_process_that_computes_makes_its_device_busy_unless_it_is_ours(probe: NvidiaProbe) -> None:
    with subprocess.Popen([sys.executable, "-c", COMPUTE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        busy = [device.busy_with for device in probe.devices(lambda _: False) if device.busy_with]
        assert any(text.startswith(f"pid {process.pid} ") for text in busy)
        assert not any(str(process.pid) in device.busy_with for device in probe.devices(lambda pid: pid == process.pid))
        process.kill()
