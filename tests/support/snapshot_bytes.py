"""Numbers and the seal of a snapshot's file, from the description in cprofiling/files/snapshot.h."""

from __future__ import annotations

import struct


def crc64(data: bytes) -> int:
    """CRC-64 as in .xz files, bit by bit."""
    crc = 2**64 - 1
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xC96C5795D7870F42 if crc & 1 else 0)
    return crc ^ (2**64 - 1)


def u128(value: int) -> bytes:
    return value.to_bytes(16, "little")


def sealed(body: bytes) -> bytes:
    return body + struct.pack("<Q", crc64(body))
