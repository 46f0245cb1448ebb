//! The command line; everything is in `cli`.

mod cli;

fn main() -> std::process::ExitCode {
    quiet_device_select();
    cli::main()
}

/// On Linux, Mesa's device-select layer asks Wayland which GPU the desktop uses, and complains on standard error where
/// there is no desktop. We choose by ourselves, so the layer is switched off there.
fn quiet_device_select() {
    if cfg!(target_os = "linux") && std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}
