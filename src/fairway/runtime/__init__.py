"""The package that user code imports inside a task. Standard library only, Python 3.9 and newer.

The folder is copied into every task, so it must not import any other part of Fairway. It reads and writes the files that
`task_contract.py` names; there is no connection that could fail or block.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairway.runtime.model_export.exporter import export

    __all__ = ["export"]


def __getattr__(name: str) -> object:
    """Load `fairway.runtime.export` on first use."""
    if name == "export":
        from fairway.runtime.model_export import exporter  # noqa: PLC0415  most programs never export

        return exporter.export
    message = f"module 'fairway.runtime' has no attribute {name!r}"
    raise AttributeError(message)
