//! An app that owns a wgpu device shares it with the engine: it hands the device over, computes something of its own
//! on it every few tokens (here a fractal, drawn as text at the end), and pulls tokens from the same queue.
//! It takes 40 tokens of an endless stream and drops it: that stops the model.
//!
//! `cargo run --release --example embed`

use peregrine::{GenerateOptions, Gpu, Model, Sampling, SessionOptions, block_on, builtin, wgpu};

/// The app's own shader: one step of z = z^2 + c for every pixel.
const FRACTAL: &str = "
@group(0) @binding(0) var<storage, read_write> pixels: array<vec4<f32>>; // (z, c) of 64 x 24 pixels

@compute @workgroup_size(64)
fn fractal(@builtin(global_invocation_id) id: vec3<u32>) {
    let p = pixels[id.x];
    let z = vec2<f32>(p.x * p.x - p.y * p.y + p.z, 2.0 * p.x * p.y + p.w);
    pixels[id.x] = vec4<f32>(select(p.xy, z, dot(p.xy, p.xy) < 4.0), p.zw);
}";
const WIDTH: u32 = 64;
const HEIGHT: u32 = 24;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The app's device. It asks for what the engine needs on top of what it needs itself.
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))?;
    let (required_features, required_limits) = Gpu::limits_for(&adapter);
    let (device, queue) = block_on(adapter.request_device(&wgpu::DeviceDescriptor {
        label: Some("the app's device"),
        required_features,
        required_limits,
        ..Default::default()
    }))?;
    let app = App::new(&device, &queue);

    let gpu = Gpu::from_device(&adapter, device, queue);
    let gguf = builtin::tales()?;
    let model = block_on(Model::load(&gpu, &gguf, |_, _| {}))?;
    let mut session = model.session(&SessionOptions::default())?;
    block_on(session.append(&[0, 1424, 325, 667, 259, 516]))?; // "Once upon a time"
    let sampling = Sampling { seed: Some(1), ..Sampling::default() };
    let tokens = session.generate(GenerateOptions { sampling, ..Default::default() })?;
    let mut ids = Vec::new();
    for id in tokens.take(40) {
        ids.push(id?);
        app.step(&gpu); // between two tokens the device is the app's
    }
    println!("{} tokens: {ids:?}", ids.len());
    app.draw(&gpu)?;
    Ok(())
}

struct App {
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
    pixels: wgpu::Buffer,
}

impl App {
    fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> App {
        let source = wgpu::ShaderSource::Wgsl(FRACTAL.into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: Some("fractal"), source });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some("fractal"),
            layout: None,
            module: &module,
            entry_point: Some("fractal"),
            compilation_options: Default::default(),
            cache: None,
        });
        let pixels = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("pixels"),
            size: (WIDTH * HEIGHT * 16) as u64,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let start: Vec<[f32; 4]> = (0..WIDTH * HEIGHT)
            .map(|i| {
                [
                    0.0,
                    0.0,
                    (i % WIDTH) as f32 * 3.2 / WIDTH as f32 - 2.2,
                    (i / WIDTH) as f32 * 2.4 / HEIGHT as f32 - 1.2,
                ]
            })
            .collect();
        queue.write_buffer(&pixels, 0, bytemuck::cast_slice(&start));
        let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("fractal"),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: pixels.as_entire_binding() }],
        });
        App { pipeline, bind_group, pixels }
    }

    fn step(&self, gpu: &Gpu) {
        let mut encoder = gpu.device().create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.bind_group, &[]);
        pass.dispatch_workgroups(WIDTH * HEIGHT / 64, 1, 1);
        drop(pass);
        gpu.queue().submit([encoder.finish()]);
    }

    fn draw(&self, gpu: &Gpu) -> Result<(), peregrine::Error> {
        let bytes = block_on(gpu.read(&self.pixels, 0, (WIDTH * HEIGHT * 16) as u64))?;
        let pixels: Vec<[f32; 4]> = bytemuck::pod_collect_to_vec(&bytes);
        for row in pixels.chunks(WIDTH as usize) {
            let line: String = row.iter().map(|p| if p[0] * p[0] + p[1] * p[1] < 4.0 { '#' } else { '.' }).collect();
            println!("{line}");
        }
        Ok(())
    }
}
