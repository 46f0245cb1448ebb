//! Pipelines that a browser compiles beside other work, several at a time. wgpu makes pipelines by the call that all later work
//! waits for; browsers keep what they have compiled, so that after this it finds them ready.

use super::Gpu;
use crate::error::Result;
use crate::kernel::{Binding, BindingKind, KernelKey, read_bindings, source};
use js_sys::{Array, Function, Object, Promise, Reflect};
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;

/// GPUShaderStage.COMPUTE
const COMPUTE: u32 = 4;

impl Gpu {
    /// Begins to compile; [`Gpu::compiled`] waits for it.
    pub(crate) fn compile_ahead(&self, keys: Vec<KernelKey>) -> Ahead {
        let promises = keys.iter().filter_map(|key| begin(self, key).ok()); // what cannot begin is told when it is used
        let all = Promise::all_settled(&promises.collect::<Array>());
        Ahead { keys, all }
    }

    /// Waits for what was begun and makes the kernels of it.
    pub(crate) async fn compiled(&self, ahead: Ahead) -> Result<()> {
        let kept = JsFuture::from(ahead.all).await; // the browser keeps them as long as we do
        ahead.keys.iter().try_for_each(|key| self.kernel(key).map(|_| ()))?;
        drop(kept);
        self.check()
    }
}

/// Pipelines on their way.
pub(crate) struct Ahead {
    keys: Vec<KernelKey>,
    all: Promise,
}

/// The calls of [`Kernel::compile`](crate::kernel::Kernel), but for the last, which does not make others wait.
fn begin(gpu: &Gpu, key: &KernelKey) -> std::result::Result<Promise, JsValue> {
    let wgsl = source(gpu, key);
    let device: &JsValue = gpu.device().as_webgpu().ok_or(JsValue::NULL)?.as_ref();
    let entries: Array =
        read_bindings(&wgsl).iter().map(|binding| entry(binding)).collect::<std::result::Result<_, _>>()?;
    let module = call(device, "createShaderModule", &object(&[("code", wgsl.into())])?)?;
    let layout = call(device, "createBindGroupLayout", &object(&[("entries", entries.into())])?)?;
    let layouts = object(&[("bindGroupLayouts", Array::of1(&layout).into())])?;
    let layout = call(device, "createPipelineLayout", &layouts)?;
    let constants: Vec<(&str, JsValue)> = key.constants.iter().map(|&(name, value)| (name, value.into())).collect();
    let stage = [("module", module), ("entryPoint", key.name().into()), ("constants", object(&constants)?)];
    let descriptor = object(&[("layout", layout), ("compute", object(&stage)?)])?;
    call(device, "createComputePipelineAsync", &descriptor)?.dyn_into()
}

fn entry(binding: &Binding) -> std::result::Result<JsValue, JsValue> {
    let kind = match binding.kind {
        BindingKind::Uniform => "uniform",
        BindingKind::Read => "read-only-storage",
        BindingKind::ReadWrite => "storage",
    };
    let buffer = object(&[("type", kind.into())])?;
    object(&[("binding", binding.index.into()), ("visibility", COMPUTE.into()), ("buffer", buffer)])
}

fn object(fields: &[(&str, JsValue)]) -> std::result::Result<JsValue, JsValue> {
    let object = Object::new();
    for (name, value) in fields {
        Reflect::set(&object, &(*name).into(), value)?;
    }
    Ok(object.into())
}

fn call(object: &JsValue, method: &str, argument: &JsValue) -> std::result::Result<JsValue, JsValue> {
    let method: Function = Reflect::get(object, &method.into())?.dyn_into()?;
    method.call1(object, argument)
}
