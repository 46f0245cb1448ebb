//! Config: the numbers of a model, from GGUF metadata.
pub struct Config {
    pub block_count: u32,
    pub embedding_length: u32,
    pub vocab_size: u32,
    pub context_length: u32,
    pub heads: Vec<u32>,
    pub kv_heads: Vec<u32>,
    pub feed_forward: Vec<u32>,
    pub head_size: u32,
    pub rms_eps: f32,
}
impl Config {
    pub fn from_gguf(_g: &crate::Gguf) -> crate::Result<Config> {
        panic!()
    }
    pub fn q_length(&self, b: usize) -> u32 {
        self.heads[b] * self.head_size
    }
    pub fn kv_length(&self, b: usize) -> u32 {
        self.kv_heads[b] * self.head_size
    }
}
