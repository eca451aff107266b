"""Run a Python program with access to a few files only: `python confinement.py OPTIONS -- PROGRAM ARGUMENTS`.

It is started by path under the user's interpreter, before anything of the model is read. It uses only the standard library and
must run on Python 3.9 and newer. It uses what the kernel supports and reports what it does not support; no privileges are needed.

- seccomp: no sockets except pairs and local sockets that connect nowhere; no signals to, and no access to the memory of, other
  processes; no changes of owner, mode and times of files, which Landlock does not cover.
- Landlock: files of the interpreter, the system and the model are readable; only the scratch folder is writable.
- capabilities: a process of root keeps only the right to read files.

On older kernels, threads that are already running are not confined, so the program starts in the single thread that confined
itself.
"""

from __future__ import annotations

import argparse
import ctypes
import glob
import json
import os
import platform
import runpy
import socket
import struct
import sys

_libc = ctypes.CDLL(None, use_errno=True)

_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 24, 38, 47
_CLEAR_ALL = 4
_CAP_DAC_READ_SEARCH = 2
_LAST_CAPABILITY = 63

_AF_UNIX, _SOCK_DGRAM = 1, 2
_EPERM, _EACCES = 1, 13
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_X32 = 0x40000000

# System call numbers by machine.
_MACHINES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (0xC000003E, {
        "socket": 41, "connect": 42, "sendto": 44, "socketpair": 53, "kill": 62, "ptrace": 101, "rt_sigqueueinfo": 129,
        "pivot_root": 155, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168,
        "reboot": 169, "sethostname": 170, "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176,
        "tkill": 200, "clock_settime": 227, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250,
        "unshare": 272, "rt_tgsigqueueinfo": 297, "perf_event_open": 298, "open_by_handle_at": 304, "setns": 308,
        "process_vm_readv": 310, "process_vm_writev": 311, "finit_module": 313, "seccomp": 317, "kexec_file_load": 320,
        "bpf": 321, "userfaultfd": 323, "pidfd_send_signal": 424, "io_uring_setup": 425, "pidfd_getfd": 438,
        "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "utime": 132, "setxattr": 188, "lsetxattr": 189,
        "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199, "utimes": 235, "fchownat": 260,
        "futimesat": 261, "fchmodat": 268, "utimensat": 280, "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466,
    }),
    "aarch64": (0xC00000B7, {
        "socket": 198, "connect": 203, "sendto": 206, "socketpair": 199, "kill": 129, "ptrace": 117, "rt_sigqueueinfo": 138,
        "pivot_root": 41, "acct": 89, "settimeofday": 170, "mount": 40, "umount2": 39, "swapon": 224, "swapoff": 225,
        "reboot": 142, "sethostname": 161, "init_module": 105, "delete_module": 106,
        "tkill": 130, "clock_settime": 112, "kexec_load": 104, "add_key": 217, "request_key": 218, "keyctl": 219,
        "unshare": 97, "rt_tgsigqueueinfo": 240, "perf_event_open": 241, "open_by_handle_at": 265, "setns": 268,
        "process_vm_readv": 270, "process_vm_writev": 271, "finit_module": 273, "seccomp": 277, "kexec_file_load": 294,
        "bpf": 280, "userfaultfd": 282, "pidfd_send_signal": 424, "io_uring_setup": 425, "pidfd_getfd": 438,
        "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16, "fchmod": 52,
        "fchmodat": 53, "fchownat": 54, "fchown": 55, "utimensat": 88, "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466,
    }),
}  # fmt: skip
_CHECKED = ("socket", "socketpair", "sendto", "seccomp")
"""System calls of the tables that are filtered by argument, or not at all."""
_SIGNALS = ("kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")
"""Refused only if Landlock cannot restrict signals to the process and its children."""

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_READING = _EXECUTE | _READ | _LIST
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
"""Rights that a rule for something other than a folder may grant."""

_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/gnu/store", "/run/opengl-driver", "/proc",
    "/sys",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/localtime", "/etc/timezone",
    "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/os-release", "/etc/alternatives", "/etc/mime.types", "/etc/nvidia",
    "/etc/OpenCL", "/etc/vulkan",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_GPUS = ("/dev/nvidia*", "/dev/nvidia-caps", "/dev/dri", "/dev/kfd", "/dev/dxg")
