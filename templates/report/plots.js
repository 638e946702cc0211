/* plots.js: the roofline, traffic of links over time, and curves. */

/* The frame and the axes of a plot. Returns the svg and the scales. */
function makePlot({ label, x, y, width = 640, height = 340 }) {
    const left = 68;
    const bottom = height - 46;
    const svg = makeSvg("svg",
        { viewBox: `0 0 ${width} ${height}`, width, role: "img", "aria-label": label });
    const right = width - 34;
    const sx = makeScale(x.low, x.high, left, right, x.log);
    const sy = makeScale(y.low, y.high, bottom, 14, y.log);
    const ticks = (a, count) =>
        a.log ? logTicks(a.low, a.high, a.base) : roundTicks(a.low, a.high, count);
    for (const tick of ticks(x, 6)) {
        svg.append(makeSvg("line",
            { class: "grid", x1: sx(tick), x2: sx(tick), y1: 14, y2: bottom }));
        svg.append(makeSvg("text", { class: "axis", x: sx(tick), y: bottom + 17,
            "text-anchor": "middle" }, x.format(tick)));
    }
    for (const tick of ticks(y, 5)) {
        svg.append(makeSvg("line",
            { class: "grid", x1: left, x2: right, y1: sy(tick), y2: sy(tick) }));
        svg.append(makeSvg("text", { class: "axis", x: left - 8, y: sy(tick) + 4,
            "text-anchor": "end" }, y.format(tick)));
    }
    svg.append(makeSvg("rect",
        { class: "frame", x: left, y: 14, width: right - left, height: bottom - 14 }));
    svg.append(makeSvg("text", { class: "axis", x: (left + right) / 2, y: height - 8,
        "text-anchor": "middle" }, x.title));
    svg.append(makeSvg("text", { class: "axis", transform: `translate(14 ${(14 + bottom) / 2})` +
        " rotate(-90)", "text-anchor": "middle" }, y.title));
    return { svg, sx, sy };
}

function plotCurve(plot, points, colour, options = {}) {
    const d = points.map(([x, y], i) => `${i ? "L" : "M"}${plot.sx(x)} ${plot.sy(y)}`).join("");
    plot.svg.append(makeSvg("path", {
        d, fill: "none", stroke: colour, "stroke-width": 2,
        "stroke-dasharray": options.dashes,
    }));
    if (!options.describe) {
        return;
    }
    for (const point of points) {
        const dot = makeSvg("circle", { cx: plot.sx(point[0]), cy: plot.sy(point[1]), r: 4,
            fill: colour });
        addTip(dot, () => options.describe(point));
        plot.svg.append(dot);
    }
}

/* ---- Roofline ---- */

/* The kernels as points: FLOP per byte that their DMAs moved, and FLOP/s of a PE. */
function kernelPoints(data) {
    return data.activity.kernels.map(([title, runs, ns, flops, bytes]) => ({
        name: data.activity.texts[title], runs, ns, flops, bytes,
        intensity: bytes > 0 ? flops / bytes : null,
        gflops: ns > 0 ? flops / ns : 0,
    }));
}

