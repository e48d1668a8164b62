"""What no exercise asks of the kernel, refused inside the sandbox: a filter as seccomp(2) and bpf(4) have it.

    bwrap --seccomp FD …        # FD: a file that holds rules()

Each call below is answered with "not permitted". Three reasons are enough to be here: what it makes outlives its process,
and so its student; it reaches into another process; or no lesson needs it, and faults of the kernel were found behind it.
"""

import errno
import platform
import struct

#: name → its number on x86-64, and on 64-bit ARM: the kernel's syscall_64.tbl, and asm-generic/unistd.h
REFUSED = {
    # memory, queues and keys that stay until the sandbox ends
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # other processes: their memory, files and turns on the processor
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "ioprio_set": (251, 30),
    "sched_setattr": (314, 274),
    # the kernel's own machinery
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "unshare": (272, 97),
    "setns": (308, 268),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
}
#: machine → its column above, and what the kernel calls it (linux/audit.h)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
#: of struct seccomp_data: where the call's number stands, and the machine's
_NUMBER, _MACHINE = 0, 4
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
#: numbers from here on are x32's names for the same calls
_X32 = 0x40000000


def rules(machine: str = platform.machine()) -> bytes:
    """The filter, a struct sock_filter an instruction; b"" for a machine whose numbers are not known here."""
    if machine not in _MACHINES:
        return b""
    column, name = _MACHINES[machine]
    numbers = [(_EQUAL, each[column]) for each in REFUSED.values()]
    tests = [(_AT_LEAST, _X32), *numbers]
    # instructions from the first test to the one that allows; the one that refuses is behind it
    end = len(tests)
    program = [
        (_LOAD, 0, 0, _MACHINE),
        (
            _EQUAL,
            0,
            end + 2,
            name,
        ),  # a program for another machine, which the kernel would run too, may do nothing
        (_LOAD, 0, 0, _NUMBER),
        *((code, end - i, 0, number) for i, (code, number) in enumerate(tests)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
