"""Metrics of this replica's GPUs, with Triton's names, read through NVML on each request for metrics."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from fairway.serving.exposition.metric_family import MetricFamily

VISIBLE = "CUDA_VISIBLE_DEVICES"

_log = logging.getLogger("fairway.replica")


def of_environment(environment: Mapping[str, str] = os.environ) -> Callable[[], list[MetricFamily]] | None:
    """Return a reader for the GPUs that `CUDA_VISIBLE_DEVICES` names by UUID.

    None when it names none, or when NVML cannot be loaded.
    """
    uuids = [name for name in environment.get(VISIBLE, "").split(",") if name.startswith(("GPU-", "MIG-"))]
    if not uuids:
        return None
    try:
        pynvml = importlib.import_module("pynvml")  # most replicas have no GPU
        pynvml.nvmlInit()
        handles = {uuid: pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids}
    except Exception as error:  # noqa: BLE001  # NVML raises its own classes; missing metrics must not prevent serving
        _log.warning("GPU metrics are not available: %s", error)
        return None
    return lambda: families(pynvml, handles)


def families(nvml: Any, handles: Mapping[str, Any]) -> list[MetricFamily]:
    """Return the utilisation, memory and power of each GPU. Values that a GPU does not support are left out."""
    used = MetricFamily("nv_gpu_utilization", "gauge", "GPU utilization rate, 0 to 1 (Triton's name).")
    memory = MetricFamily("nv_gpu_memory_used_bytes", "gauge", "GPU memory in use (Triton's name).")
    total = MetricFamily("nv_gpu_memory_total_bytes", "gauge", "GPU memory (Triton's name).")
    power = MetricFamily("nv_gpu_power_usage", "gauge", "GPU power in watts (Triton's name).")
    for uuid, handle in handles.items():
        label = ("gpu_uuid", uuid)
        _add(used, label, lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)  # noqa: B023  # called at once
        _add(memory, label, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used)  # noqa: B023
        _add(total, label, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total)  # noqa: B023
        _add(power, label, lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000)  # noqa: B023
    return [family for family in (used, memory, total, power) if family.samples]


def _add(family: MetricFamily, label: tuple[str, str], read: Callable[[], float]) -> None:
    try:
        family.add(read(), label)
    except Exception as error:  # noqa: BLE001  # the same
        _log.debug("%s: %s", family.name, error)