_PATHS = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "ROCM_PATH")
_MPS = "CUDA_MPS_PIPE_DIRECTORY"
_CACHES = {
    "TMPDIR": "", "HOME": "", "XDG_CACHE_HOME": "cache", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton",
    "CUDA_CACHE_PATH": "cuda", "MPLCONFIGDIR": "matplotlib",
}  # fmt: skip
"""Environment variables for caches and their folders in the scratch folder."""


def confine(folders: list[str], scratch: str) -> str:
    """Confine this process and its children permanently; return a description of what is restricted and what is not."""
    if sys.platform != "linux":
        return "not confined: this system has neither seccomp nor Landlock"
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _drop_capabilities()
    files, signals = _restrict_files(folders, scratch)
    calls = _restrict_calls(signals_too=not signals)
    network = "no network" if os.environ.get(_MPS) else "no network, no local sockets"
    if not files and not calls:
        return f"confined: {network}, files can be read but not written"
    if not calls:
        return f"partly confined: {network}; files are not restricted: {files}"
    if not files:
        return f"partly confined: files can be read but not written; the network is not restricted: {calls}"
    return f"not confined: files: {files}; network: {calls}"


def _prctl(option: int, value: int) -> None:
    _libc.prctl(option, *(ctypes.c_ulong(argument) for argument in (value, 0, 0, 0)))


def _drop_capabilities() -> None:
    """Drop the capabilities of a process of root, except the right to read files."""
    _prctl(_PR_CAP_AMBIENT, _CLEAR_ALL)
    for capability in range(_LAST_CAPABILITY + 1):
        if capability != _CAP_DAC_READ_SEARCH:
            _prctl(_PR_CAPBSET_DROP, capability)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    current = (ctypes.c_uint32 * 6)()
    if _libc.capget(header, current) == 0:
        kept = current[1] & (1 << _CAP_DAC_READ_SEARCH)
        _libc.capset(header, (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0))


# Files


def _restrict_files(folders: list[str], scratch: str) -> tuple[str, bool]:
    """Restrict files and signals; return why files are not restricted, or "", and whether signals are restricted."""
    abi = int(_libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))
    if abi < 1:
        return "this kernel offers no Landlock (Linux 5.13 and newer, where it is enabled)", False
    if len(os.listdir("/proc/self/task")) > 1:
        return "the interpreter started threads before the model was loaded", False
    everything = _rights(abi)
    attributes = struct.pack("<QQQ", everything, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    rules = _libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0))
    if rules < 0:
        return f"Landlock failed: {os.strerror(ctypes.get_errno())}", False
    for path in _readable(folders):
        _allow(rules, path, _READING)
    for path in _DEVICES:
        _allow(rules, path, (_READ | _WRITE | _IOCTL | _TRUNCATE) & everything)
    gpus = [path for pattern in _GPUS for path in glob.glob(pattern)]
    for path in gpus:
        _allow(rules, path, (_READ | _WRITE | _LIST | _IOCTL) & everything)
    writable = everything & ~(_MAKE_CHAR | _MAKE_BLOCK)
    _allow(rules, scratch, writable)
    if gpus:
        # The GPU driver writes its threads' names there and fails to start when it cannot.
        _allow(rules, "/proc/self/task", (_READ | _LIST | _WRITE | _TRUNCATE) & everything, keep=True)
    if os.environ.get(_MPS):
        # With MPS, programs that share a GPU also share memory with the MPS server.
        _allow(rules, "/dev/shm", writable & ~_EXECUTE)
        _allow(rules, os.environ[_MPS], (_READ | _LIST | _WRITE) & everything)
    if _libc.syscall(_LANDLOCK_RESTRICT, rules, ctypes.c_uint32(0)) < 0:
        return f"Landlock failed: {os.strerror(ctypes.get_errno())}", False
    os.close(rules)
    return "", abi >= 6


def _rights(abi: int) -> int:
    """Return all access rights that this version of Landlock supports."""
    return (1 << (16 if abi >= 5 else 15 if abi >= 3 else 14 if abi >= 2 else 13)) - 1


