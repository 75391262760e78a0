"""A program that runs another one and ends every descendant of it, also those that have left its session.

It is executed as a script with the bare interpreter: `reaper.py CONTROL PROGRAM ARGUMENT…`. CONTROL is a descriptor;
when its other end closes, or the program ends, all descendants are killed. SIGTERM is passed on to the program. The
exit code is that of the program, or 128 plus the number of the signal that ended it.
"""

import ctypes
import os
import select
import signal
import sys
from contextlib import suppress

assert sys.platform == "linux"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> None:
    control, argv = int(sys.argv[1]), sys.argv[2:]
    # Orphans become children of this process instead of the system's init.
    prctl, parent = ctypes.CDLL(None, use_errno=True).prctl, os.getpid()
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child == 0:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)  # if this process is killed, the program is, too
        if os.getppid() != parent:
            os._exit(127)
        os.close(control)
        os.setsid()
        try:
            os.execvp(argv[0], argv)  # noqa: S606 - the point of this program
        except OSError as error:
            os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
            os._exit(127)
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    signal.signal(signal.SIGTERM, lambda *_: terminate(child))
    ended = os.pidfd_open(child)
    events = select.poll()  # unlike `select`, it takes descriptors above 1,023
    for descriptor in (control, ended):
        events.register(descriptor, select.POLLIN)  # the end of a pipe is reported, too
    events.poll()
    code = kill_all(child)
    os._exit(code)


def terminate(child: int) -> None:
    """Ask the program and its process group to end."""
    try:
        os.killpg(child, signal.SIGTERM)
    except OSError:
        os.kill(child, signal.SIGTERM)


def kill_all(child: int) -> int:
    """Kill all descendants until none is left, and return the exit code of the child."""
    code = 128 + signal.SIGKILL
    # At once: a process that forks cannot be faster, unless it has left the group, which a sandbox does not allow.
    # A child that has not begun its session yet has no group; the list of children may lack it at that moment.
    for kill in (os.killpg, os.kill):
        with suppress(OSError):
            kill(child, signal.SIGKILL)
    while True:
        for pid in processes_below(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return code
        if pid == child:
            exit_code = os.waitstatus_to_exitcode(status)
            code = exit_code if exit_code >= 0 else 128 - exit_code


def processes_below(pid: int) -> list[int]:
    """Return the descendants of a process, children first."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:  # noqa: PTH123 - the bare interpreter
            children = [int(word) for word in file.read().split()]
    except OSError:
        return []
    return children + [descendant for child in children for descendant in processes_below(child)]


if __name__ == "__main__":
    main()
