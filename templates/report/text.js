/* text.js: numbers as text, with their units. */
"use strict";

/* Four significant digits, and all digits of whole numbers. */
function formatNumber(value) {
    if (value === null || value === undefined) {
        return "";
    }
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e15)) {
        return value.toExponential(2);
    }
    const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
    return value.toLocaleString("en-US", { maximumFractionDigits: digits });
}

/* The unit in which the largest of the values has one to three digits before the point. */
function formatScaled(value, base, units) {
    let scaled = value;
    let unit = 0;
    while (Math.abs(scaled) >= base && unit < units.length - 1) {
        scaled /= base;
        unit++;
    }
    return formatNumber(scaled) + " " + units[unit];
}

function formatTime(ns) {
    if (ns !== 0 && Math.abs(ns) < 1) {
        return formatNumber(ns * 1000) + " ps";
    }
    return formatScaled(ns, 1000, ["ns", "\u00b5s", "ms", "s"]);
}

function formatBytes(bytes) {
    return formatScaled(bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
}

function formatRate(gbs) {
    return formatScaled(gbs, 1000, ["GB/s", "TB/s", "PB/s"]);
}

function formatFlops(flops) {
    return formatScaled(flops, 1000, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"]);
}

/* A share of the whole that is too small for its digits says so. */
function formatPercent(share) {
    if (share > 0 && share < 0.0005) {
        return "< 0.1 %";
    }
    return (100 * share).toFixed(1) + " %";
}

/* "sip0.cube0.xbar>pe0.pe_dma" for "sip0.cube0.xbar>sip0.cube0.pe0.pe_dma". */
function shortLink(name) {
    const [from, to] = name.split(">");
    if (to === undefined) {
        return name;
    }
    const a = from.split(".");
    const b = to.split(".");
    let same = 0;
    while (same < a.length - 1 && same < b.length - 1 && a[same] === b[same]) {
        same++;
    }
    return `${from}>${b.slice(same).join(".")}`;
}

function plural(count, noun) {
    return formatNumber(count) + " " + noun + (count === 1 ? "" : "s");
}
