//! How a quantized tensor lies on the GPU: the file's bytes, rearranged without loss into two streams, so that a lane
//! fetches the quants of a block with one or two loads of 16 bytes. `shaders/formats/NAME.wgsl` reads what this writes.
//!
//! - **quants**: for each block of 32 weights 16 bytes, byte j holds weight j low and weight j + 16 high (Q8_0: 32 bytes).
//! - **scales**: what else the block has; each format's shader tells how it lies.
//!
//! Plain formats (F32, F16, BF16) have one stream, their rows padded with zeros to whole blocks.

use super::Format;

/// Bytes of a stream of so many weights, which are whole blocks.
pub fn stream_bytes(format: Format, weights: u64) -> (u64, u64) {
    let blocks = weights / 32;
    match format {
        Format::F32 => (weights * 4, 0),
        Format::F16 | Format::BF16 => (weights * 2, 0),
        Format::Q4_0 => (blocks * 16, blocks.div_ceil(2) * 4),
        Format::Q4_1 => (blocks * 16, blocks * 4),
        Format::Q5_0 => (blocks * 16, blocks.div_ceil(2) * 12),
        Format::Q5_1 => (blocks * 16, blocks * 8),
        Format::Q8_0 => (blocks * 32, blocks.div_ceil(2) * 4),
        Format::Q4_K => (blocks * 16, blocks / 8 * 16),
        Format::Q5_K => (blocks * 16, blocks / 8 * 48),
        Format::Q6_K => (blocks * 16, (blocks / 8).div_ceil(2) * 164),
    }
}

/// Blocks (of the file) that share words of the scales: pieces of a tensor are cut at multiples of it.
pub fn blocks_together(format: Format) -> usize {
    match format {
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 | Format::Q6_K => 2,
        _ => 1,
    }
}

/// Appends the file's blocks to the two streams. The number of blocks in a call must be a multiple of
/// [`blocks_together`], except at the tensor's end.
pub fn arrange(format: Format, blocks: &[u8], quants: &mut Vec<u8>, scales: &mut Vec<u8>) {
    let chunks = blocks.chunks_exact(format.block_bytes() * blocks_together(format));
    let rest = chunks.remainder();
    for together in chunks.chain(std::iter::once(rest).filter(|rest| !rest.is_empty())) {
        let blocks = together.chunks_exact(format.block_bytes());
        match format {
            Format::F32 | Format::F16 | Format::BF16 => quants.extend_from_slice(together),
            Format::Q4_0 | Format::Q8_0 => {
                blocks.clone().for_each(|b| quants.extend_from_slice(&b[2..]));
                blocks.for_each(|b| scales.extend_from_slice(&b[..2]));
            }
            Format::Q4_1 => blocks.for_each(|b| {
                quants.extend_from_slice(&b[4..]);
                scales.extend_from_slice(&b[..4]);
            }),
            Format::Q5_0 => {
                for b in blocks.clone() {
                    quants.extend_from_slice(&b[6..]);
                    scales.extend_from_slice(&spread_fifth(word(b, 2)).to_le_bytes());
                }
                scales.resize(scales.len() + 4 * (2 - blocks.len()), 0);
                blocks.for_each(|b| scales.extend_from_slice(&b[..2]));
            }
            Format::Q5_1 => blocks.for_each(|b| {
                quants.extend_from_slice(&b[8..]);
                scales.extend_from_slice(&b[..4]);
                scales.extend_from_slice(&spread_fifth(word(b, 4)).to_le_bytes());
            }),
            Format::Q4_K => blocks.for_each(|b| {
                (0..8).for_each(|s| quants.extend(nibbles(&b[16 + s / 2 * 32..], s % 2 == 1)));
                scales.extend_from_slice(&b[..16]);
            }),
            Format::Q5_K => blocks.for_each(|b| {
                (0..8).for_each(|s| quants.extend(nibbles(&b[48 + s / 2 * 32..], s % 2 == 1)));
                scales.extend_from_slice(&b[..16]);
                for s in 0..8 {
                    let fifth = (0..32).fold(0, |bits, l| bits | ((b[16 + l] >> s & 1) as u32) << l);
                    scales.extend_from_slice(&spread_fifth(fifth).to_le_bytes());
                }
            }),
            Format::Q6_K => {
                for b in blocks.clone() {
                    (0..8).for_each(|s| quants.extend(nibbles(&b[s / 4 * 64 + s % 2 * 32..], s % 4 >= 2)));
                    for s in 0..8 {
                        for half in [0, 16] {
                            let pairs = (0..16).fold(0, |bits, l| {
                                bits | (q6_pair(b, s, half + l) as u32) << (8 * (l % 4) + 2 * (l / 4))
                            });
                            scales.extend_from_slice(&pairs.to_le_bytes());
                        }
                    }
                    scales.extend_from_slice(&b[192..208]);
                }
                scales.resize(scales.len() + 80 * (2 - blocks.len()), 0);
                blocks.for_each(|b| scales.extend_from_slice(&b[208..]));
            }
        }
    }
    scales.resize(scales.len().next_multiple_of(4), 0);
}

