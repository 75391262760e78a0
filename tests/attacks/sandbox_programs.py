"""What a hostile program or python step tries. Each attack prints `ESCAPED`, or changes something outside, if it works.

`OUTSIDE` in a program is replaced by the path of a folder that it may not use, `PORT` by the port of a server on
loopback, `HOST_PID` by the process that runs the tests.
"""

from __future__ import annotations

from typing import NamedTuple

from reyn.sandbox import Access, ProgramLimits

FAST = ProgramLimits(seconds=60, memory_bytes=256_000_000)
ENDLESS = ProgramLimits(seconds=1.0, memory_bytes=256_000_000, output_bytes=10_000, processes=12)
FEW = ProgramLimits(seconds=30, memory_bytes=256_000_000, processes=12)
CHILDREN = Access(subprocesses=True)


class Attack(NamedTuple):
    """A program, what it may use, and whether it has to be ended because it does not end by itself."""

    name: str
    code: str
    limits: ProgramLimits = FAST
    access: Access = Access()
    is_endless: bool = False


def _reads(path: str) -> str:
    return f"print('ESCAPED', open({path!r}, 'rb').read(100))"


PROGRAMS = (
    Attack("read /etc/passwd", _reads("/etc/passwd")),
    Attack("read a file of the user", _reads("OUTSIDE/secret.txt")),
    Attack("list a folder of the user", "import os\nprint('ESCAPED', os.listdir('OUTSIDE'))"),
    Attack("write a file outside", "open('OUTSIDE/new.txt', 'w').write('ESCAPED')"),
    Attack("change a file outside", "open('OUTSIDE/secret.txt', 'a').write('ESCAPED')"),
    Attack("change the mode of a file outside", "import os\nos.chmod('OUTSIDE/secret.txt', 0o777)\nprint('ESCAPED')"),
    Attack("delete a file outside", "import os\nos.unlink('OUTSIDE/secret.txt')\nprint('ESCAPED')"),
    Attack("write to the system", "open('/usr/reyn-was-here', 'w')\nprint('ESCAPED')"),
    Attack("TCP", "import socket\nsocket.create_connection(('127.0.0.1', PORT), 5)\nprint('ESCAPED')"),
    Attack(
        "UDP",
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.sendto(b'x', ('127.0.0.1', PORT))\nprint('ESCAPED')",
    ),
    Attack(
        "Unix socket by path",
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('OUTSIDE/socket')\nprint('ESCAPED')",
    ),
    Attack(
        "abstract Unix socket",
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('\\0reyn-test-HOST_PID')\nprint('ESCAPED')",
    ),
    Attack("virtual socket of the machine", "import socket\nsocket.socket(socket.AF_VSOCK)\nprint('ESCAPED')"),
    Attack("raw socket", "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)\nprint('ESCAPED')"),
    Attack("start a process", "import os\nif os.fork() == 0: os._exit(0)\nprint('ESCAPED')"),
    Attack("start a program", "import subprocess\nsubprocess.run(['/bin/true'], check=True)\nprint('ESCAPED')"),
    # Bounded bombs: whatever fails to stop them, they start at most 1,000 processes. Under Landlock, other processes of
    # the same user that end meanwhile leave room for a few more than the limit.
    Attack(
        "many processes",
        "import os, time\nstarted = 0\nfor _ in range(1000):\n  try:\n"
        "    if os.fork() == 0: time.sleep(60), os._exit(0)\n    started += 1\n  except OSError: break\n"
        "print('bounded' if 5 < started < 40 else 'ESCAPED', started)",
        FEW,
        CHILDREN,
    ),
    Attack(
        "processes that all start others",
        "import os, select, time\nroot, (r, w) = os.getpid(), os.pipe()\n"
        "for _ in range(9):\n  try:\n    if os.fork() == 0: os.write(w, b'x')\n  except OSError: pass\n"
        "if os.getpid() != root: time.sleep(60), os._exit(0)\n"
        "n = 0\nwhile select.select([r], [], [], 0.5)[0]: n += len(os.read(r, 2000))\n"
        "print('ESCAPED' if n >= 40 else 'bounded', n)".replace("ROOT", "root").replace(
            "r, w =", "root = os.getpid()\nr, w ="
        ),
        FEW,
        CHILDREN,
    ),
    Attack(
        "many threads",
        "import threading\nthreading.stack_size(65536)\nended, started = threading.Event(), 0\n"
        "try:\n  for _ in range(500):\n    threading.Thread(target=ended.wait, daemon=True).start()\n    started += 1\n"
        "except RuntimeError: pass\nprint('ESCAPED' if started > 100 else 'bounded', started)",
    ),
    Attack(
        "system call of a 32-bit program (int 0x80)",
        "import ctypes, mmap, os\nassert os.uname().machine == 'x86_64'\n"
        "page = mmap.mmap(-1, 4096, prot=7)\npage.write(b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3')\n"
        "run = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))\n"
        "if run() > 0: print('ESCAPED')",
    ),
    Attack("2 GB at once", "x = bytearray(2 << 30)\nprint('ESCAPED')"),
    Attack("2 GB in parts", "x = []\nfor _ in range(200): x.append(bytearray(10 << 20))\nprint('ESCAPED')"),
    Attack("2 GB of mapped memory", "import mmap\nx = mmap.mmap(-1, 2 << 30)\nprint('ESCAPED')"),
    Attack(
        "2 GB in several processes",
        "import os, time\n"
        "for _ in range(10):\n  if os.fork() == 0: break\n"
        "x = bytearray(200 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\n"
        "while True: pass",
        ProgramLimits(seconds=10, memory_bytes=400_000_000, processes=64),
        CHILDREN,
        True,
    ),
    Attack(
        "2 GB of temporary files",
        "import os\nfor n in range(300):\n  with open(f\"{os.environ['TMPDIR']}/{n}\", 'wb') as f:\n"
        "    f.write(b'x' * 100_000_000)\nprint('ESCAPED')",
        ProgramLimits(seconds=60, file_bytes=20_000_000),
    ),
    Attack(
        "300 MB in the buffers of sockets",
        "import socket\nheld, pairs = 0, []\n"
        "while held < 300_000_000 and len(pairs) < 120:\n"
        "  pairs.append(socket.socketpair())\n"
        "  for one in pairs[-1]:\n"
        "    for option in (7, 8, 32, 33):\n"
        "      try: one.setsockopt(1, option, 1 << 24)\n"
        "      except OSError: pass\n"
        "    one.setblocking(False)\n"
        "    try:\n"
        "      while held < 300_000_000: held += one.send(b'x' * 32_768)\n"
        "    except BlockingIOError: pass\n"
        "if held > 128_000_000: print('ESCAPED')",
    ),
    Attack(
        "attributes of files, which are memory",
        "import os\npath = os.environ['TMPDIR'] + '/f'\nopen(path, 'w').close()\n"
        "for target in (path, os.open(path, os.O_RDWR)):\n"
        "  try: os.setxattr(target, 'user.a', b'x' * 1_000); print('ESCAPED')\n"
        "  except OSError: pass\n"
        "try: os.setxattr(path, 'user.a', b'x', follow_symlinks=False); print('ESCAPED')\nexcept OSError: pass",
    ),
    Attack(
        "read attributes of a file outside",
        "import os\nfor follow in (True, False):\n"
        "  try: print('ESCAPED', os.listxattr('OUTSIDE/secret.txt', follow_symlinks=follow))\n"
        "  except OSError: pass\n"
        "  try: os.getxattr('OUTSIDE/secret.txt', 'user.origin', follow_symlinks=follow)\n"
        "  except OSError as error:\n"
        "    if error.errno == 61: print('ESCAPED')\n",
    ),
    Attack(
        "a program with the rights of its owner",
        "import ctypes, os\nfolder = os.environ['TMPDIR']\n"
        "def opened(flags, mode, path): return os.open(path, os.O_RDWR | flags, mode)\n"
        "def changed(mode, path):\n  handle = opened(os.O_CREAT, 0o755, path); os.chmod(path, mode); return handle\n"
        "def changed_open(mode, path):\n"
        "  handle = opened(os.O_CREAT, 0o755, path); os.fchmod(handle, mode); return handle\n"
        "def how_open(mode, path):\n"
        "  how = (ctypes.c_uint64 * 3)(os.O_RDWR | os.O_CREAT, mode, 0)\n"
        "  return ctypes.CDLL(None).syscall(437, -100, path.encode(), how, 24)\n"
        "for mode in (0o4755, 0o2755, 0o6711):\n"
        "  for number, create in enumerate((\n"
        "      lambda path: opened(os.O_CREAT, mode, path), lambda path: opened(os.O_TMPFILE, mode, folder),\n"
        "      lambda path: changed(mode, path), lambda path: changed_open(mode, path),\n"
        "      lambda path: how_open(mode, path))):\n"
        "    try: handle = create(f'{folder}/{mode}-{number}')\n"
        "    except OSError: continue\n"
        "    if handle >= 0 and os.fstat(handle).st_mode & 0o6000: print('ESCAPED', oct(mode), number)\n",
    ),
    Attack(
        "files in memory",
        "import os\nfor n in range(4): os.write(os.memfd_create('x'), b'x' * 1_000)\nprint('ESCAPED')",
        access=Access(groups=("memory",)),
    ),
    Attack("endless loop", "while True: pass", ENDLESS, is_endless=True),
    Attack("endless output", "while True: print('x' * 1000)", ENDLESS, is_endless=True),
    Attack(
        "ignore every signal",
        "import signal\nfor n in range(1, 64):\n  try: signal.signal(n, signal.SIG_IGN)\n  except Exception: pass\n"
        "while True: pass",
        ENDLESS,
        is_endless=True,
    ),
    Attack(
        "leave the session with a double fork",
        "import os\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    while True: pass\nos._exit(0)",
        ENDLESS,
        CHILDREN,
    ),
    Attack(
        "own link to a file outside",
        "import os\nlink = os.environ['TMPDIR'] + '/link'\nos.symlink('OUTSIDE/secret.txt', link)\n"
        "print('ESCAPED', open(link).read())",
    ),
    Attack("environment of the init process", "data = open('/proc/1/environ').read()\nif data: print('ESCAPED', data)"),
    Attack("environment of Reyn", _reads("/proc/HOST_PID/environ")),
    Attack("root of the init process", _reads("/proc/1/root/etc/passwd")),
    Attack("working folder of Reyn", "import os\nprint('ESCAPED', os.listdir('/proc/HOST_PID/cwd/'))"),
    Attack("kernel settings", "open('/proc/sys/kernel/core_pattern', 'r+')\nprint('ESCAPED')"),
    Attack("kernel keys", "data = open('/proc/keys').read()\nif data: print('ESCAPED', data)"),
    Attack("signal Reyn", "import os\nos.kill(HOST_PID, 0)\nprint('ESCAPED')"),
    Attack(
        "environment",
        "import os\nassert not [n for n in os.environ if 'REYN' in n or 'SECRET' in n] or print('ESCAPED')",
    ),
)

