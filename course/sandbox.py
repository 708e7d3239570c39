"""What keeps a submission to itself: files, sockets, other processes, memory and time.

Three layers, because no single one is everywhere. Namespaces (no network, no other processes) are made by the
``unshare`` program, where the system lets users do so. Landlock, in Linux since 5.13, lets the process see only the
folders it needs, whoever runs it. An audit hook in Python needs nothing of the system and gives the clear message;
alone it would stop accidents, not intent. :func:`layers` says which are in force.
"""

import ctypes
import os
import platform
import resource
import struct
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

NAMESPACES = ["unshare", "--user", "--map-root-user", "--net", "--ipc", "--pid", "--fork", "--kill-child"]
SYSTEM = [
    "/usr",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/fonts",
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/sys/devices/system/cpu",
]

FCNTL = {"x86_64": (0xC000003E, 72), "aarch64": (0xC00000B7, 25)}  # the kind of calls, and the number of fcntl
LEASE = 1024  # what fcntl is asked for a lease
CREATE, ADD, RESTRICT = 444, 445, 446  # Landlock's system calls, the same numbers on all machines
EXECUTE, READ_FILE, READ_DIR, WRITE_FILE = 1, 4, 8, 2
READ = EXECUTE | READ_FILE | READ_DIR
FILE_ONLY = EXECUTE | READ_FILE | WRITE_FILE | 1 << 14 | 1 << 15  # rights that a plain file can carry

PATHS = {
    "open",
    "os.listdir",
    "os.scandir",
    "os.chdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "os.chown",
    "os.utime",
    "shutil.rmtree",
    "sqlite3.connect",
}
BOTH = {"os.rename", "os.link", "os.symlink"}  # events whose first two arguments are paths
PROGRAMS = {"os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pty.spawn"}
SIGNALS = {"os.kill", "os.killpg"}


def landlock() -> int:
    """Return the version of Landlock that the kernel speaks, 0 if none."""
    if sys.platform != "linux":
        return 0
    return max(0, ctypes.CDLL(None).syscall(CREATE, None, 0, 1))


@cache
def namespaces() -> list[str]:
    """Return the command that starts a program in namespaces of its own; empty where users may not do that."""
    try:
        done = subprocess.run([*NAMESPACES, "true"], capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return NAMESPACES if done.returncode == 0 else []


RISK = {
    "Landlock": "read and write whatever your account can, hidden tests and marks among it, in plain Python",
    "namespaces": "use the network, stop processes of yours, and leave some of its own behind",
}


def layers() -> dict[str, bool]:
    """Return which of the layers this system offers."""
    return {"namespaces": bool(namespaces()), "Landlock": landlock() > 0, "audit hook": True}


def package() -> str:
    """Return the folder of cflkit."""
    return str(Path(__file__).resolve().parent.parent / "cflkit")


def readable() -> list[str]:
    """Return the folders that a submission may read: the system's libraries, Python, and cflkit."""
    found = [*SYSTEM, sys.prefix, sys.base_prefix, package()]
    return [os.path.realpath(path) for path in found if os.path.exists(path)]


def limit(memory: int, seconds: int) -> None:
    """Limit what this process may allocate (bytes, beyond what it has now), compute, and write to one file."""
    used = 0
    if os.path.exists("/proc/self/statm"):
        used = int(Path("/proc/self/statm").read_text("utf-8").split()[5]) * resource.getpagesize()
    for what, most in (
        (resource.RLIMIT_DATA, used + memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, 1 << 27),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))


def no_shared_memory() -> None:
    """Take System V's shared memory away, which no limit of a process counts; only in a namespace of its own."""
    with suppress(OSError):  # in a container, whose limit of memory counts it
        Path("/proc/sys/kernel/shmall").write_text("0", "utf-8")


def confine(paths: list[str], folder: str, own_forks: set[int]) -> None:
    """Let this thread, and all that it starts, read `paths`, write in `folder` and signal `own_forks`, no more."""
    if landlock():
        _landlock(paths, folder)
        _no_leases()

    inside = tuple(os.path.join(os.path.realpath(path), "") for path in [*paths, folder])
    own = os.path.join(os.path.realpath(folder), "")

    def audit(event: str, arguments: tuple) -> None:
        if event.startswith("socket."):
            raise PermissionError("a submission may not open a socket")
        if event in PROGRAMS:
            raise PermissionError("a submission may not start a program")
        if event in SIGNALS and arguments[0] not in own_forks:
            raise PermissionError("a submission may not send a signal")
        if event not in PATHS:
            return
        for argument in arguments[: 2 if event in BOTH else 1]:
            if isinstance(argument, str | bytes | os.PathLike):
                visit(event, os.fsdecode(argument), arguments)

    def visit(event: str, named: str, arguments: tuple) -> None:
        path = os.path.join(os.path.realpath(named), "")
        writes = event not in ("os.listdir", "os.scandir", "os.chdir")
        if event == "open":
            mode, flags = arguments[1], arguments[2]
            writes = bool(set(mode) & set("wax+")) if mode else bool(flags & (os.O_WRONLY | os.O_RDWR))
        if not path.startswith(own if writes and path != "/dev/null/" else inside):
            raise PermissionError(f"a submission may not {'change' if writes else 'read'} {named}")

    sys.addaudithook(audit)


def _landlock(paths: list[str], folder: str) -> None:
    libc, version = ctypes.CDLL(None, use_errno=True), landlock()
    handled = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1  # rights that this version knows

    def call(number: int, *arguments) -> int:
        done = libc.syscall(number, *arguments)
        if done < 0:
            raise OSError(ctypes.get_errno(), f"Landlock call {number} on {platform.release()}")
        return done

    class Rules(ctypes.Structure):
        _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]

    class Beneath(ctypes.Structure):
        _pack_ = 1
        _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]

    rules = Rules(handled, 3 if version >= 4 else 0, 3 if version >= 6 else 0)  # no TCP; no signals outwards
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = call(CREATE, ctypes.byref(rules), ctypes.c_size_t(size), 0)
    for path, rights in [*((path, READ) for path in paths), (folder, handled), ("/dev/null", READ | WRITE_FILE)]:
        rights &= handled if os.path.isdir(path) else handled & FILE_ONLY
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        call(ADD, ruleset, 1, ctypes.byref(Beneath(rights, parent)), 0)
        os.close(parent)
    if libc.prctl(38, 1, 0, 0, 0):  # no new privileges, which Landlock asks for
        raise OSError(ctypes.get_errno(), "prctl")
    call(RESTRICT, ruleset, 0)
    os.close(ruleset)
    libc.capset(
        (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    )  # as root of a namespace it could chroot


def _no_leases() -> None:
    """Refuse leases: who opens a file on which another process holds one waits for 45 seconds."""
    kind, fcntl = FCNTL.get(platform.machine(), (0, 0))
    if not kind:
        return
    load, equal, above, answer, allowed, refused = 0x20, 0x15, 0x35, 0x06, 0x7FFF0000, 0x50001
    filters = [
        (load, 0, 0, 4), (equal, 0, 6, kind),  # calls of another kind, as of 32 bits, have other numbers: refused
        (load, 0, 0, 0), (above, 4, 0, 1 << 30), (equal, 0, 2, fcntl),
        (load, 0, 0, 24), (equal, 1, 0, LEASE),
        (answer, 0, 0, allowed), (answer, 0, 0, refused),
    ]  # fmt: skip
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in filters))
    program = struct.pack("HxxxxxxP", len(filters), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
