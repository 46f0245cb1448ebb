//! Reading a header takes memory and time in proportion to its bytes, whatever it claims.

use peregrine::Gguf;
use peregrine::gguf::{Array, Strings, Value, Writer};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The system's allocator, and how much each thread holds.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends frees after its counters are gone.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most memory that `run` held at once, above what was held before.
fn peak(run: impl FnOnce()) -> usize {
    let before = LIVE.get();
    PEAK.set(before);
    run();
    (PEAK.get() - before) as usize
}

fn file(key: &str, value: impl Into<Value>) -> Vec<u8> {
    Writer::new().set(key, value).to_bytes().expect("a file that can be written")
}

/// `bytes` with the eight from `at` on replaced by a count.
fn claim(mut bytes: Vec<u8>, at: usize, number: u64) -> Vec<u8> {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[test]
fn memory_and_time_follow_the_size_of_the_file() {
    const SMALL: usize = 1 << 16;
    const N: usize = 100_000;
    let empty = || Strings::from_iter((0..N).map(|_| b""));
    let mut many_keys = Writer::new();
    let keys: Vec<String> = (0..3000).map(|i| format!("{i:x}")).collect();
    keys.iter().for_each(|key| {
        many_keys.set(key, true);
    });
    let mut many_tensors = Writer::new();
    let f32s = peregrine::gguf::TensorType::from_name("F32").unwrap();
    keys.iter().for_each(|key| {
        many_tensors.tensor(key, &[0], f32s, &[]);
    });
    let zeros = vec![0u8; 4 << 20];
    let plain = Writer::new().tensor("t", &[1 << 20], f32s, &zeros).to_bytes().unwrap();

    // Each with the bytes that may be held per byte of file, the copy of the file itself included. A list that grows
    // holds its old and its new place, and up to half of the new one is still empty.
    let cases = [
        ("numbers", 4, file("x", vec![7u32; N])),
        ("empty strings", 4, file("x", empty())),
        ("empty strings under a long key", 4, file(&"k".repeat(65535), empty())),
        ("empty arrays", 14, file("x", Array::Array(vec![Array::U8(Vec::new()); N]))),
        ("a long string", 3, file("x", "s".repeat(1 << 20))),
        ("many keys", 24, many_keys.to_bytes().unwrap()),
        ("many tensors", 20, many_tensors.to_bytes().unwrap()),
        // counts that the rest of the file could just hold, and does not
        ("claims tensors", 2, claim(plain.clone(), 8, (plain.len() as u64 - 64) / 33)),
        ("claims keys", 2, claim(plain.clone(), 16, (plain.len() as u64 - 24) / 14)),
        ("claims arrays", 3, claim(file("x", Array::Array(vec![Array::U8(vec![0; 1 << 20])])), 41, (1 << 20) / 12)),
    ];
    let mut wrong = Vec::new();
    for (name, most, bytes) in cases {
        let start = Instant::now();
        let held = peak(|| drop(Gguf::from_bytes(&bytes[..])));
        let (time, ratio) = (start.elapsed(), held as f64 / bytes.len() as f64);
        println!("{name}: {} bytes of file, {ratio:.1} held for each, {time:?}", bytes.len());
        if held > most * bytes.len() + SMALL || time > Duration::from_secs(2) {
            wrong.push(format!(
                "{name}: {held} bytes held for {} of file, {most} times that allowed, {time:?}",
                bytes.len()
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