HARMLESS = (
    *("read /etc/passwd", "read a file of the user", "TCP", "UDP", "Unix socket by path", "abstract Unix socket"),
    *("start a process", "own link to a file outside", "environment of Reyn", "signal Reyn", "2 GB of mapped memory"),
)
"""Attacks that work without a sandbox and do no harm there. If they did not work, the others would prove nothing."""


def _step(body: str, head: str = "") -> str:
    return f"{head}def attack(artifact):\n" + "".join(f"    {line}\n" for line in body.split("\n"))


STEPS = (
    Attack("read /etc/passwd", _step("return open('/etc/passwd').read()")),
    Attack("read by path", _step("return pathlib.Path('/etc/passwd').read_text()", "import pathlib\n")),
    Attack("read a file of the user", _step("return open('OUTSIDE/secret.txt').read()")),
    Attack("write a file outside", _step("open('OUTSIDE/new.txt', 'w').write('ESCAPED')\nreturn 'ESCAPED'")),
    Attack("list a folder of the user", _step("return os.listdir('OUTSIDE')", "import os\n")),
    Attack("TCP", _step("return socket.create_connection(('127.0.0.1', PORT))", "import socket\n")),
    Attack("start a process", _step("return os.fork()", "import os\n")),
    Attack("start a program", _step("return subprocess.run(['id'])", "import subprocess\n")),
    Attack("shell", _step("return os.system('id')", "import os\n")),
    Attack("2 GB at once", _step("x = 'x' * (2 << 30)\nreturn 'ESCAPED'")),
    Attack("2 GB in parts", _step("x = []\nfor n in range(400):\n    x.append([n] * 1_000_000)\nreturn 'ESCAPED'")),
    Attack("2 GB number", _step("x = 2 ** (8 << 31)\nreturn 'ESCAPED'")),
    Attack("endless loop", _step("while True:\n    pass"), ENDLESS, is_endless=True),
    Attack("endless output", _step("while True:\n    print('x' * 1000)"), ENDLESS, is_endless=True),
    Attack("endless recursion", _step("return attack(artifact)")),
    Attack("environment", _step("return dict(os.environ)", "import os\n")),
    Attack("environment variable", _step("return os.getenv('REYN_TEST_SECRET')", "import os\n")),
    Attack("classes of the interpreter", _step("return [str(x) for x in ().__class__.__subclasses__()]")),
    Attack("import by name", _step("return __import__('os').getcwd()")),
)
"""Attacks of python steps on Monty; a value other than `None` is an escape."""
