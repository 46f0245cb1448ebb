//! Session: one sequence of tokens on a model. It owns the KV cache and the plans; `append` runs tokens through the
//! model, the logits stay on the GPU until they are asked for.

mod chain;

pub(crate) use chain::DEPTH;

use crate::error::{Error, Result};
use crate::kernels::attention::check_head_size;
use crate::kernels::rms_norm::Rows;
use crate::kernels::rope_kv::{Angles, KvCache};
use crate::kernels::{KvFormat, few_tokens};
use crate::model::forward::{Keys, Pass, forward};
use crate::model::state::{Activations, kv_caches};
use crate::model::{Model, Rope};
use crate::plan::{Frame, Plan, PlanBuilder, Step};
use crate::taps::{Readout, Tapped, Taps, extend};
use crate::tensor::Tensor;
use chain::Chain;

/// The context when none is asked for, if the model was trained for more: long caches take much memory.
pub const DEFAULT_CONTEXT: u32 = 4096;
/// Tokens of one pass when the logits of every one are wanted.
const ALL_LOGITS_CHUNK: u32 = 16;

#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// Positions that the KV cache holds. None: the trained length, at most [`DEFAULT_CONTEXT`]. 0: the trained length.
    pub context: Option<u32>,
    /// Element type of the KV cache; `exact` overrides it.
    pub kv: KvFormat,
    /// Compute and cache in f32 throughout.
    pub exact: bool,
    /// Tokens of one prefill pass; None lets the device's profile choose.
    pub chunk: Option<u32>,
}

pub struct Session {
    model: Model,
    context: u32,
    exact: bool,
    /// All tokens so far; as many as there are positions in use.
    tokens: Vec<u32>,
    caches: Vec<KvCache>,
    angles: Angles,
    /// One token a pass.
    decode: Stage,
    /// A chunk of tokens a pass, logits of the last.
    prefill: Stage,
    /// The same for fewer tokens, whose kernels suit them ([`few_tokens`]); built when first used.
    few: Vec<Stage>,
    /// A chunk of tokens a pass, logits of all; built when first asked for.
    all: Option<Stage>,
    chain: Chain,
    /// Where the logits of one position come back through, [V]: sampling on the CPU reads them for every token.
    logits_staging: wgpu::Buffer,
    /// Which stage holds the logits of the last position.
    last: Option<Last>,
    /// Passes of a chain over positions behind the last: where they are, `decode` holds other logits.
    ahead: u32,
    taps: Taps,
    /// What they gave for the tokens appended last.
    tapped: Vec<Tapped>,
}

/// A plan and the activations it works on.
struct Stage {
    plan: Plan,
    activations: Activations,
    /// With taps.
    readout: Option<Readout>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Decode,
    Prefill,
}

