//! Model: a GGUF file on a GPU, ready for sessions.

use super::config::Config;
use super::weights::Weights;
use crate::error::Result;
use crate::gguf::Gguf;
use crate::gpu::Gpu;
use crate::session::{Session, SessionOptions};
use std::sync::Arc;

/// A loaded model. Cloning is cheap and shares the weights; any number of sessions may use them.
#[derive(Clone)]
pub struct Model {
    pub(crate) inner: Arc<ModelInner>,
}

pub(crate) struct ModelInner {
    pub gpu: Gpu,
    pub config: Config,
    pub weights: Weights,
}

impl Model {
    /// Checks the file and sends its weights to the GPU, as they are. `progress(done, total)` counts bytes.
    ///
    /// # Errors
    /// Whatever is wrong with the file: kind, architecture, metadata, a missing or misshapen tensor; or a GPU limit.
    pub async fn load(gpu: &Gpu, gguf: &Gguf, mut progress: impl FnMut(u64, u64)) -> Result<Model> {
        let config = Config::from_gguf(gguf)?;
        let weights = Weights::upload(gpu, gguf, &config, &mut progress)?;
        gpu.wait()?; // an upload that failed is told here
        Ok(Model { inner: Arc::new(ModelInner { gpu: gpu.clone(), config, weights }) })
    }

    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    pub fn weights(&self) -> &Weights {
        &self.inner.weights
    }

    pub fn gpu(&self) -> &Gpu {
        &self.inner.gpu
    }

    /// A new sequence with a KV cache of its own.
    pub fn session(&self, options: &SessionOptions) -> Result<Session> {
        Session::new(self, options)
    }
}
