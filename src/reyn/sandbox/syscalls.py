"""The numbers of the system calls that a sandboxed program may use, for x86-64 and arm64.

What is not here is denied. The groups follow from traces of CPython, shells, the usual tools, compilers, Git, Node and
Java; `filters` decides which groups a program gets, and checks the arguments of the calls in `CHECKED`.
"""

from __future__ import annotations

Numbers = dict[str, tuple[int | None, int | None]]
"""The numbers of a call on x86-64 and on arm64; `None` where the architecture does not have it."""


def _table(text: str) -> Numbers:
    rows = (row.split() for row in text.split(";"))
    return {name: (_number(x86), _number(arm)) for name, x86, arm in rows}


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


FILES = _table(
    "read 0 63; write 1 64; readv 19 65; writev 20 66; pread64 17 67; pwrite64 18 68; preadv 295 69; pwritev 296 "
    "70; preadv2 327 286; pwritev2 328 287; close 3 57; "
    "close_range 436 436; stat 4 -; fstat 5 80; lstat 6 -; newfstatat 262 79; statx 332 291; statfs 137 43; "
    "fstatfs 138 44; access 21 -; faccessat 269 48; faccessat2 439 439; readlink 89 -; readlinkat 267 78; "
    "getdents 78 -; getdents64 217 61; lseek 8 62; dup 32 23; dup2 33 -; dup3 292 24; pipe 22 -; pipe2 293 59; "
    "flock 73 32; fsync 74 82; fdatasync 75 83; truncate 76 45; ftruncate 77 46; fallocate 285 47; fadvise64 221 "
    "223; readahead 187 213; rename 82 -; renameat 264 38; renameat2 316 276; mkdir 83 -; mkdirat 258 34; rmdir "
    "84 -; unlink 87 -; unlinkat 263 35; link 86 -; linkat 265 37; symlink 88 -; symlinkat 266 36; chdir 80 49; "
    "fchdir 81 50; getcwd 79 17; umask 95 166; copy_file_range 326 285; sendfile 40 71; fgetxattr 193 10; "
    "flistxattr 196 13 "
)
"""Files and pipes; Landlock or the mounts decide which."""

WAITING = _table(
    "poll 7 -; ppoll 271 73; select 23 -; pselect6 270 72; epoll_create 213 -; epoll_create1 291 20; epoll_ctl "
    "233 21; epoll_wait 232 -; epoll_pwait 281 22; epoll_pwait2 441 441; eventfd 284 -; eventfd2 290 19; "
    "timerfd_create 283 85; timerfd_settime 286 86; timerfd_gettime 287 87; signalfd 282 -; signalfd4 289 74; "
    "nanosleep 35 101; clock_nanosleep 230 115; clock_gettime 228 113; clock_getres 229 114; gettimeofday 96 169; "
    "time 201 -; alarm 37 -; setitimer 38 103; getitimer 36 102; timer_create 222 107; timer_settime 223 110; "
    "timer_gettime 224 108; timer_delete 226 111; timer_getoverrun 225 109; pause 34 -; restart_syscall 219 128 "
)
"""Time and events."""

PROCESS = _table(
    "mmap 9 222; munmap 11 215; mprotect 10 226; mremap 25 216; madvise 28 233; brk 12 214; msync 26 227; execve "
    "59 221; exit 60 93; exit_group 231 94; wait4 61 260; waitid 247 95; futex 202 98; set_tid_address 218 96; "
    "set_robust_list 273 99; rseq 334 293; sched_yield 24 124; sched_getaffinity 204 123; sched_getparam 143 121; "
    "sched_getscheduler 145 120; sched_get_priority_max 146 125; sched_get_priority_min 147 126; getcpu 309 168; "
    "getpid 39 172; getppid 110 173; gettid 186 178; getuid 102 174; geteuid 107 175; getgid 104 176; getegid 108 "
    "177; getgroups 115 158; getresuid 118 148; getresgid 120 150; getpgrp 111 -; getpgid 121 155; getsid 124 "
    "156; getpriority 140 141; getrlimit 97 163; setrlimit 160 164; getrusage 98 165; times 100 153; capget 125 "
    "90; uname 63 160; sysinfo 99 179; getrandom 318 278; kill 62 129; tgkill 234 131; tkill 200 130; "
    "rt_sigaction 13 134; rt_sigprocmask 14 135; rt_sigreturn 15 139; rt_sigpending 127 136; rt_sigtimedwait 128 "
    "137; rt_sigsuspend 130 133; sigaltstack 131 132 "
)
"""Memory, signals, the process itself."""

STREAMS = _table(
    "recvfrom 45 207; recvmsg 47 212; recvmmsg 299 243; shutdown 48 210; getsockname 51 204; getpeername 52 205; "
    "getsockopt 55 209 "
)
"""A connected stream."""

CHECKED = _table(
    "clone 56 220; clone3 435 435; fork 57 -; vfork 58 -; fcntl 72 25; ioctl 16 29; prctl 157 167; arch_prctl 158 "
    "-; prlimit64 302 261; socket 41 198; socketpair 53 199; connect 42 203; setsockopt 54 208; sendto 44 206; "
    "sendmsg 46 211; sendmmsg 307 269; setxattr 188 5; lsetxattr 189 6; fsetxattr 190 7; open 2 -; openat 257 56; "
    "openat2 437 437; creat 85 - "
)
"""By their arguments, in `filters`."""

METADATA = _table(
    "chmod 90 -; fchmod 91 52; fchmodat 268 53; fchmodat2 452 452; chown 92 -; lchown 94 -; fchown 93 55; "
    "fchownat 260 54; utime 132 -; utimes 235 -; futimesat 261 -; utimensat 280 88; "
    "getxattr 191 8; lgetxattr 192 9; listxattr 194 11; llistxattr 195 12 "
)
"""Modes, owners, times and extended attributes of files, by their paths."""

LISTEN = _table("bind 49 200; listen 50 201; accept 43 202; accept4 288 242 ")
"""Sockets that others connect to."""

SCHEDULING = _table(
    "sched_setaffinity 203 122; sched_setscheduler 144 119; sched_setparam 142 118; sched_setattr 314 274; "
    "setpriority 141 140 "
)
"""Priorities and processors."""

MEMORY = _table(
    "mlock 149 228; mlock2 325 284; munlock 150 229; mlockall 151 230; munlockall 152 231; "
    "mincore 27 232; membarrier 324 283; pkey_alloc 330 289; pkey_free 331 290; pkey_mprotect 329 288; mbind 237 "
    "235; get_mempolicy 239 236; set_mempolicy 238 237 "
)
"""Locked and protected memory. A file in memory (`memfd_create`) is not here: no limit counts it."""

WATCH = _table("inotify_init 253 -; inotify_init1 294 26; inotify_add_watch 254 27; inotify_rm_watch 255 28 ")
"""Changes of files."""

ALL = FILES | WAITING | PROCESS | STREAMS | CHECKED | METADATA | LISTEN | SCHEDULING | MEMORY | WATCH