impl Session {
    pub(crate) fn new(model: &Model, options: &SessionOptions) -> Result<Session> {
        let (gpu, config) = (model.gpu(), model.config());
        check_head_size(config.head_size)?;
        let context = match options.context {
            None => config.context_length.min(DEFAULT_CONTEXT),
            Some(0) => config.context_length,
            Some(context) => context,
        };
        let chunk = options.chunk.unwrap_or(gpu.profile().chunk).clamp(1, context);
        let kv = if options.exact { KvFormat::F32 } else { options.kv };
        if kv == KvFormat::Q8_0 && !config.head_size.is_multiple_of(32) {
            return Err(Error::Unsupported {
                what: format!("a KV cache of q8_0 with heads of {}", config.head_size),
                hint: "Its blocks have 32 channels of one head: take f16".into(),
            });
        }
        let caches = kv_caches(gpu, config, context, kv)?;
        let rope = Rope::new(&config.rope, model.weights().rope_freqs.as_deref())?;
        let angles = Angles::upload(gpu, &rope, context)?;
        let exact = options.exact;
        let vocab = config.vocab_size;
        let stage = |name, tokens| {
            let logits = Tensor::new(gpu, "logits", 1, vocab)?;
            Stage::new(model, &angles, &caches, context, name, tokens, logits, exact, &Taps::default())
        };
        let decode = stage("decode", 1)?;
        let prefill = stage("prefill", chunk)?;
        let chain = Chain::new(model, context, &decode, &prefill)?;
        let logits_staging = gpu.staging("logits read back", decode.activations.logits.stride() as u64 * 4);
        #[cfg(not(target_arch = "wasm32"))]
        if !gpu.is_outline() {
            gpu.save_pipelines();
        }
        let model = model.clone();
        Ok(Session {
            model,
            context,
            exact,
            tokens: Vec::new(),
            caches,
            angles,
            decode,
            prefill,
            few: Vec::new(),
            all: None,
            chain,
            logits_staging,
            last: None,
            ahead: 0,
            taps: Taps::default(),
            tapped: Vec::new(),
        })
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    /// How many tokens the sequence has so far.
    pub fn position(&self) -> u32 {
        self.tokens.len() as u32
    }

    /// The tokens of the sequence so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The most tokens that the sequence can hold.
    pub fn context(&self) -> u32 {
        self.context
    }

    /// The plan of one decoded token.
    pub fn plan(&self) -> &Plan {
        &self.decode.plan
    }

    /// The plan of a chunk of the prompt.
    pub fn prefill_plan(&self) -> &Plan {
        &self.prefill.plan
    }

    /// The plan of the choice of a token, which follows every decoded one.
    pub fn sample_plan(&self) -> &Plan {
        &self.chain.decode
    }

    /// Reads the activations that match the pattern out of every later append ("blk.*.resid_post", "logits"; see
    /// [`Taps::add`]), beside those tapped before. The plans are built anew; the tokens so far stay.
    ///
    /// # Errors
    /// [`Error::Argument`] for a pattern that nothing matches, [`Error::Limit`] where the device has no room.
    pub fn tap(&mut self, pattern: &str) -> Result<()> {
        let mut taps = self.taps.clone();
        taps.add(self.model.config(), pattern)?;
        self.rebuild(taps)
    }

    /// Takes all taps off: the plans are again what they were before the first.
    ///
    /// # Errors
    /// Those of the device.
    pub fn untap(&mut self) -> Result<()> {
        self.rebuild(Taps::default())
    }

    /// What the taps gave for the tokens of the last [`Session::append`] or [`Session::append_all`], in the order of a
    /// pass: [T, C], of the logits [1, V] (the last token's) after the one, [T, V] after the other. Empty without taps,
    /// and after anything else that runs tokens: a generation is not read.
    pub fn tapped(&self) -> &[Tapped] {
        &self.tapped
    }

    /// Builds the plans with other taps, over the same caches and into the same logits.
    fn rebuild(&mut self, taps: Taps) -> Result<()> {
        let stage = |name, old: &Stage| {
            let (tokens, logits) = (old.plan.max_tokens, old.activations.logits.clone());
            let (model, angles, caches) = (&self.model, &self.angles, &self.caches);
            Stage::new(model, angles, caches, self.context, name, tokens, logits, self.exact, &taps)
        };
        let (decode, prefill) = (stage("decode", &self.decode)?, stage("prefill", &self.prefill)?);
        self.chain = Chain::new(&self.model, self.context, &decode, &prefill)?;
        (self.decode, self.prefill, self.few, self.all) = (decode, prefill, Vec::new(), None);
        (self.taps, self.tapped) = (taps, Vec::new());
        Ok(())
    }

    /// Forgets all tokens from `position` on; later tokens overwrite them.
    pub fn truncate(&mut self, position: u32) {
        if position < self.position() {
            self.tokens.truncate(position as usize);
            self.last = None;
        }
    }

    /// Keeps what the sequence shares with `tokens` from the start, forgets the rest, and gives the tokens that are
    /// left to append: at least the last one, whose logits are wanted.
    pub fn reuse<'a>(&mut self, tokens: &'a [u32]) -> &'a [u32] {
        let shared = self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let keep = shared.min(tokens.len().saturating_sub(1));
        self.truncate(keep as u32);
        &tokens[keep..]
    }

    /// Runs tokens through the model, after those before. The work is submitted, not awaited, unless there are taps.
    ///
    /// # Errors
    /// [`Error::Argument`] without tokens or for an id outside the vocabulary, [`Error::ContextFull`] if they do not
    /// fit; the session is then as it was.
    pub async fn append(&mut self, tokens: &[u32]) -> Result<()> {
        self.check(tokens)?;
        let chunk = self.prefill.plan.max_tokens as usize;
        self.prepare(tokens.len() % chunk)?;
        self.tapped.clear();
        let end = self.position() + tokens.len() as u32;
        for tokens in tokens.chunks(chunk) {
            let frame = Frame { position: self.position(), tokens: tokens.len() as u32 };
            let few = self.few.iter().find(|few| few.plan.max_tokens >= frame.tokens);
            let (stage, last) = match tokens.len() {
                1 => (&self.decode, Last::Decode),
                _ => (few.unwrap_or(&self.prefill), Last::Prefill),
            };
            stage.submit(&self.model, tokens, frame);
            let logits = frame.position + frame.tokens == end; // of the last token alone
            extend(&mut self.tapped, stage.read(&self.model, frame.tokens, logits).await?);
            self.ran(tokens, last);
        }
        self.model.gpu().check()
    }

    /// Builds the stage for a pass of so many tokens, if they are few and it is not there.
    fn prepare(&mut self, tokens: usize) -> Result<()> {
        let chunk = self.prefill.plan.max_tokens;
        let fits = |width: &&u32| **width >= tokens as u32 && **width < chunk;
        let width = few_tokens(self.model.gpu()).iter().find(fits).copied();
        let Some(width) = width.filter(|_| tokens > 1) else { return Ok(()) };
        if !self.few.iter().any(|few| few.plan.max_tokens == width) {
            let logits = self.prefill.activations.logits.clone(); // so whoever chooses a token finds them in one place
            let (model, angles, caches) = (&self.model, &self.angles, &self.caches);
            let stage = Stage::new(model, angles, caches, self.context, "few", width, logits, self.exact, &self.taps)?;
            self.few.push(stage);
            self.few.sort_by_key(|few| few.plan.max_tokens);
        }
        Ok(())
    }

    /// The logits of the last position, [V].
    pub async fn logits(&self) -> Result<Vec<f32>> {
        let stage = match self.with_logits()? {
            Last::Decode => &self.decode,
            Last::Prefill => &self.prefill,
        };
        let gpu = self.model.gpu();
        let size = self.logits_staging.size();
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(&stage.activations.logits.buffer, 0, &self.logits_staging, 0, size);
        gpu.queue().submit([encoder.finish()]);
        let mut logits: Vec<f32> = bytemuck::pod_collect_to_vec(&gpu.map(&self.logits_staging, size).await?);
        logits.truncate(self.model.config().vocab_size as usize);
        Ok(logits)
    }

    /// Runs tokens through the model and gives the logits of every one: [T, V].
    /// `each(position, logits)` is called in order, so that no more than one pass's logits are held.
    pub async fn append_all(&mut self, tokens: &[u32], mut each: impl FnMut(u32, &[f32])) -> Result<()> {
        self.check(tokens)?;
        if self.all.is_none() {
            let chunk = ALL_LOGITS_CHUNK.min(self.context);
            let logits = Tensor::new(self.model.gpu(), "logits", chunk, self.model.config().vocab_size)?;
            self.all = Some(Stage::new(
                &self.model,
                &self.angles,
                &self.caches,
                self.context,
                "all logits",
                chunk,
                logits,
                self.exact,
                &self.taps,
            )?);
        }
        let Some(stage) = &self.all else { return Ok(()) };
        self.tapped.clear();
        for tokens in tokens.chunks(stage.plan.max_tokens as usize) {
            let frame = Frame { position: self.position(), tokens: tokens.len() as u32 };
            stage.submit(&self.model, tokens, frame);
            let logits = stage.activations.logits.read(self.model.gpu(), frame.tokens).await?;
            for (i, row) in logits.chunks(self.model.config().vocab_size as usize).enumerate() {
                each(frame.position + i as u32, row);
            }
            extend(&mut self.tapped, stage.read(&self.model, frame.tokens, true).await?);
            self.tokens.extend_from_slice(tokens);
        }
        self.last = None;
        self.model.gpu().check()
    }

    /// Runs one pass over `tokens` step by step and reads back what each step wrote; for finding faults.
    pub async fn capture(&mut self, tokens: &[u32], each: impl FnMut(&Step, Vec<f32>)) -> Result<()> {
        self.check(tokens)?;
        let stage = if tokens.len() == 1 { &self.decode } else { &self.prefill };
        if tokens.len() > stage.plan.max_tokens as usize {
            let expected = format!("at most {} tokens, one pass", stage.plan.max_tokens);
            return Err(Error::Argument { what: "tokens to capture".into(), expected, got: tokens.len().to_string() });
        }
        self.model.gpu().queue().write_buffer(&stage.activations.ids, 0, bytemuck::cast_slice(tokens));
        let frame = Frame { position: self.position(), tokens: tokens.len() as u32 };
        stage.plan.capture(frame, each).await?;
        self.tapped.clear();
        self.ran(tokens, if tokens.len() == 1 { Last::Decode } else { Last::Prefill });
        Ok(())
    }

    fn ran(&mut self, tokens: &[u32], last: Last) {
        self.tokens.extend_from_slice(tokens);
        (self.last, self.ahead) = (Some(last), 0);
    }

    /// The stage that holds the logits of the last position. If a chain has run ahead over them, that position's pass
    /// runs once more.
    fn with_logits(&self) -> Result<Last> {
        let last = self.last.ok_or_else(|| Error::Argument {
            what: "logits".into(),
            expected: "tokens appended before".into(),
            got: format!("none since position {}", self.position()),
        })?;
        if let (Last::Decode, 1.., Some((token, before))) = (last, self.ahead, self.tokens.split_last()) {
            let frame = Frame { position: before.len() as u32, tokens: 1 };
            self.decode.submit(&self.model, &[*token], frame);
        }
        Ok(last)
    }

    /// Tokens of a prefill pass.
    pub fn chunk(&self) -> usize {
        self.prefill.plan.max_tokens as usize
    }

    pub(crate) fn check(&self, tokens: &[u32]) -> Result<()> {
        let vocab = self.model.config().vocab_size;
        if tokens.is_empty() {
            return Err(Error::Argument { what: "tokens".into(), expected: "one or more".into(), got: "none".into() });
        }
        if let Some(id) = tokens.iter().find(|&&id| id >= vocab) {
            let expected = format!("below the vocabulary's {vocab}");
            return Err(Error::Argument { what: "token id".into(), expected, got: id.to_string() });
        }
        if tokens.len() as u64 > (self.context - self.position()) as u64 {
            return Err(Error::ContextFull {
                context: self.context,
                position: self.position(),
                tokens: tokens.len() as u32,
                hint: "Choose a larger context, or shorten the prompt".into(),
            });
        }
        Ok(())
    }
}

