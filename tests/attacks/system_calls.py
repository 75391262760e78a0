"""System calls that a hostile program tries, beyond what `sandbox_programs` does with files and processes.

All of them run in one program, which prints `ESCAPED` and the name for each that is not refused. A call with invalid
arguments counts as refused only if the kernel's filter answered: with `EPERM`, or `ENOSYS` for what it hides.
`PORT`, `HOST_PID`, `VICTIM` and `OUTSIDE` are replaced by a server's port, the process of the tests, another process of
the same user, and a folder.
"""

from __future__ import annotations

_PRELUDE = """
import ctypes, errno, fcntl, mmap, os, resource, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
arm = os.uname().machine == 'aarch64'
class Refused(Exception): pass
def call(x86, on_arm, *arguments):
    number = on_arm if arm else x86
    if number is None: raise Refused
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    if result < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS): raise Refused
    return result
def fails(function, *arguments):
    try: function(*arguments)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTTY): raise Refused
        raise
def attempt(name, function):
    try: function()
    except (Refused, PermissionError, ProcessLookupError): return  # the processes named here exist
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOSYS, errno.ENOTTY): return
        print('ESCAPED', name, error)
    else: print('ESCAPED', name)
"""

ALONE = {
    "MPTCP": "socket.socket(2, 1, 262).connect(('127.0.0.1', PORT))",
    "TCP Fast Open": "socket.socket(2, 1).sendto(b'x', 0x20000000, ('127.0.0.1', PORT))",
    "listen without bind": "socket.socket(2, 1).listen()",
    "IPv6 socket": "socket.socket(10, 1)",
    "SCTP socket": "socket.socket(2, 5, 132)",
    "raw IP socket": "socket.socket(2, 3, 1)",
    "ping socket": "socket.socket(2, 2, 1)",
    "netlink socket": "socket.socket(16, 3, 0)",
    "crypto socket (AF_ALG)": "socket.socket(38, 5, 0)",
    "packet socket": "socket.socket(17, 3, 0)",
    "vsock": "socket.socket(40, 1, 0)",
    "XDP socket": "socket.socket(44, 3, 0)",
    "Bluetooth socket": "socket.socket(31, 3, 1)",
    "datagram of a socket pair": ("socket.socketpair(1, 2)[0].sendto(b'x', b'\\0reyn-datagram-HOST_PID')"),
    "limit the processor time of another process": "call(302, 261, VICTIM, 0, B(struct.pack('2Q', 1, 1)), 0)",
    "read the limits of another process": "call(302, 261, VICTIM, 0, 0, B(b'0' * 16))",
    "processors of another process": "os.sched_setaffinity(VICTIM, {0})",
    "own processors": "os.sched_setaffinity(0, {0})",
    "scheduler of another process": "call(144, 119, VICTIM, 3, B(b'\\0' * 4))",
    "deadline scheduling": "call(314, 274, 0, B(struct.pack('IIQiIQQQ', 48, 6, 0, 0, 0, 10**7, 10**7, 10**7)), 0)",
    "priority of another process": "os.setpriority(os.PRIO_PROCESS, VICTIM, 5)",
    "I/O priority of another process": "call(251, 30, 1, VICTIM, 0x6000)",
    "kill another process": "os.kill(VICTIM, 9)",
    "signal a process group": "os.kill(-VICTIM, 9)",
    "queue a signal": "call(129, 138, VICTIM, 9, B(b'\\0' * 128))",
    "open a process": "os.pidfd_open(VICTIM)",
    "signal by descriptor": "call(424, 424, 0, 9, 0, 0)",
    "descriptor of another process": "call(438, 438, 0, 0, 0)",
    "memory of another process": "call(310, 270, VICTIM, 0, 0, 0, 0, 0)",
    "write memory of another process": "call(311, 271, VICTIM, 0, 0, 0, 0, 0)",
    "advise memory of another process": "call(440, 440, 0, 0, 0, 0, 0)",
    "trace a process": "call(101, 117, 16, VICTIM, 0, 0)",
    "be traced": "call(101, 117, 0, 0, 0, 0)",
    "compare processes": "call(312, 272, VICTIM, VICTIM, 0, 0, 0)",
    "move pages of another process": "call(256, 238, VICTIM, 0, 0, 0)",
    "io_uring": "call(425, 425, 8, B(b'\\0' * 120))",
    "userfaultfd": "call(323, 282, 1)",
    "kernel keys (keyctl)": "call(250, 219, 0, -3, 0)",
    "add a key": "call(248, 217, 0, 0, 0, 0, 0)",
    "request a key": "call(249, 218, 0, 0, 0, 0)",
    "BPF": "call(321, 280, 0, 0, 0)",
    "performance counters": "call(298, 241, 0, 0, -1, -1, 0)",
    "mount": "call(165, 40, 0, 0, 0, 0, 0)",
    "unmount": "call(166, 39, 0, 2)",
    "mount API (fsopen)": "call(430, 430, B(b'tmpfs'), 0)",
    "mount API (open_tree)": "call(428, 428, -100, B(b'/'), 0)",
    "mount API (move_mount)": "call(429, 429, -1, 0, -1, 0, 0)",
    "mount API (mount_setattr)": "call(442, 442, -1, 0, 0, 0, 0)",
    "pivot_root": "call(155, 41, 0, 0)",
    "chroot": "os.chroot('/')",
    "new namespaces (unshare)": "call(272, 97, 0x10000000)",
    "enter a namespace (setns)": "call(308, 268, 0, 0)",
    "name a file by handle": "call(303, 264, -100, B(b'/usr'), B(struct.pack('I', 0)), B(b'0' * 8), 0)",
    "open a file by handle": "call(304, 265, -100, B(struct.pack('II', 0, 0)), 0)",
    "memory file to execute": "os.memfd_create('x')",
    "secret memory": "call(447, 447, 0)",
    "execute a descriptor": "call(322, 281, -1, B(b''), 0, 0, 0x1000)",
    "32-bit numbers of x86-64 (x32)": "call(0x40000000 + 39, None)",
    "x32 system call with pointers": "call(0x40000000 + 512, None, 0, 0, 0, 8)",
    "type into the terminal (TIOCSTI)": "fails(fcntl.ioctl, 0, 0x5412, b'x')",
    "terminal of the console (TIOCLINUX)": "fails(fcntl.ioctl, 0, 0x541C, b'x')",
    "other ioctls": "fails(fcntl.ioctl, 0, 0x8940, b'x')",
    "signals to another owner (F_SETOWN)": "fails(fcntl.fcntl, 0, 8, VICTIM)",
    "leases on files": "fails(fcntl.fcntl, 0, 1024, 0)",
    "personality": "call(135, 92, 0x0400000)",
    "memory barrier on all processors": "call(324, 283, 1, 0, 0)",
    "memory policy": "call(238, 237, 0, 0, 0)",
    "locked memory": "call(151, 230, 1)",
    "page cache of files (mincore)": "call(27, 232, 0, 0, 0)",
    "watch files": "call(294, 26, 0)",
    "watch the file system": "call(300, 262, 0, 0)",
    "pipes of kernel pages (vmsplice)": "call(278, 75, 0, 0, 0, 0)",
    "shared memory of System V": "call(29, 194, 0, 4096, 0o1600)",
    "semaphores of System V": "call(64, 190, 0, 1, 0o1600)",
    "messages of System V": "call(68, 186, 0, 0o1600)",
    "message queues": "call(240, 180, B(b'/x'), 64, 0o600, 0)",
    "become root": "os.setresuid(0, 0, 0)",
    "change groups": "os.setgroups([0])",
    "change capabilities": "call(126, 91, B(struct.pack('II', 0x20080522, 0)), B(b'\\xff' * 24))",
    "new session": "os.setsid()",
    "new process group": "os.setpgid(0, 0)",
    "debugging of others (PR_SET_PTRACER)": "call(157, 167, 0x59616D61, -1, 0, 0, 0)",
    "map of the process (PR_SET_MM)": "call(157, 167, 35, 1, 0, 0, 0)",
    "another filter": "call(317, 277, 0, 0, 0)",
    "clock": "call(227, 112, 0, B(struct.pack('qq', 0, 0)))",
    "adjust the clock": "call(159, 171, B(b'\\0' * 208))",
    "host name": "call(170, 161, B(b'x'), 1)",
    "reboot": "call(169, 142, 0, 0, 0)",
    "load a module": "call(313, 273, -1, 0, 0)",
    "load a kernel": "call(246, 104, 0, 0, 0, 0)",
    "swap": "call(167, 224, 0, 0)",
    "kernel log": "call(103, 116, 10, 0, 0)",
    "accounting": "call(163, 89, 0)",
    "quotas": "call(179, 60, 0, 0, 0, 0)",
    "ports of the machine": "call(172, None, 3)",
    "device file": "os.mknod(os.environ['TMPDIR'] + '/null', 0o020666, 0x103)",
    "flush all disks": "call(162, 81)",
    "process by clone3": "call(435, 435, B(b'\\0' * 88), 88)",
    "process in new namespaces": "call(56, 220, 0x10000000 | 17, 0, 0, 0, 0)",
}
"""Attempts of a program with no grants."""

