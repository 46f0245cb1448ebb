//! Weight formats: how the weights of a tensor lie in its bytes, and their decoding on the CPU.
//! `shaders/formats/NAME.wgsl` decodes the same block on the GPU.