impl Stage {
    #[allow(clippy::too_many_arguments)]
    fn new(
        model: &Model,
        angles: &Angles,
        caches: &[KvCache],
        context: u32,
        name: &'static str,
        tokens: u32,
        logits: Tensor,
        exact: bool,
        taps: &Taps,
    ) -> Result<Stage> {
        let gpu = model.gpu();
        let adapters = model.adapters();
        // bytes gain nothing where weights are used often; adapters want floats, taps read floats
        let floats = adapters.is_some() || taps.reach_blocks();
        let int8 = gpu.profile().int8 && !exact && tokens == 1 && !floats;
        let rows = if tokens > 1 && logits.rows == tokens { Rows::All } else { Rows::Last };
        let (config, w) = (model.config(), model.weights());
        let mut activations = Activations::new(gpu, config, w, adapters, tokens, context, logits, int8)?;
        activations.tap(gpu, taps)?;
        let mut plan = PlanBuilder::new(gpu, tokens);
        plan.exact = exact;
        let pass = Pass { config, w, adapters, angles, keys: Keys::Cached(caches), a: &activations, drops: false };
        forward(&mut plan, &pass, rows)?;
        let readout = Readout::new(gpu, taps.list(), &activations, tokens)?;
        Ok(Stage { plan: plan.finish(name)?, activations, readout })
    }

    /// What the taps hold after a pass; nothing without taps.
    async fn read(&self, model: &Model, tokens: u32, logits: bool) -> Result<Vec<Tapped>> {
        match &self.readout {
            Some(readout) => readout.read(model.gpu(), tokens, logits).await,
            None => Ok(Vec::new()),
        }
    }

    fn submit(&self, model: &Model, tokens: &[u32], frame: Frame) {
        let gpu = model.gpu();
        gpu.queue().write_buffer(&self.activations.ids, 0, bytemuck::cast_slice(tokens));
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        self.plan.record(&mut encoder, frame);
        gpu.queue().submit([encoder.finish()]);
    }
}
