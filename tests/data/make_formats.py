#!/usr/bin/env python3
"""Makes formats.json: random blocks of every weight format and what the `gguf` package decodes them to.

    pip install gguf numpy && python3 tests/data/make_formats.py

Every bit pattern of the quants may occur. The scales are halves of all sizes and both signs, subnormal ones among them;
only infinities and NaN are left out. Bytes and f32 results are stored in hexadecimal, so the comparison is to the bit.
"""
import json, os
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize

BLOCKS = 8
# format: (bytes a block, offsets of its halves)
FORMATS = {
    "F32": (4, []), "F16": (2, []), "BF16": (2, []),
    "Q4_0": (18, [0]), "Q4_1": (20, [0, 2]), "Q5_0": (22, [0]), "Q5_1": (24, [0, 2]), "Q8_0": (34, [0]),
    "Q4_K": (144, [0, 2]), "Q5_K": (176, [0, 2]), "Q6_K": (210, [208]),
}
SCALES = [0x0001, 0x83FF, 0x0400, 0x3C00, 0xB266, 0x7BFF, 0x0000, 0x8000]  # subnormal, small, 1, negative, largest, zeros

random = np.random.default_rng(20261201)
out = {}
for name, (size, halves) in FORMATS.items():
    n = BLOCKS if size > 4 else 64
    data = random.integers(0, 256, (n, size), dtype=np.uint8)
    for i, block in enumerate(data):
        for j, at in enumerate(halves):
            block[at:at + 2] = np.frombuffer(np.uint16(SCALES[(i + 3 * j) % len(SCALES)]).tobytes(), np.uint8)
        if name in ("F32", "F16", "BF16"):  # no exponent of all ones; every fourth is subnormal
            block[-1] &= 0x80 if i % 4 == 0 else 0xBF
            block[-2] &= 0x7F if i % 4 == 0 else 0xFF
    values = dequantize(data.reshape(n, -1), T[name]).astype(np.float32)
    out[name] = {"bytes": data.tobytes().hex(), "f32": values.astype("<f4").tobytes().hex()}
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "formats.json")
with open(path, "w") as file:
    json.dump(out, file, indent=1)
    file.write("\n")
