"""What user code imports inside a task. Standard library only, Python 3.9 and newer.

The folder is copied into every task, so it must import nothing else of Fairway.
It reads and writes the files that `contract.py` names; there is no connection to anything that could fail or block.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fairway.runtime.exporting import export

    __all__ = ["export"]


def __getattr__(name: str) -> object:
    """`fairway.runtime.export`, loaded when first asked for."""
    if name == "export":
        from fairway.runtime import exporting  # noqa: PLC0415  most programs never export

        return exporting.export
    message = f"module 'fairway.runtime' has no attribute {name!r}"
    raise AttributeError(message)
