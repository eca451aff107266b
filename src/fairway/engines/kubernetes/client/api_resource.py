"""The resources that are built in, so that they need no discovery."""

from __future__ import annotations

from typing import Any

from fairway.engines.kubernetes import objects
from fairway.engines.kubernetes.client.api_path import ApiResource
from fairway.spec.custom_resource import GROUP, VERSION

PODS = ApiResource(objects.Pod, "", "v1", "pods", "Pod")
NODES = ApiResource(objects.KubernetesNode, "", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = ApiResource(objects.Namespace, "", "v1", "namespaces", "Namespace", namespaced=False)
SERVICES = ApiResource(objects.KubernetesService, "", "v1", "services", "Service")
CONFIG_MAPS = ApiResource(objects.ConfigMap, "", "v1", "configmaps", "ConfigMap")
SECRETS = ApiResource(objects.KubernetesSecret, "", "v1", "secrets", "Secret")
CLAIMS = ApiResource(objects.PersistentVolumeClaim, "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = ApiResource(objects.PersistentVolume, "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = ApiResource(objects.StorageClass, "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CSI_NODES = ApiResource(objects.CsiNode, "storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
PRIORITY_CLASSES = ApiResource(
    objects.PriorityClass, "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False
)
LEASES = ApiResource(objects.KubernetesLease, "coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = ApiResource(objects.KubernetesEvent, "events.k8s.io", "v1", "events", "Event")
DEPLOYMENTS = ApiResource(objects.Deployment, "apps", "v1", "deployments", "Deployment")
DEFINITIONS = ApiResource(
    objects.CustomResourceDefinition,
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
TRAINING_JOBS = ApiResource(objects.CustomObject, GROUP, VERSION, "trainingjobs", "TrainingJob")
MODEL_SERVICES = ApiResource(objects.CustomObject, GROUP, VERSION, "modelservices", "ModelService")
JOB_QUEUES = ApiResource(objects.CustomObject, GROUP, VERSION, "jobqueues", "JobQueue", namespaced=False)
GPU_NODES = ApiResource(objects.GpuNode, GROUP, VERSION, "gpunodes", "GpuNode", namespaced=False)

_BUILT_IN: tuple[ApiResource[Any], ...] = (
    PODS, NODES, NAMESPACES, SERVICES, CONFIG_MAPS, SECRETS, CLAIMS, VOLUMES, STORAGE_CLASSES, CSI_NODES, PRIORITY_CLASSES,
    LEASES, EVENTS, DEPLOYMENTS, DEFINITIONS, TRAINING_JOBS, MODEL_SERVICES, JOB_QUEUES, GPU_NODES,
)  # fmt: skip

BY_KIND: dict[tuple[str, str], ApiResource[Any]] = {(resource.api_version, resource.kind): resource for resource in _BUILT_IN}
"""By apiVersion and kind, as manifests name them."""