NETWORK = {
    "MPTCP": "socket.socket(2, 1, 262)",
    "SCTP": "socket.socket(2, 5, 132)",
    "UDP-Lite": "socket.socket(2, 2, 136)",
    "raw socket": "socket.socket(2, 3, 1)",
    "netlink": "socket.socket(16, 3, 0)",
    "packet": "socket.socket(17, 3, 0)",
    "vsock": "socket.socket(40, 1, 0)",
    "Unix socket": "socket.socket(1, 1).connect('OUTSIDE/socket')",
    "abstract Unix socket": "socket.socket(1, 1).connect('\\0reyn-test-HOST_PID')",
    "listen without bind": "socket.socket(2, 1).listen()",
    "bind": "socket.socket(2, 1).bind(('127.0.0.1', 0))",
    "TCP Fast Open by a message": "socket.socket(2, 1).sendto(b'x', 0x20000000, ('127.0.0.1', PORT))",
    "TCP Fast Open by an option": "socket.socket(2, 1).setsockopt(6, 30, 1)",
    "packet filter": "socket.socket(2, 1).setsockopt(1, 26, b'0' * 16)",
    "firewall mark": "socket.socket(2, 1).setsockopt(1, 36, 1)",
    "network device": "socket.socket(2, 1).setsockopt(1, 25, b'lo')",
    "protocol of the kernel": "socket.socket(2, 1).setsockopt(6, 31, b'tls')",
    "multicast": "socket.socket(2, 2).setsockopt(0, 35, b'0' * 8)",
}
"""Attempts of a program that may use the network."""

