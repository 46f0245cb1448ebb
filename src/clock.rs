//! Time that passes: the standard library has no clock in a browser.

/// Seconds since some moment before; only differences mean something.
#[cfg(not(target_arch = "wasm32"))]
pub fn seconds() -> f64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed().as_secs_f64()
}

/// Seconds since some moment before; only differences mean something.
#[cfg(target_arch = "wasm32")]
pub fn seconds() -> f64 {
    use wasm_bindgen::prelude::*;
    #[wasm_bindgen]
    extern "C" {
        #[wasm_bindgen(js_namespace = performance)]
        fn now() -> f64;
    }
    now() / 1e3
}

/// Lets the page's other work go on for a while.
#[cfg(target_arch = "wasm32")]
pub async fn pause(milliseconds: u32) {
    use wasm_bindgen::prelude::*;
    #[wasm_bindgen]
    extern "C" {
        #[wasm_bindgen(js_name = setTimeout)]
        fn set_timeout(done: &js_sys::Function, milliseconds: u32);
    }
    let mut begin = |resolve: js_sys::Function, _| set_timeout(&resolve, milliseconds);
    let _ = wasm_bindgen_futures::JsFuture::from(js_sys::Promise::new(&mut begin)).await; // it is never rejected
}
