"""Which variables of a caller a run gets, and which GPUs they let it use."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MACHINE_VARIABLES = frozenset(
    [
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "FAIRWAY_HOME"),
        *("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"),
        *("HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_ENDPOINT", "HF_HUB_OFFLINE", "TORCH_HOME", "KERAS_HOME"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    ]
)
"""What a run of a snapshot gets of the environment in which it is submitted: the machine's, not the person's."""
MACHINE_PREFIXES = ("LC_", "PIP_", "UV_")
PROXIES = frozenset({"http_proxy", "https_proxy", "no_proxy", "all_proxy"})
"""In any spelling."""
VISIBLE = "CUDA_VISIBLE_DEVICES"


def machine_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that belongs to the machine."""
    return {name: value for name, value in environ.items() if _is_machines(name)}


def _is_machines(name: str) -> bool:
    return name in MACHINE_VARIABLES or name.startswith(MACHINE_PREFIXES) or name.lower() in PROXIES


def visible_devices(text: str | None) -> list[str] | None:
    """The GPUs that `CUDA_VISIBLE_DEVICES` names; None when it is not set. As CUDA reads it, what follows a -1 does not count."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    end = next((at for at, word in enumerate(words) if not word or word.startswith("-")), len(words))
    return [] if words[0].lower() in ("none", "nodevfiles", "void") else words[:end]
