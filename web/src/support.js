// Whether a browser can run models, and what its visitor can do if not.

/**
 * @typedef {object} Support
 * @property {boolean} webgpu
 * @property {string} [reason] what is missing
 * @property {string} [advice] what to do about it
 * @property {{vendor: string, architecture: string, description: string, software: boolean, f16: boolean, subgroups: boolean, maxBufferSize: number, maxBindingSize: number}} [adapter]
 */

/** @returns {Promise<Support>} */
export async function support() {
    if (!globalThis.isSecureContext) {
        return {webgpu: false, reason: "WebGPU needs a secure page", advice: "Open this page by https, or from localhost."};
    }
    if (!navigator.gpu) {
        return {webgpu: false, reason: "This browser has no WebGPU, or it is switched off", advice: advice()};
    }
    const adapter = await navigator.gpu.requestAdapter({powerPreference: "high-performance"}).catch(() => null);
    if (!adapter) {
        return {webgpu: false, reason: "The browser knows WebGPU but gives no GPU", advice: advice()};
    }
    const {info, features, limits} = adapter;
    return {
        webgpu: true,
        adapter: {
            vendor: info.vendor,
            architecture: info.architecture,
            description: info.description,
            software: info.isFallbackAdapter ?? false,
            f16: features.has("shader-f16"),
            subgroups: features.has("subgroups"),
            maxBufferSize: limits.maxBufferSize,
            maxBindingSize: limits.maxStorageBufferBindingSize,
        },
    };
}

/** For the browser at hand. */
function advice() {
    const agent = navigator.userAgent;
    if (/Firefox\//.test(agent)) {
        return "Firefox has WebGPU on Windows since version 141 and on Macs with Apple silicon since 145; elsewhere take Firefox Nightly, or Chrome.";
    }
    if (/Chrome\/|Edg\//.test(agent)) {
        return /Linux/.test(agent) && !/Android/.test(agent)
            ? "Update the browser and the GPU's driver; on Linux open chrome://flags, switch on #enable-unsafe-webgpu and #enable-vulkan, and start the browser again."
            : "Update the browser and the GPU's driver, and see in chrome://gpu whether WebGPU is switched on.";
    }
    if (/Safari\//.test(agent)) {
        return "Safari has WebGPU since version 26: update macOS, iOS or iPadOS.";
    }
    return "Take a current Chrome, Edge or Safari 26.";
}
