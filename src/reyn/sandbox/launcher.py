"""The program that confines itself, then executes the requested one. The bare interpreter runs it inside the sandbox.

`launcher SPECIFICATION`: the descriptor of what to do, as `marshal` writes it. It sets limits, protects devices, gives
up the identity of root, applies Landlock rules if there are any, installs the system-call filter and executes the
program.
"""

import ctypes
import marshal
import os
import resource
import stat
import sys

assert sys.platform == "linux"
_PR_SET_NO_NEW_PRIVS, _PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _RAISE = 38, 8, 47, 2
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITIES_VERSION = 0x20080522
_DAC_OVERRIDE, _FOWNER = 1, 3
_OPENAT2, _CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 437, 444, 445, 446
_NO_SYMLINKS = 0x04
_READ_ONLY = 0x1 | 0x2 | 0x8 | 0x20 | 0x1000  # MS_RDONLY, MS_NOSUID, MS_NOEXEC, MS_REMOUNT, MS_BIND
_FILE_RIGHTS = 0xC007  # execute, write, read, truncate, device ioctls

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        wanted = marshal.load(file)  # noqa: S302 - written by the supervisor
    try:
        for kind, most in wanted["limits"]:
            resource.setrlimit(kind, (most, most))
        check("no_new_privs", libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        if wanted["devices"]:
            protect_devices(wanted["devices"])
        drop_privileges(wanted["user"])
        bound_tasks(wanted["tasks"])
        if wanted["landlock"] is not None:
            apply_landlock(*wanted["landlock"])
        os.chdir(wanted["cwd"])
        install_filter(wanted["filter"])
    except OSError as error:
        fail(126, f"sandbox: {error.filename or 'confinement'}: {error.strerror}")
    argv = wanted["argv"]
    try:
        os.execvpe(argv[0], argv, wanted["env"])  # noqa: S606 - the point of this program
    except OSError as error:
        fail(127, f"{argv[0]}: {error.strerror}")


def fail(code: int, message: str) -> None:
    os.write(2, f"{message}\n".encode("utf-8", "surrogateescape"))
    os._exit(code)


def check(name: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
    return result


def protect_devices(folder: str) -> None:
    """Make the devices in a folder read-only mounts: they are nodes of the host, whose mode and times root can change.

    Reading and writing a device needs no writable mount. `bwrap` could only remount them so that they do not open.
    """
    for name in os.listdir(folder):  # noqa: PTH208 - `pathlib` is slow to import
        path = f"{folder}/{name}"
        if stat.S_ISCHR(os.lstat(path).st_mode):
            check(path, libc.mount(None, os.fsencode(path), None, ctypes.c_ulong(_READ_ONLY), None))


def drop_privileges(user: int) -> None:
    """Give up all capabilities. Without new privileges, no program that is executed gets them back.

    Root becomes a user of its own, because the kernel does not bound the processes of root. The user keeps root's
    access to files, as far as the sandbox shows them.
    """
    kept = (_DAC_OVERRIDE, _FOWNER) if user else ()
    if user:
        os.setgroups([])
        check("capabilities", libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0))
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    bits = sum(1 << number for number in kept)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)(bits, bits, bits)
    check("capabilities", libc.syscall(_CAPSET[os.uname().machine], header, sets))
    for number in kept:
        check("capabilities", libc.prctl(_PR_CAP_AMBIENT, _RAISE, number, 0, 0))


def bound_tasks(most: int) -> None:
    """Let the kernel bound the processes and threads, and make sure that it does."""
    resource.setrlimit(resource.RLIMIT_NPROC, (0, most))
    if can_fork():
        raise OSError(0, "the kernel does not bound processes here", "processes")
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    if not can_fork():
        raise OSError(0, f"the user already has more than {most} processes and threads", "processes")


def can_fork() -> bool:
    try:
        child = os.fork()
    except OSError:
        return False
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return True


def apply_landlock(handled: tuple, rules: list) -> None:  # type: ignore[type-arg]  # no imports for types
    attributes = (ctypes.c_uint64 * 3)(*handled)
    ruleset = check("Landlock", libc.syscall(_CREATE_RULESET, attributes, ctypes.sizeof(attributes), 0))
    for path, rights in rules:
        folder = open_without_links(path)
        if not stat.S_ISDIR(os.fstat(folder).st_mode):
            rights &= _FILE_RIGHTS
        rule = (ctypes.c_uint32 * 3)(rights, 0, folder)  # `struct landlock_path_beneath_attr` is packed
        check("Landlock", libc.syscall(_ADD_RULE, ruleset, 1, rule, 0))
        os.close(folder)
    check("Landlock", libc.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def open_without_links(path: str) -> int:
    """Open a path by descriptor. It was resolved before it was allowed, so a link in it is new and is refused."""
    how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC, 0, _NO_SYMLINKS)
    return check(path, libc.syscall(_OPENAT2, -100, os.fsencode(path), how, ctypes.sizeof(how)))


def install_filter(program: bytes) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    filter_ = Program(len(program) // 8, program)
    check("system-call filter", libc.syscall(_SECCOMP[os.uname().machine], 1, 0, ctypes.byref(filter_)))


if __name__ == "__main__":
    main()
