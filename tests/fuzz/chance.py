"""The ways in which valid inputs are damaged. The same as in `crates/io/tests/fuzz/chance.rs`."""

from __future__ import annotations

import random

#: Numbers that sizes and offsets are fond of.
LIES = [0, 1, 0xFF, 0x7FFF, 0xFFFF, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1]


class Chance(random.Random):
    """The random numbers of one input, a pure function of seed and number."""

    def __init__(self, seed: int, number: int) -> None:
        super().__init__(seed << 64 | number)

    def one_in(self, n: int) -> bool:
        return self.randrange(n) == 0

    def damage(self, good: bytes, low: int = 0, high: int | None = None) -> bytes:
        """Flip, overwrite, splice, remove, or lie where a length may be, between two places; or cut."""
        data = bytearray(good)
        for _ in range(self.choice([1, 1, 1, 2, 3, 8])):
            end = min(high or len(data), len(data))
            if end <= low:
                break
            at = self.randrange(low, end)
            match self.randrange(10):
                case 0 | 1:
                    data[at] ^= 1 << self.randrange(8)
                case 2:
                    data[at] = self.randrange(256)
                case 3 | 4 | 5:
                    width = self.choice([1, 2, 4, 8])
                    lie = self.choice(LIES) & (256**width - 1)
                    data[at : at + width] = lie.to_bytes(width, self.choice(["little", "big"]))
                case 6:
                    start = self.randrange(low, end)
                    piece = data[start : start + self.randrange(1, 33)]
                    data[at : at + len(piece)] = piece
                case 7:
                    noise = [self.choice([0, 1, 0x7F, 0xFF, self.randrange(256)]) for _ in range(8)]
                    data[at : at + self.randrange(1, 9)] = bytes(noise)
                case 8 if self.one_in(2):
                    del data[at : at + self.randrange(1, 20)]
                case _ if self.one_in(4):
                    del data[at:]
        return bytes(data)
