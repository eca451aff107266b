"""Which environment variables a run takes over from its submitter, and which GPUs they allow it to use."""

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
"""Variables that a run of a snapshot takes over from the submitter's environment: the machine's, not the user's."""
MACHINE_PREFIXES = ("LC_", "PIP_", "UV_")
PROXIES = frozenset({"http_proxy", "https_proxy", "no_proxy", "all_proxy"})
"""In any letter case."""
VISIBLE = "CUDA_VISIBLE_DEVICES"


def machine_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that belongs to the machine."""
    return {name: value for name, value in environ.items() if _is_machines(name)}


def _is_machines(name: str) -> bool:
    return name in MACHINE_VARIABLES or name.startswith(MACHINE_PREFIXES) or name.lower() in PROXIES


def visible_devices(text: str | None) -> list[str] | None:
    """Return the GPUs in `CUDA_VISIBLE_DEVICES`; None when it is not set. As in CUDA, entries after a -1 do not count."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    end = next((position for position, word in enumerate(words) if not word or word.startswith("-")), len(words))
    return [] if words[0].lower() in ("none", "nodevfiles", "void") else words[:end]
