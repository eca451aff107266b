"""Claims, volumes and how they are made."""

from __future__ import annotations

from fairway.engines.kubernetes.objects.meta import ObjectReference, Part, Thing
from fairway.engines.kubernetes.objects.selecting import NodeSelector, ResourceNeeds


class ClaimSpec(Part, frozen=True):
    """Which storage is asked for."""

    access_modes: tuple[str, ...] = ()
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str = "Filesystem"
    resources: ResourceNeeds = ResourceNeeds()


class ClaimStatus(Part, frozen=True):
    """Whether there is a volume."""

    phase: str = ""


class Claim(Thing, frozen=True):
    """A PersistentVolumeClaim."""

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class VolumeNodeAffinity(Part, frozen=True):
    """From where a volume can be reached."""

    required: NodeSelector | None = None


class CsiSource(Part, frozen=True):
    """The driver behind a volume."""

    driver: str = ""


class PersistentVolumeSpec(Part, frozen=True):
    """What a volume is."""

    capacity: dict[str, str] = {}
    storage_class_name: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ObjectReference | None = None
    csi: CsiSource | None = None


class PersistentVolume(Thing, frozen=True):
    """A volume."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: ClaimStatus = ClaimStatus()


class StorageClass(Thing, frozen=True):
    """How volumes are made."""

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