/// The file's bytes again, of so many blocks of the file: the inverse of [`arrange`].
pub fn restore(format: Format, blocks: usize, quants: &[u8], scales: &[u8]) -> Vec<u8> {
    let together = blocks_together(format);
    let mut out = Vec::new();
    for i in 0..blocks {
        let (group, member) = (i / together, i % together);
        let q = |bytes: usize| &quants[i * bytes..(i + 1) * bytes];
        let nibble = |s: usize, l: usize| quants[(8 * i + s) * 16 + l % 16] >> (4 * (l / 16)) & 15;
        match format {
            Format::F32 | Format::F16 | Format::BF16 => out.extend_from_slice(q(format.block_bytes())),
            Format::Q4_0 | Format::Q8_0 => {
                out.extend_from_slice(&scales[2 * i..2 * i + 2]);
                out.extend_from_slice(q(format.block_bytes() - 2));
            }
            Format::Q4_1 => {
                out.extend_from_slice(&scales[4 * i..4 * i + 4]);
                out.extend_from_slice(q(16));
            }
            Format::Q5_0 => {
                let at = 12 * group;
                out.extend_from_slice(&scales[at + 8 + 2 * member..][..2]);
                out.extend_from_slice(&gather_fifth(word(scales, at + 4 * member)).to_le_bytes());
                out.extend_from_slice(q(16));
            }
            Format::Q5_1 => {
                out.extend_from_slice(&scales[8 * i..8 * i + 4]);
                out.extend_from_slice(&gather_fifth(word(scales, 8 * i + 4)).to_le_bytes());
                out.extend_from_slice(q(16));
            }
            Format::Q4_K => {
                out.extend_from_slice(&scales[16 * i..16 * (i + 1)]);
                out.extend((0..128).map(|j| {
                    let (s, l) = (j / 32 * 2, j % 32);
                    nibble(s, l) | nibble(s + 1, l) << 4
                }));
            }
            Format::Q5_K => {
                let at = 48 * i;
                let fifth: Vec<u32> = (0..8).map(|s| gather_fifth(word(scales, at + 16 + 4 * s))).collect();
                out.extend_from_slice(&scales[at..at + 16]);
                out.extend((0..32).map(|l| (0..8).fold(0, |byte, s| byte | ((fifth[s] >> l & 1) as u8) << s)));
                out.extend((0..128).map(|j| {
                    let (s, l) = (j / 32 * 2, j % 32);
                    nibble(s, l) | nibble(s + 1, l) << 4
                }));
            }
            Format::Q6_K => {
                let at = 164 * group + 80 * member;
                let pair = |s: usize, l: usize| {
                    let bits = word(scales, at + 8 * s + 4 * (l / 16));
                    (bits >> (8 * (l % 4) + 2 * (l % 16 / 4)) & 3) as u8
                };
                out.extend((0..128).map(|j| {
                    let (s, l) = (j / 64 * 4 + j % 64 / 32, j % 32);
                    nibble(s, l) | nibble(s + 2, l) << 4
                }));
                out.extend((0..64).map(|j| (0..4).fold(0, |byte, g| byte | pair(j / 32 * 4 + g, j % 32) << (2 * g))));
                out.extend_from_slice(&scales[at + 64..at + 80]);
                out.extend_from_slice(&scales[164 * group + 160 + 2 * member..][..2]);
            }
        }
    }
    out
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Bit w, of weight w, to bit w / 4 of byte w % 4: a shift then brings the bits of four weights to their bytes.
fn spread_fifth(bits: u32) -> u32 {
    (0..32).fold(0, |out, w| out | (bits >> w & 1) << (8 * (w % 4) + w / 4))
}

fn gather_fifth(bits: u32) -> u32 {
    (0..32).fold(0, |out, w| out | (bits >> (8 * (w % 4) + w / 4) & 1) << w)
}

/// One block's sixteen bytes from the 32 bytes whose low (or high) nibbles are its weights in order.
fn nibbles(bytes: &[u8], high: bool) -> [u8; 16] {
    let (first, second) = (&bytes[..16], &bytes[16..32]);
    match high {
        false => std::array::from_fn(|j| first[j] & 15 | second[j] << 4),
        true => std::array::from_fn(|j| first[j] >> 4 | second[j] & 0xf0),
    }
}

/// The upper two bits of weight l of block s of a Q6_K super-block.
fn q6_pair(b: &[u8], s: usize, l: usize) -> u8 {
    b[128 + s / 4 * 32 + l] >> (2 * (s % 4)) & 3
}