PROCESSES = {
    "process in new namespaces": "call(56, 220, 0x10000000 | 17, 0, 0, 0, 0)",
    "process in a new pid namespace": "call(56, 220, 0x20000000 | 17, 0, 0, 0, 0)",
    "process by clone3": "call(435, 435, B(b'\\0' * 88), 88)",
    "new session": "os.setsid()",
    "kill another process": "os.kill(VICTIM, 9)",
    "limits of another process": "call(302, 261, VICTIM, 0, B(struct.pack('2Q', 1, 1)), 0)",
}
"""Attempts of a program that may start processes."""

OUTSIDE = (
    *("read the limits of another process", "own processors", "listen without bind", "datagram of a socket pair"),
    *("memory file to execute", "name a file by handle", "process by clone3", "new process group", "watch files"),
)
"""Attempts that are harmless and work without a sandbox. If they did not work, the others would prove nothing."""


def program(attempts: dict[str, str]) -> str:
    """Return a program that makes some attempts."""
    lines = [f"attempt({name!r}, lambda: {code})" for name, code in attempts.items()]
    buffers = "kept = []\ndef B(data):\n    kept.append(ctypes.create_string_buffer(data, len(data)))\n"
    return "\n".join((_PRELUDE, buffers + "    return ctypes.addressof(kept[-1])", *lines, "print('tried all')"))
