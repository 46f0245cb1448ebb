// What a browser without WebGPU shows in place of the app: what to do, the visitor's own browser first.
import {$, el} from "./dom.js";

const code = text => el("code", {}, text);

const advice = {
    insecure: () => ["This address", [
        el("p", {}, "WebGPU is given only to pages from ", code("https://"), " addresses and from ", code("http://localhost"), " or ", code("http://127.0.0.1"), ". This page came another way. Open it with https, or serve it on your own machine."),
    ]],
    chrome: () => ["Chrome, Edge and other Chromium browsers", [
        el("p", {}, "On Windows, macOS and ChromeOS: version 113 or later; on Android 12 and later: version 121. Update the browser, then see whether ", code("chrome://gpu"), " says “WebGPU: Hardware accelerated”. If not, turn on “Use graphics acceleration when available” in the settings under System, and update the graphics driver."),
    ]],
    linux: () => ["Chrome and Chromium on Linux", [
        el("p", {}, "On Linux WebGPU is not on for every GPU yet. Open these two addresses in new tabs, set both to Enabled, and restart the browser:"),
        el("ul", {}, el("li", {}, code("chrome://flags/#enable-unsafe-webgpu")), el("li", {}, code("chrome://flags/#enable-vulkan"))),
        el("p", {}, "A Vulkan driver must be installed (on Debian and Ubuntu: ", code("mesa-vulkan-drivers"), ", or NVIDIA's own). Or start the browser with ", code("--enable-unsafe-webgpu --enable-features=Vulkan"), "."),
    ]],
    safari: () => ["Safari", [
        el("p", {}, "Safari 26 and later, on macOS, iOS, iPadOS and visionOS. With an older Safari, update the system; or turn it on by hand: on a Mac under Develop › Feature Flags › WebGPU, on an iPhone or iPad under Settings › Apps › Safari › Advanced › Feature Flags › WebGPU. On iPhones and iPads this holds for every browser, since all of them are Safari inside."),
    ]],
    firefox: () => ["Firefox", [
        el("p", {}, "On Windows: version 141 or later. On Macs with Apple silicon: version 145 or later. On Linux: Firefox Nightly. Elsewhere set ", code("dom.webgpu.enabled"), " to true in ", code("about:config"), "; it may not be finished there."),
    ]],
};

// Which browser this is, as far as it tells.
function detect() {
    const {userAgent} = navigator;
    if (/iPhone|iPad/.test(userAgent) || (/Macintosh/.test(userAgent) && navigator.maxTouchPoints > 1)) return "safari";
    if (/Firefox\//.test(userAgent)) return "firefox";
    if (/Chrom(e|ium)\//.test(userAgent)) return /Linux/.test(userAgent) && !/Android/.test(userAgent) ? "linux" : "chrome";
    return /Safari\//.test(userAgent) ? "safari" : "chrome";
}

/** @param {{reason?: string, advice?: string}} support */
export function showUnsupported({reason, advice: own}) {
    const first = isSecureContext ? detect() : "insecure";
    const others = Object.keys(advice).filter(name => name !== first && name !== "insecure");
    const [title, steps] = advice[first]();
    $("unsupported").replaceChildren(
        el("p", {class: "hero"}, "This browser gives the page no WebGPU."),
        el("p", {}, "Peregrine runs models on your own GPU through WebGPU, and that is missing here. Usually an update or one setting helps."),
        el("section", {class: "card first", id: `advice-${first}`}, el("h2", {}, title), ...steps),
        reason ? el("p", {class: "detail", id: "unsupported-reason"}, [reason, own].filter(Boolean).join(" ")) : null,
        el("h2", {}, "Other browsers"),
        ...others.map(name => {
            const [head, content] = advice[name]();
            return el("details", {class: "card", id: `advice-${name}`}, el("summary", {}, head), ...content);
        }),
        el("p", {}, el("button", {type: "button", class: "primary", id: "unsupported-again", onclick: () => location.reload()}, "Try again")),
    );
    $("unsupported").hidden = false;
}