def _readable(folders: list[str]) -> list[str]:
    """Return the readable paths: the model, the interpreter with its packages, and the system's files."""
    named = [path for name in _PATHS for path in os.environ.get(name, "").split(os.pathsep)]
    interpreter = [
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        sys.base_exec_prefix,
        os.path.dirname(os.path.realpath(sys.executable)),
    ]
    paths = [*folders, *interpreter, *(path or os.curdir for path in sys.path), *_SYSTEM, *(path for path in named if path)]
    return [path for path in dict.fromkeys(map(os.path.realpath, paths)) if path != "/"]


def _allow(rules: int, path: str, rights: int, *, keep: bool = False) -> None:
    """Grant rights for a file or everything below a folder. A path that does not exist needs no rule."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):
        rights &= _OF_FILES
    _libc.syscall(_LANDLOCK_ADD, rules, ctypes.c_int(1), struct.pack("<Qi", rights, handle), ctypes.c_uint32(0))
    if not keep:  # keeping the file open prevents that its name becomes a different inode
        os.close(handle)


# System calls


def _restrict_calls(*, signals_too: bool) -> str:
    """Install the seccomp filter; return why the network is not restricted, or ""."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return f"the system calls of {platform.machine()} are not supported"
    program = _filter(*machine, signals_too=signals_too, connects=bool(os.environ.get(_MPS)))
    code = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    if _libc.syscall(machine[1]["seccomp"], ctypes.c_uint32(1), ctypes.c_uint32(1), described):
        return f"seccomp failed: {os.strerror(ctypes.get_errno())}"
    return ""


def _filter(architecture: int, numbers: dict[str, int], *, signals_too: bool, connects: bool) -> bytes:
    """Build the seccomp filter. Jumps are relative and forward; each block ends with its verdict."""
    load, same, more, both, answer = 0x20, 0x15, 0x35, 0x54, 0x06
    refuse, not_open = (answer, 0, 0, _ERRNO | _EPERM), (answer, 0, 0, _ERRNO | _EACCES)
    allow = (answer, 0, 0, _ALLOW)
    lines: list[tuple[int, int, int, int]] = [
        (load, 0, 0, 4), (same, 1, 0, architecture), refuse,  # numbers of another architecture have other meanings
        (load, 0, 0, 0), (more, 0, 1, _X32), refuse,
    ]  # fmt: skip
    for name, number in sorted(numbers.items()):
        unchecked = name in _CHECKED or (name in _SIGNALS and not signals_too) or (name == "connect" and connects)
        if not unchecked:
            lines += [(same, 0, 1, number), refuse]
    # Only local sockets, but not datagram sockets, which can send to an address without connecting.
    local = [(load, 0, 0, 16), (same, 1, 0, _AF_UNIX), not_open]
    lines += [(same, 0, 7, numbers["socket"]), *local, (load, 0, 0, 24), (both, 0, 0, 0xF), (same, 0, 1, _SOCK_DGRAM), not_open]
    lines += [(load, 0, 0, 0)]
    lines += [(same, 0, 4, numbers["socketpair"]), (load, 0, 0, 24), (both, 0, 0, 0xF), (same, 0, 1, _SOCK_DGRAM), not_open]
    lines += [(load, 0, 0, 0)]
    lines += [(same, 0, 5, numbers["sendto"]), (load, 0, 0, 48), (same, 0, 2, 0), (load, 0, 0, 52), (same, 1, 0, 0), not_open]
    lines += [allow]
    return b"".join(struct.pack("<HBBI", *line) for line in lines)


def _tell(wire: int, words: str) -> None:
    """Send the first frame to the replica: how the worker is confined. No code of the model has run yet."""
    head = json.dumps({"id": 0, "confined": words}).encode()
    connection = socket.socket(fileno=os.dup(wire))
    with connection:
        connection.sendall(struct.pack("<IQ", len(head), 0) + head)


def main(arguments: list[str] | None = None) -> None:
    """Confine the process, report the result, and run the program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--wire", type=int, required=True)
    parser.add_argument("--scratch", required=True)
    parser.add_argument("--folder", action="append", default=[])
    parser.add_argument("program")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    for name, folder in _CACHES.items():
        os.environ[name] = os.path.join(options.scratch, folder) if folder else options.scratch
    _tell(options.wire, confine(options.folder, options.scratch))
    sys.argv = [options.program, *options.rest]
    runpy.run_path(options.program, run_name="__main__")


if __name__ == "__main__":
    main()
