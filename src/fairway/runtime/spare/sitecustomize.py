"""Imports what the program will import, then waits until it is its turn; after that Python goes on as if nothing had been.

Python imports this by itself before it looks at the program. Standard library only, Python 3.9 and newer.
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
"""JSON: the descriptor of the socket, the modules to import, and the script's folder. Or the word below."""
PROBE = "probe"
"""Only show that Python comes this way: an interpreter that does not would run the program at once."""
PROVEN = 42
_HEADER = struct.Struct("!II")
_MAYBE = frozenset({"torch._dynamo"})
"""Modules that not every version has."""


def wait() -> None:
    """Import, wait, and become what is asked for. Whatever is not as expected ends the process: another start is made."""
    if os.environ[VARIABLE] == PROBE:
        os._exit(PROVEN)
    told = json.loads(os.environ.pop(VARIABLE))
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != own]
    with socket.socket(fileno=told["descriptor"]) as channel:
        try:
            _load_the_users_own()
            _name(b"fairway-spare")
            for name in told["modules"]:
                _load(name)
            if _is_shadowed(told["folder"]):
                os._exit(1)
            channel.sendall(b"w")
            _become(channel)
        except BaseException:  # noqa: BLE001 - a spare that is not perfect is none
            os._exit(1)


def _load(name: str) -> None:
    try:
        importlib.import_module(name)
    except ImportError:
        if name not in _MAYBE:
            raise


def _load_the_users_own() -> None:
    """The `sitecustomize` that Python would have found without this one."""
    found = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if found is not None and found.loader is not None:
        module = importlib.util.module_from_spec(found)
        sys.modules["sitecustomize"] = module
        try:
            found.loader.exec_module(module)
        except ImportError as error:
            # Fairway's own, which found none behind it.
            if error.name != "sitecustomize":
                raise
            del sys.modules["sitecustomize"]


def _is_shadowed(folder: str) -> bool:
    """Whether the program would have found other modules beside its script than those that are loaded."""
    return any(name.partition(".")[0] in sys.modules for name in os.listdir(folder))


def _become(channel: socket.socket) -> None:
    size = struct.calcsize("i")
    header, carried, _flags, _address = channel.recvmsg(_HEADER.size, socket.CMSG_SPACE(3 * size))
    length, _count = _HEADER.unpack(header)
    ((_level, _kind, descriptors),) = carried
    given, output, error = struct.unpack("3i", descriptors[: 3 * size])
    text = bytearray()
    while len(text) < length:
        piece = channel.recv(length - len(text))
        if not piece:
            raise ConnectionError
        text += piece
    told = json.loads(text)
    os.chdir(told["cwd"])
    # Python itself sets this one where the locale is the plain one.
    locale = {name: os.environ[name] for name in ("LC_CTYPE",) if name in os.environ}
    os.environ.clear()
    os.environ.update({**locale, **told["env"]})
    os.dup2(given, 0)
    os.dup2(output, 1)
    os.dup2(error, 2)
    for descriptor in (given, output, error):
        os.close(descriptor)
    _name(os.path.basename(told["name"]).encode())
    channel.sendall(b"t")


def _name(name: bytes) -> None:
    """What `ps` shows."""
    try:
        with open("/proc/self/comm", "wb") as file:
            file.write(name[:15])
    except OSError:
        return


if VARIABLE in os.environ:
    wait()
    if sys.modules.get(__name__) is None or getattr(sys.modules[__name__], "__file__", "") == __file__:
        # So that there is no module of this name, as there would not have been.
        raise ImportError(name=__name__)
