"""Import the modules that the program will need, then wait for the program. Afterwards Python continues as in a normal start.

Python imports this module by itself before it looks at the program. Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import json
import os
import socket
import struct
import sys

VARIABLE = "FAIRWAY_SPARE"
"""JSON: the descriptor of the socket, the modules to import, and the script's folder. Or `PROBE`."""
PROBE = "probe"
"""Only prove that Python imports this module. An interpreter that does not would run the program immediately."""
PROVEN = 42
_HEADER = struct.Struct("!II")
_MAYBE = frozenset({"torch._dynamo"})
"""Modules that some versions do not have."""


def wait() -> None:
    """Import the modules, wait, and become the assigned program.

    On any unexpected condition the process ends, and the engine starts another one.
    """
    if os.environ[VARIABLE] == PROBE:
        os._exit(PROVEN)
    order = json.loads(os.environ.pop(VARIABLE))
    own_folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != own_folder]
    with socket.socket(fileno=order["descriptor"]) as channel:
        try:
            _load_the_users_own()
            _name(b"fairway-spare")
            for name in order["modules"]:
                _load(name)
            if _is_shadowed(order["folder"]):
                os._exit(1)
            channel.sendall(b"w")
            _become(channel)
        except BaseException:  # noqa: BLE001 - a spare with any defect must not be used
            os._exit(1)


def _load(name: str) -> None:
    try:
        importlib.import_module(name)
    except ImportError:
        if name not in _MAYBE:
            raise


def _load_the_users_own() -> None:
    """Load the `sitecustomize` that Python would have found without this one."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        try:
            spec.loader.exec_module(module)
        except ImportError as error:
            # Fairway's own `sitecustomize`, which found no further one.
            if error.name != "sitecustomize":
                raise
            del sys.modules["sitecustomize"]


def _is_shadowed(folder: str) -> bool:
    """Return whether modules next to the script would have been imported instead of those that are loaded."""
    return any(name.partition(".")[0] in sys.modules for name in os.listdir(folder))


def _become(channel: socket.socket) -> None:
    size = struct.calcsize("i")
    header, carried, _flags, _address = channel.recvmsg(_HEADER.size, socket.CMSG_SPACE(3 * size))
    length, _count = _HEADER.unpack(header)
    ((_level, _kind, descriptors),) = carried
    stdin_descriptor, output, error = struct.unpack("3i", descriptors[: 3 * size])
    text = bytearray()
    while len(text) < length:
        piece = channel.recv(length - len(text))
        if not piece:
            raise ConnectionError
        text += piece
    order = json.loads(text)
    os.chdir(order["cwd"])
    # Python itself sets this variable if the locale is the plain one.
    locale = {name: os.environ[name] for name in ("LC_CTYPE",) if name in os.environ}
    os.environ.clear()
    os.environ.update({**locale, **order["env"]})
    os.dup2(stdin_descriptor, 0)
    os.dup2(output, 1)
    os.dup2(error, 2)
    for descriptor in (stdin_descriptor, output, error):
        os.close(descriptor)
    _name(os.path.basename(order["name"]).encode())
    channel.sendall(b"t")


def _name(name: bytes) -> None:
    """Set the process name that `ps` shows."""
    try:
        with open("/proc/self/comm", "wb") as file:
            file.write(name[:15])
    except OSError:
        return


if VARIABLE in os.environ:
    wait()
    if sys.modules.get(__name__) is None or getattr(sys.modules[__name__], "__file__", "") == __file__:
        # No module of this name must remain, as in a normal start.
        raise ImportError(name=__name__)
