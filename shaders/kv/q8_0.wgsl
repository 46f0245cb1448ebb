// The KV cache in signed bytes with a scale (f32) for each block of 32 channels: nine words a block.

alias Kv4 = u32; // four neighbouring channels of one key or value, or a scale

fn kv_word(i: u32) -> u32 {
    return (i >> 3u) * 9u + (i & 7u);
}

fn kv_scale_word(i: u32) -> u32 {
    return (i >> 3u) * 9u + 8u;
}
