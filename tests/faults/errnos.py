# SPDX-License-Identifier: Apache-2.0
"""Which errors each system call is made to give: those that its manual page lists and that a host can cause. Calls that only
fail by a mistake of the caller's (close, munmap, lseek, ...) are left out, and so is a lack of memory for the process itself
(mmap, brk): it ends a program by design."""

import re

_DESCRIPTORS = ("EMFILE", "ENFILE")
_FILE = ("EACCES", "EROFS", "ENOSPC", "EIO", "ENOENT")

OF_CALL = {
    "socket": ("EMFILE", "ENFILE", "EAFNOSUPPORT", "EACCES", "ENOBUFS"), "socketpair": _DESCRIPTORS,
    "bind": ("EADDRINUSE", "EADDRNOTAVAIL", "EACCES"), "listen": ("EADDRINUSE",), "setsockopt": ("EPERM", "ENOPROTOOPT", "ENOBUFS"),
    "connect": ("ECONNREFUSED", "ENOENT", "EAGAIN", "EACCES", "ETIMEDOUT"), "accept4": ("EMFILE", "ENFILE", "EAGAIN", "ECONNABORTED", "ENOBUFS"),
    "sendto": ("ENOBUFS", "EAGAIN", "EPERM", "ENETUNREACH"), "sendmsg": ("ENOBUFS", "EAGAIN", "EPIPE", "EINTR"),
    "sendmmsg": ("ENOBUFS", "EAGAIN", "EPERM", "ENETUNREACH"), "recvfrom": ("ENOBUFS", "EAGAIN", "EINTR"),
    "recvmsg": ("ENOBUFS", "EAGAIN", "EINTR", "ECONNRESET"), "recvmmsg": ("EAGAIN", "EINTR", "ECONNREFUSED"),
    "openat": (*_DESCRIPTORS, *_FILE), "mkdir": _FILE, "mkdirat": _FILE, "unlink": ("EACCES", "EROFS", "EIO", "EBUSY"), "unlinkat": ("EACCES", "EROFS", "EIO"),
    "rename": _FILE, "renameat": _FILE, "rmdir": ("EBUSY", "EACCES", "EROFS"), "chmod": ("EPERM", "EROFS"), "fchmodat": ("EPERM", "EROFS"), "chown": ("EPERM",),
    "ftruncate": ("EIO", "ENOSPC"), "fallocate": ("ENOSPC", "EIO"), "fsync": ("EIO", "ENOSPC"), "fdatasync": ("EIO", "ENOSPC"),
    "read": ("EIO", "EINTR", "EAGAIN"), "pread64": ("EIO", "EINTR"), "getdents64": ("EIO",), "readlink": ("EACCES", "ENOENT"),
    "write": ("ENOSPC", "EIO", "EPIPE", "EAGAIN", "EINTR"), "pwrite64": ("ENOSPC", "EIO", "EINTR"), "writev": ("ENOSPC", "EPIPE", "EAGAIN"),
    "newfstatat": ("EACCES", "EIO"), "statx": ("EACCES", "EIO"), "flock": ("EINTR",),
    "epoll_create1": _DESCRIPTORS, "epoll_ctl": ("ENOSPC", "ENOMEM"), "epoll_wait": ("EINTR",), "epoll_pwait2": ("EINTR",), "poll": ("EINTR", "ENOMEM"),
    "eventfd2": _DESCRIPTORS, "timerfd_create": _DESCRIPTORS, "timerfd_settime": ("EINVAL",), "signalfd4": _DESCRIPTORS, "pipe2": _DESCRIPTORS,
    "inotify_init1": _DESCRIPTORS, "inotify_add_watch": ("ENOSPC",), "pidfd_open": _DESCRIPTORS, "dup": ("EMFILE",), "fcntl": ("EMFILE",),
    "bpf": (), "clone3": ("EAGAIN", "ENOMEM"), "clone": ("EAGAIN", "ENOMEM"), "vfork": ("EAGAIN",),
    "perf_event_open": ("EMFILE", "EPERM"), "ioctl": ("EPERM", "EBUSY", "ENODEV"),
    "mount": ("EPERM", "EBUSY"), "umount2": ("EBUSY", "EPERM"), "setns": ("EPERM",), "unshare": ("EPERM", "ENOSPC"), "prctl": ("EPERM",),
    "prlimit64": ("EPERM",), "sched_setattr": ("EPERM",), "getrandom": ("EINTR",),
}

# Of bpf(2) the command decides; looking up and updating an element of an array cannot fail.
_OF_BPF = {"BPF_PROG_LOAD": ("EPERM", "ENOMEM", "EACCES", "EMFILE"), "BPF_MAP_CREATE": ("EPERM", "ENOMEM", "EMFILE"), "BPF_OBJ_PIN": ("EEXIST", "EPERM", "ENOSPC"),
           "BPF_OBJ_GET": ("ENOENT", "EMFILE"), "BPF_LINK_CREATE": ("EBUSY", "ENOMEM", "EMFILE"), "BPF_BTF_LOAD": ("EPERM", "ENOMEM"),
           "BPF_PROG_ATTACH": ("EBUSY", "ENOMEM"), "BPF_RAW_TRACEPOINT_OPEN": ("EPERM", "EMFILE"), "BPF_LINK_UPDATE": ("ENOMEM",)}
# They pass by themselves.
ONLY_ONCE = {"EINTR", "ECONNABORTED", "ECONNRESET"}
# Reading and writing them fails only where that is no fault: empty, or full.
_EVENTS = re.compile(r"anon_inode:\[(eventfd|timerfd|signalfd)")


def of(call: str, arguments: str) -> tuple[str, ...]:
    if call == "bpf":
        return _OF_BPF.get(arguments.split(",", 1)[0], ())
    if call in ("read", "write") and _EVENTS.search(arguments):
        return ()
    # A file is never full for a while. The log is one here, and may be a pipe elsewhere.
    return tuple(errno for errno in OF_CALL[call] if not (errno == "EAGAIN" and arguments.startswith("</")))
