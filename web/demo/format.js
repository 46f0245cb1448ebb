// Numbers as people read them.

const grouped = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", {maximumSignificantDigits: 3});

/** 4096 -> "4,096" */
export const count = n => grouped.format(n);

/** 134515008 -> "135 million" */
export function parameters(n) {
    if (n >= 1e9) return `${short.format(n / 1e9)} billion`;
    return n >= 1e6 ? `${short.format(n / 1e6)} million` : count(n);
}

/** A file's size, in the units of download pages: 2998656 -> "3 MB" */
export function bytes(n) {
    const [unit, size] = n >= 1e9 ? ["GB", 1e9] : n >= 1e6 ? ["MB", 1e6] : n >= 1e3 ? ["kB", 1e3] : ["bytes", 1];
    return `${short.format(n / size)} ${unit}`;
}

/** Memory, in the units of GPUs' limits: 134217728 -> "128 MiB" */
export const mib = n => `${n < 10 * 2 ** 20 ? short.format(n / 2 ** 20) : count(Math.round(n / 2 ** 20))} MiB`;

/** A time to come: 95 -> "1 min 35 s" */
export function time(seconds) {
    if (!Number.isFinite(seconds)) return "–";
    const s = Math.max(0, Math.round(seconds));
    if (s < 60) return `${s} s`;
    return s < 3600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
}

/** A time that was measured: 0.0834 -> "83 ms" */
export const took = seconds => seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${short.format(seconds)} s`;

/** 42.137 -> "42.1" */
export const decimals = (n, digits = 1) => Number.isFinite(n) ? n.toFixed(digits) : "–";
