"""Read a pickle that holds plain data, and nothing else.

A pickle is a program: loading one from somewhere else with `pickle.load` runs whatever its author liked. A memory
snapshot needs none of that power. So this is an interpreter of its own for the few instructions that build dict,
list, tuple, str, int, float, bool, None, bytes and set; the instructions that import or call something are not
there, and a file that holds one is refused with the name of what it wanted.

Instructions and their arguments: `pickletools` and Lib/pickle.py of CPython. torch writes protocol 4
(torch/cuda/memory.py, `_dump_snapshot`) or 2 (torch/csrc/cuda/memory_snapshot.cpp).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

__all__ = ["SnapshotError", "plain"]

#: instructions in one file: a snapshot takes about 30 for an event, so this is some 600,000 events
MAX_STEPS = 20_000_000
#: keys of one dict, or members of one set, that are not str: their hashes are not random, so many could be made to clash
MAX_ODD_KEYS = 4096
_FLAT = (str, int, float, bool, type(None), bytes)
_MARK = object()


class SnapshotError(ValueError):
    """This is no memory snapshot that can be read; the message says why."""


def plain(data: bytes | memoryview) -> Any:
    """The object that a pickle of plain data describes. SnapshotError for anything else."""
    if bytes(data[:1]) != b"\x80":  # PROTO, with which every pickle of protocol 2 and later begins
        raise SnapshotError(
            "this is no pickle of a memory snapshot: take one with torch.cuda.memory._dump_snapshot(path)"
        )
    try:
        return _Machine(data).run()
    except (IndexError, struct.error):
        raise SnapshotError(
            "the pickle breaks off or is damaged: copy the file again, or take the snapshot anew"
        ) from None
    except KeyError:
        raise SnapshotError("the pickle is damaged: it names something that it never stored") from None
    except (TypeError, ValueError, OverflowError, UnicodeDecodeError) as error:
        if isinstance(error, SnapshotError):
            raise
        raise SnapshotError(f"the pickle is damaged: {error}") from None


class _Machine:
    """A stack, a memo, and one branch an instruction. `data` is the whole file."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.data, self.at = bytes(data), 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def take(self, count: int) -> bytes:
        part = self.data[self.at : self.at + count]
        if len(part) < count:
            raise IndexError
        self.at += count
        return part

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "little")

    def sized(self, count: int) -> bytes:
        """Bytes that begin with their own length, `count` bytes of it."""
        return self.take(self.number(count))

    def line(self) -> str:
        end = self.data.index(b"\n", self.at)
        text, self.at = self.data[self.at : end], end + 1
        return text.decode("utf-8", "replace")

    def marked(self) -> list[Any]:
        """What lies above the last mark, taken off the stack with it."""
        stack = self.stack
        for i in range(len(stack) - 1, -1, -1):
            if stack[i] is _MARK:
                items = stack[i + 1 :]
                del stack[i:]
                return items
        raise IndexError

    def run(self) -> Any:
        data, stack, memo, simple = self.data, self.stack, self.memo, _SIMPLE
        from_bytes = int.from_bytes
        for _ in range(MAX_STEPS):
            code = data[self.at]
            self.at += 1
            # The most frequent first: a snapshot is strings seen before, small numbers and dicts.
            if code == 0x68:  # BINGET
                stack.append(memo[data[self.at]])
                self.at += 1
            elif code == 0x94:  # MEMOIZE
                memo[len(memo)] = stack[-1]
            elif code == 0x6A:  # LONG_BINGET
                stack.append(memo[from_bytes(self.take(4), "little")])
            elif code == 0x4B:  # BININT1
                stack.append(data[self.at])
                self.at += 1
            elif code in simple:
                stack.append(simple[code](self))
            elif code == 0x28:  # MARK
                stack.append(_MARK)
            elif code == 0x75:  # SETITEMS
                items = self.marked()
                _into(stack[-1], items)
            elif code == 0x73:  # SETITEM
                value, key = stack.pop(), stack.pop()
                _into(stack[-1], [key, value])
            elif code == 0x65:  # APPENDS
                items = self.marked()
                _list(stack[-1]).extend(items)
            elif code == 0x61:  # APPEND
                item = stack.pop()
                _list(stack[-1]).append(item)
            elif code in (0x85, 0x86, 0x87):  # TUPLE1, TUPLE2, TUPLE3
                count = code - 0x84
                if len(stack) < count:
                    raise IndexError
                stack[-count:] = [tuple(stack[-count:])]
            elif code == 0x74:  # TUPLE
                items = self.marked()
                stack.append(tuple(items))
            elif code in (0x90, 0x91):  # ADDITEMS, FROZENSET
                items = self.marked()
                if len(items) > MAX_ODD_KEYS:
                    raise SnapshotError(f"a set of {len(items):,} members: a snapshot has none so large")
                members = {_key(item) for item in items}
                if code == 0x91:
                    stack.append(frozenset(members))
                elif type(stack[-1]) is set:
                    stack[-1].update(members)
                else:
                    raise TypeError("members for something that is no set")
            elif code in _PUTS:  # BINPUT, LONG_BINPUT: the memo is a dict, so a huge number costs nothing
                memo[self.number(_PUTS[code])] = stack[-1]
            elif code == 0x80:  # PROTO
                version = self.number(1)
                if not 2 <= version <= 5:
                    raise SnapshotError(f"pickle protocol {version}: torch writes 2 to 5")
            elif code == 0x95:  # FRAME: a hint for buffered readers
                self.take(8)
            elif code == 0x30:  # POP
                stack.pop()
            elif code == 0x32:  # DUP
                stack.append(stack[-1])
            elif code == 0x2E:  # STOP
                if len(stack) != 1 or stack[0] is _MARK:
                    raise ValueError("it ends with an unfinished object")
                return stack[0]
            else:
                self.refuse(code)
        raise SnapshotError(
            f"more than {MAX_STEPS:,} instructions: too large to read here; record with a smaller max_entries"
        )

    def refuse(self, code: int) -> None:
        """Say what this instruction would have imported, called or built."""
        wanted = ""
        if code in (0x63, 0x69):  # GLOBAL, INST: two lines
            wanted = f"{self.line()}.{self.line()}"
        elif code == 0x93 and len(self.stack) > 1:  # STACK_GLOBAL
            wanted = ".".join(str(part)[:80] for part in self.stack[-2:])
        if wanted:
            raise SnapshotError(
                f"refused: this pickle asks for {wanted[:160]}. A memory snapshot holds numbers, text, lists and "
                "dicts only; whatever asks for more could run its author's code on your machine. Nothing of it was run"
            )
        if code in _POWERS:
            raise SnapshotError(
                f"refused: this pickle holds the instruction {_POWERS[code]}, which calls or builds something other "
                "than plain data. Nothing of it was run"
            )
        raise SnapshotError(
            f"the pickle is damaged: no such instruction, {code:#04x}, at byte {self.at - 1:,}"
        )


