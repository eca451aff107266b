"""Claims, volumes and storage classes."""

from __future__ import annotations

from fairway.engines.kubernetes.objects.meta import KubernetesObject, ObjectPart, ObjectReference
from fairway.engines.kubernetes.objects.selector import LabelSelector, NodeSelector, ResourceRequirements


class PersistentVolumeClaimSpec(ObjectPart, frozen=True):
    """The storage that a claim requests."""

    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str = "Filesystem"
    resources: ResourceRequirements = ResourceRequirements()
    selector: LabelSelector | None = None


class PersistentVolumeClaimStatus(ObjectPart, frozen=True):
    """Whether the claim is bound to a volume."""

    phase: str = ""


class PersistentVolumeClaim(KubernetesObject, frozen=True):
    """A PersistentVolumeClaim."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class VolumeNodeAffinity(ObjectPart, frozen=True):
    """The nodes from which a volume can be reached."""

    required: NodeSelector | None = None


class CsiVolumeSource(ObjectPart, frozen=True):
    """The driver behind a volume."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(ObjectPart, frozen=True):
    """The properties of a volume."""

    capacity: dict[str, str] = {}
    storage_class_name: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ObjectReference | None = None
    csi: CsiVolumeSource | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"


class PersistentVolume(KubernetesObject, frozen=True):
    """A volume."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class TopologyRule(ObjectPart, frozen=True):
    """A node label, and its allowed values."""

    key: str
    values: tuple[str, ...] = ()


class TopologyTerm(ObjectPart, frozen=True):
    """Rules that must all be met."""

    match_label_expressions: tuple[TopologyRule, ...] = ()


class StorageClass(KubernetesObject, frozen=True):
    """How volumes are provisioned."""

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class VolumeAttachLimit(ObjectPart, frozen=True):
    """How many volumes of a driver can be attached to a node."""

    count: int | None = None


class CsiNodeDriver(ObjectPart, frozen=True):
    """A driver of volumes on a node."""

    name: str
    allocatable: VolumeAttachLimit | None = None


class CsiNodeSpec(ObjectPart, frozen=True):
    """All drivers of a node."""

    drivers: tuple[CsiNodeDriver, ...] | None = None
    """A kubelet writes null where there are none."""


class CsiNode(KubernetesObject, frozen=True):
    """The volume drivers of the node of the same name."""

    spec: CsiNodeSpec = CsiNodeSpec()