function rooflineSection(data) {
    const roof = data.document.roofline;
    if (!roof) {
        return null;
    }
    const points = data.activity ? kernelPoints(data).filter((p) => p.intensity && p.gflops) : [];
    const peak = (roof.peak_tflops * 1000) / roof.pes;
    const gbs = roof.peak_gbs / roof.pes;
    const ridge = peak / gbs;
    const id = "roofline";
    const title = "Roofline";
    if (points.length === 0) {
        return makeSection(id, title, "", emptyNote(data.activity ?
            "No kernel used the matrix engines." :
            "Kernels are on the roofline in reports that are made with the run."));
    }
    const intensities = points.map((p) => p.intensity);
    const low = 10 ** Math.floor(Math.log10(Math.min(ridge, ...intensities) / 2));
    const high = 10 ** Math.ceil(Math.log10(Math.max(ridge, ...intensities) * 2));
    const least = Math.min(...points.map((p) => p.gflops), low * gbs);
    const plot = makePlot({
        label: "Roofline: FLOP/s of a PE over FLOP per byte",
        x: { low, high, log: true, title: "FLOP per byte moved by DMAs", format: formatNumber },
        y: { low: 10 ** Math.floor(Math.log10(least)), high: peak * 2, log: true,
            title: "GFLOP/s of a PE", format: formatNumber },
    });
    plotCurve(plot, [[low, Math.min(peak, low * gbs)], [ridge, peak], [high, peak]],
        "var(--quiet)");
    plot.svg.append(makeSvg("text", { class: "axis", x: plot.sx(high) - 6, y: plot.sy(peak) - 7,
        "text-anchor": "end" }, `matrix peak ${formatNumber(peak)} GFLOP/s`));
    const slope = Math.sqrt(low * ridge);
    plot.svg.append(makeSvg("text", { class: "axis", x: plot.sx(slope) + 10,
        y: plot.sy(slope * gbs) + 16 }, `own HBM slice ${formatRate(gbs)}`));
    points.sort((a, b) => b.ns - a.ns);
    points.slice(0, 40).forEach((p, i) => drawKernel(plot, p, i, peak, gbs));
    return makeSection(id, title,
        "Kernels by what they compute for each byte that they move, and how fast a PE of theirs " +
        "computes, mean over PEs. Above the line no kernel with operands in its own HBM slice " +
        "can be.",
        plot.svg,
        makeTable("Kernels on the roofline", [
            { title: "kernel", value: (p) => p.name,
                colour: (p) => `var(--series${1 + points.indexOf(p) % 6})` },
            { title: "FLOP/byte", value: (p) => p.intensity, text: formatNumber },
            { title: "GFLOP/s of a PE", value: (p) => p.gflops, text: formatNumber },
            { title: "of the roof", value: (p) => p.gflops / Math.min(peak, p.intensity * gbs),
                text: formatPercent, bar: true },
        ], points, { limit: 8 }));
}

function drawKernel(plot, point, i, peak, gbs) {
    const x = plot.sx(point.intensity);
    const y = plot.sy(point.gflops);
    const dot = makeSvg("circle", { cx: x, cy: y, r: 6, fill: `var(--series${1 + i % 6})`,
        stroke: "var(--card)", "stroke-width": 1.5 });
    addTip(dot, () => `${point.name}\n${formatNumber(point.intensity)} FLOP/byte, ` +
        `${formatNumber(point.gflops)} GFLOP/s of a PE\n` +
        `${formatPercent(point.gflops / Math.min(peak, point.intensity * gbs))} of the roof`);
    plot.svg.append(dot);
}

/* ---- Links over time ---- */

/* A strip: a column for each bin. */
function heatStrip(text, describe, label) {
    const svg = makeSvg("svg", { viewBox: `0 0 ${text.length} 10`, width: 360, height: 16,
        preserveAspectRatio: "none", role: "img", "aria-label": label });
    drawNowAndOnTheme(() => {
        svg.replaceChildren(...Array.from(text, (_, bin) => {
            const rect = makeSvg("rect", { x: bin, y: 0, width: 1.05, height: 10,
                fill: heatColour(shareAt(text, bin)) });
            addTip(rect, () => describe(bin));
            return rect;
        }));
    });
    return svg;
}