def _key(value: Any) -> Any:
    """`value`, if it may be hashed: flat, so that no deep nesting is walked in C."""
    if type(value) in _FLAT or (type(value) is tuple and all(type(part) in _FLAT for part in value)):
        return value
    raise TypeError(f"a {type(value).__name__} as a key")


def _into(target: Any, items: list[Any]) -> None:
    if type(target) is not dict or len(items) % 2:
        raise TypeError("keys and values for something that is no dict")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if type(key) is not str and len(target) >= MAX_ODD_KEYS:
            raise SnapshotError(f"a dict of more than {MAX_ODD_KEYS:,} keys that are not text")
        target[_key(key)] = value


def _list(target: Any) -> list[Any]:
    if type(target) is not list:
        raise TypeError("items for something that is no list")
    return target


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


#: instructions that put one new plain object on the stack
_SIMPLE: dict[int, Callable[[_Machine], Any]] = {
    0x4D: lambda m: m.number(2),  # BININT2
    0x4A: lambda m: _signed(m.take(4)),  # BININT
    0x8A: lambda m: _signed(m.sized(1)),  # LONG1
    0x8B: lambda m: _signed(m.sized(4)),  # LONG4
    0x47: lambda m: struct.unpack(">d", m.take(8))[0],  # BINFLOAT
    0x8C: lambda m: str(m.sized(1), "utf-8", "surrogatepass"),  # SHORT_BINUNICODE
    0x58: lambda m: str(m.sized(4), "utf-8", "surrogatepass"),  # BINUNICODE
    0x8D: lambda m: str(m.sized(8), "utf-8", "surrogatepass"),  # BINUNICODE8
    0x43: lambda m: m.sized(1),  # SHORT_BINBYTES
    0x42: lambda m: m.sized(4),  # BINBYTES
    0x8E: lambda m: m.sized(8),  # BINBYTES8
    0x7D: lambda m: {},  # EMPTY_DICT
    0x5D: lambda m: [],  # EMPTY_LIST
    0x29: lambda m: (),  # EMPTY_TUPLE
    0x8F: lambda m: set(),  # EMPTY_SET
    0x4E: lambda m: None,  # NONE
    0x88: lambda m: True,  # NEWTRUE
    0x89: lambda m: False,  # NEWFALSE
}
_PUTS = {0x71: 1, 0x72: 4}
_POWERS = {
    0x52: "REDUCE", 0x62: "BUILD", 0x6F: "OBJ", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", 0x50: "PERSID",
    0x51: "BINPERSID", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 0x93: "STACK_GLOBAL", 0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER", 0x96: "BYTEARRAY8",
}  # fmt: skip
