use peregrine::*;
fn main() -> Result<()> {
    env_logger::init();
    let path = std::env::args().nth(1).unwrap();
    let gguf = Gguf::open(&path)?;
    block_on(async {
        let gpu = Gpu::new().await?;
        println!("{}", gpu.card().name);
        let t = std::time::Instant::now();
        let model = Model::load(&gpu, &gguf, |_, _| {}).await?;
        println!("load {:?}", t.elapsed());
        let exact = std::env::args().any(|a| a == "--exact");
        let mut s = model.session(&SessionOptions { exact, context: Some(1024), ..Default::default() })?;
        println!("session {:?}", t.elapsed());
        if std::env::args().any(|a| a == "--plan") {
            println!("{}", s.plan());
        }
        s.append(&[504, 3575, 282, 4649, 314].map(|x| x % model.config().vocab_size)).await?;
        let l = s.logits().await?;
        println!("first {:?}", t.elapsed());
        let mut o: Vec<usize> = (0..l.len()).collect();
        o.sort_by(|a, b| l[*b].total_cmp(&l[*a]));
        for i in &o[..5] {
            println!("{i} {}", l[*i]);
        }
        let mut ids = vec![];
        for _ in 0..32 {
            let id = s.greedy().await?;
            ids.push(id);
            s.append(&[id]).await?;
        }
        println!("{ids:?}");
        let prompt: Vec<u32> = (0..128).map(|i| (i * 37) % model.config().vocab_size).collect();
        println!("bandwidth {:.2} GB/s", bench::read_bandwidth(&gpu).await? / 1e9);
        let sp = bench::speeds(&mut s, &prompt, 32, 3).await?;
        println!("prefill {:?} decode {:?}", sp.prefill, sp.decode);
        Ok(())
    })
}