function trafficSection(data) {
    const { link_kinds: kinds } = data.document;
    if (!kinds || kinds.length === 0) {
        return null;
    }
    const strips = new Map();
    for (const kind of data.activity ? data.activity.kinds : []) {
        if (kind) {
            strips.set(`${kind.name} ${kind.gbs}`, kind);
        }
    }
    const nameOf = (k) => k.service ? k.between[0] : k.between.join(" - ");
    const stripOf = (k) => {
        const strip = strips.get(`${nameOf(k)} ${k.gbs}`);
        return strip ? heatStrip(strip.max, (bin) =>
            `${nameOf(k)}, ${formatTime(bin * data.activity.bin_ns)}\n` +
            `busiest link ${formatPercent(shareAt(strip.max, bin))}, ` +
            `mean ${formatPercent(shareAt(strip.mean, bin))}`,
        `Utilization of ${nameOf(k)} over the run`) : "";
    };
    const columns = [
        { title: "links", value: nameOf },
        { title: "GB/s each", value: (k) => k.gbs, text: formatNumber },
        { title: "carried", value: (k) => k.bytes, text: formatBytes },
        { title: "mean", value: (k) => k.mean_utilization, text: formatPercent },
        { title: "busiest", value: (k) => k.max_utilization, text: formatPercent, bar: true },
        { title: "packets waited", value: (k) => k.waited_ns, text: formatTime },
    ];
    if (strips.size > 0) {
        columns.push({ title: "busiest link over the run", value: stripOf });
    }
    return wide(makeSection("traffic", "Link traffic by kind",
        "Utilization of links that carried something. Each direction of a link counts on its own; " +
        "waiting times are sums over packets.",
        makeTable("Link traffic by kind", columns, kinds, { limit: 16 })));
}

/* ---- Collectives ---- */

/* Metrics such as busbw_65536, by size in bytes. */
function metricsBySize(metrics) {
    const sizes = new Map();
    for (const [name, value] of Object.entries(metrics || {})) {
        const match = /^(time|algbw|busbw|bound)_(\d+)$/.exec(name);
        if (match) {
            const size = Number(match[2]);
            sizes.set(size, { ...sizes.get(size), size, [match[1]]: value });
        }
    }
    return [...sizes.values()].filter((s) => s.time > 0 && s.busbw > 0)
        .sort((a, b) => a.size - b.size);
}

function collectiveSection(data) {
    const rows = metricsBySize(data.document.metrics);
    if (rows.length === 0) {
        return null;
    }
    for (const row of rows) {
        row.limit = row.bound > 0 ? (row.busbw * row.time) / row.bound : null;
    }
    const table = makeTable("Bandwidth by size", [
        { title: "size", value: (r) => r.size, text: formatBytes },
        { title: "time", value: (r) => r.time * 1000, text: formatTime },
        { title: "algorithm bandwidth", value: (r) => r.algbw, text: formatRate },
        { title: "bus bandwidth", value: (r) => r.busbw, text: formatRate, bar: true },
        { title: "of the bound", value: (r) => r.limit ? r.busbw / r.limit : null,
            text: formatPercent },
    ], rows, { limit: 24 });
    const note = "Bus bandwidth over the size of a rank's data. The bound is what no algorithm " +
        "could exceed on this machine.";
    if (rows.length < 2) {
        return wide(makeSection("collective", "Bandwidth by size", note, table));
    }
    const limits = rows.filter((r) => r.limit);
    const values = [...rows.map((r) => r.busbw), ...limits.map((r) => r.limit)];
    const plot = makePlot({
        label: "Bus bandwidth over size", width: 860,
        x: { low: rows[0].size, high: rows[rows.length - 1].size, log: true, base: 2,
            title: "size", format: formatBytes },
        y: { low: Math.min(...values) / 1.5, high: Math.max(...values) * 1.5, log: true,
            title: "bus bandwidth, GB/s", format: formatNumber },
    });
    plotCurve(plot, limits.map((r) => [r.size, r.limit]), "var(--quiet)", { dashes: "6 4" });
    plotCurve(plot, rows.map((r) => [r.size, r.busbw]), "var(--series1)", {
        describe: ([size, busbw]) => `${formatBytes(size)}: ${formatRate(busbw)}`,
    });
    return wide(makeSection("collective", "Bandwidth by size", note, plot.svg,
        make("ul", { class: "legend" }, legendItem("var(--series1)", "bus bandwidth"),
            limits.length > 0 ? legendItem("var(--quiet)", "bound (dashed)") : null), table));
}
