/* measured.js: reports of other commands than run: probe, traffic and sweep. */

const COLOURS = 6;
const DASHES = [null, "7 4", "2 3"];
const DASH_NAMES = ["", " (dashed)", " (dotted)"];

/* The colour and the dashes of the i-th curve of a plot. */
function seriesColour(i) {
    return `var(--series${1 + (i % COLOURS)})`;
}

function seriesDash(i) {
    return Math.floor(i / COLOURS) % DASHES.length;
}

/* ---- Traffic ---- */

function trafficHeadline(data) {
    const t = data.document;
    const name = t.pattern[0].toUpperCase() + t.pattern.slice(1);
    const verdict = `${name} traffic, level ${t.level}: ` +
        `${formatPercent(t.offered)} of the PEs' bandwidth is offered and ` +
        `${formatPercent(t.accepted)} is accepted. ` + (t.saturated ?
        "The fabric is saturated: transfers queue longer and longer." :
        "The fabric is not saturated.");
    const latency = (ns) => ns === null ? "not steady" : formatTime(ns);
    return [verdict, [
        ["offered", `${formatNumber(t.offered_gbs_per_pe)} GB/s per PE`],
        ["accepted", `${formatNumber(t.accepted_gbs_per_pe)} GB/s per PE`],
        ["mean latency", latency(t.mean_ns)], ["median", latency(t.p50_ns)],
        ["99th percentile", latency(t.p99_ns)], ["maximum", latency(t.max_ns)],
        ["transfers", formatNumber(t.measured)],
    ]];
}

function trafficLinksSection(data) {
    return makeSection("links", "Busiest links", "Each direction of a link counts on its own.",
        makeTable("Busiest links", [
            { title: "link", value: (l) => shortLink(l.link) },
            { title: "carried", value: (l) => l.bytes, text: formatBytes },
            { title: "busy", value: (l) => l.utilization, text: formatPercent, bar: true },
            { title: "packets waited", value: (l) => l.waited_ns, text: formatTime },
        ], data.document.busiest_links));
}

function trafficKindsSection(data) {
    const kinds = data.document.links_by_kind.filter((k) => k.max_utilization > 0);
    return makeSection("kinds", "Links by kind", "Means are over all links of the kind.",
        makeTable("Links by kind", [
            { title: "links", value: (k) => k.service ? k.between[0] : k.between.join(" - ") },
            { title: "GB/s each", value: (k) => k.gbs, text: formatNumber },
            { title: "mean", value: (k) => k.mean_utilization, text: formatPercent },
            { title: "busiest", value: (k) => k.max_utilization, text: formatPercent, bar: true },
            { title: "packets waited", value: (k) => k.waited_ns, text: formatTime },
        ], kinds, { limit: 16 }));
}

/* ---- Probe ---- */

function probeHeadline(data) {
    const { cases } = data.document;
    const loaded = cases.some((c) => c.load);
    return [loaded ? "Latency under load: many transfers at random times." :
        "Single transfers on an idle machine.",
    [["cases", formatNumber(cases.length)],
        ["size", cases.length > 0 ? formatBytes(cases[0].nbytes) : ""]]];
}

/* Latency over offered load, one curve for each case. */
function loadSection(data) {
    const cases = data.document.cases.filter((c) => c.load);
    if (cases.length === 0) {
        return null;
    }
    const rows = cases.flatMap((c, i) => c.load.map((l) => ({ ...l, name: c.name, i })));
    const values = rows.map((r) => r.mean_ns);
    const plot = makePlot({
        label: "Mean latency over offered load", width: 860, height: 420,
        x: { low: 0, high: Math.max(...rows.map((r) => r.offered)), title:
            "offered load, as a share of the capacity", format: (x) => `${Math.round(100 * x)} %` },
        y: { low: Math.min(...values) / 1.3, high: Math.max(...values) * 1.3, log: true,
            title: "mean latency, ns", format: formatNumber },
    });
    cases.forEach((c, i) => plotCurve(plot, c.load.map((l) => [l.offered, l.mean_ns]),
        seriesColour(i), {
            dashes: DASHES[seriesDash(i)],
            describe: ([x, ns]) => `${c.name}\n${formatPercent(x)} offered: ${formatTime(ns)}`,
        }));
    return wide(makeSection("load", "Latency under load",
        "Transfers are issued at random times. Where the curve rises, the bottleneck is saturated.",
        plot.svg,
        make("ul", { class: "legend" }, ...cases.map((c, i) => legendItem(seriesColour(i),
            c.name + DASH_NAMES[seriesDash(i)]))),
        makeTable("Latency under load", [
            { title: "case", value: (r) => r.name, colour: (r) => seriesColour(r.i) },
            { title: "load", value: (r) => r.offered, text: formatPercent },
            { title: "offered", value: (r) => r.offered_gbs, text: formatRate },
            { title: "accepted", value: (r) => r.accepted_gbs, text: formatRate, bar: true },
            { title: "mean", value: (r) => r.mean_ns, text: formatTime },
            { title: "waiting", value: (r) => r.wait_ns, text: formatTime },
            { title: "99th percentile", value: (r) => r.p99_ns, text: formatTime },
        ], rows, { limit: 24 })));
}

function casesSection(data) {
    const cases = data.document.cases.filter((c) => c.total_ns !== undefined);
    if (cases.length === 0) {
        return null;
    }
    return wide(makeSection("cases", "Latency of single transfers",
        "Overhead of nodes, wires, draining of the last packet's bytes, and queueing add up.",
        makeTable("Single transfers", [
            { title: "case", value: (c) => c.name },
            { title: "latency", value: (c) => c.total_ns, text: formatTime, bar: true },
            { title: "overhead", value: (c) => c.overhead_ns, text: formatTime },
            { title: "wires", value: (c) => c.wire_ns, text: formatTime },
            { title: "drain", value: (c) => c.drain_ns, text: formatTime },
            { title: "queueing", value: (c) => c.queueing_ns, text: formatTime },
            { title: "bandwidth", value: (c) => c.effective_gbs, text: formatRate },
            { title: "of the bottleneck", value: (c) => c.utilization, text: formatPercent },
        ], cases, { limit: 24 })));
}

/* ---- Sweep ---- */

function sweepHeadline(data) {
    const { points, axes, best } = data.document;
    const idle = (axes || []).filter((a) => a.changed === 0).map((a) => a.axis);
    const failed = points.filter((p) => p.status && !p.ok).length;
    const verdict = [
        best ? `Point ${best.point} is best: ${best.figure} is ${formatNumber(best.value)}.` : "",
        idle.length > 0 ? `No effect on any figure: ${idle.join(", ")}.` : "",
    ].join(" ").trim();
    return [verdict, [["points", formatNumber(points.length)],
        ["failed", failed > 0 ? formatNumber(failed) : ""],
        ["axes", formatNumber((axes || []).length)]]];
}

function sweepNames(points, member) {
    return [...new Set(points.flatMap((p) => Object.keys(p[member])))];
}

/* Whether there is room for curves: numbers, and at least two of them. */
function isNumeric(points, axis) {
    const values = new Set(points.map((p) => p.axes[axis]));
    return values.size > 1 && [...values].every((v) => typeof v === "number");
}

/* A figure over an axis; a curve for each combination of the other axes. */
function sweepCurves(points, axis, figure) {
    const curves = new Map();
    for (const point of points) {
        const y = point.figures[figure];
        if (typeof y !== "number" || typeof point.axes[axis] !== "number") {
            continue;
        }
        const name = Object.entries(point.axes).filter(([key]) => key !== axis)
            .map(([key, value]) => `${key.split(".").pop()}=${value}`).join(", ");
        curves.set(name, [...(curves.get(name) || []), [point.axes[axis], y]]);
    }
    curves.forEach((curve) => curve.sort((a, b) => a[0] - b[0]));
    return curves;
}

function drawSweep(points, axis, figure) {
    const curves = sweepCurves(points, axis, figure);
    const all = [...curves.values()].flat();
    if (all.length === 0) {
        return emptyNote("No point has this figure.");
    }
    const xs = all.map((p) => p[0]);
    const ys = all.map((p) => p[1]);
    const isLog = Math.min(...xs) > 0 && Math.max(...xs) / Math.min(...xs) >= 8;
    const plot = makePlot({
        label: `${figure} over ${axis}`, width: 860, height: 400,
        x: { low: Math.min(...xs), high: Math.max(...xs), log: isLog, base: 2, title: axis,
            format: formatNumber },
        y: { low: Math.min(0, ...ys), high: Math.max(...ys) * 1.08 || 1, title: figure,
            format: formatNumber },
    });
    const names = [...curves.keys()];
    names.forEach((name, i) => plotCurve(plot, curves.get(name), seriesColour(i), {
        dashes: DASHES[seriesDash(i)],
        describe: ([x, y]) => `${name}\n${axis}: ${formatNumber(x)}\n${figure}: ${formatNumber(y)}`,
    }));
    return make("div", {}, plot.svg, make("ul", { class: "legend" }, ...names.slice(0, 24)
        .map((name, i) => legendItem(seriesColour(i),
            (name || figure) + DASH_NAMES[seriesDash(i)]))));
}

/*
 * The plot of --plot, apart from the styles of the page. It follows the theme of the system by a
 * rule of its own, of which the condition is replaced here: the page has a theme to choose.
 */
function drawingSection(data) {
    if (!data.plot) {
        return null;
    }
    const drawn = new DOMParser().parseFromString(data.plot, "image/svg+xml").documentElement;
    const drawing = document.importNode(drawn, true);
    const title = drawing.querySelector("title");
    const style = drawing.querySelector("style");
    const rules = style.textContent;
    drawing.setAttribute("aria-label", title.textContent);
    title.remove(); // else a tooltip of the whole drawing
    drawing.setAttribute("style", "display: block; max-width: 100%; height: auto");
    drawNowAndOnTheme(() => {
        const isDark = document.documentElement.dataset.theme === "dark";
        style.textContent = rules.replace("(prefers-color-scheme:dark)",
            isDark ? "all" : "not all");
    });
    const frame = make("div");
    frame.attachShadow({ mode: "open" }).append(drawing);
    return wide(makeSection("drawing", "Results", "", frame));
}

function sweepPlotSection(data) {
    const points = data.document.points.filter((p) => p.ok);
    const axes = sweepNames(points, "axes").filter((a) => isNumeric(points, a));
    const figures = sweepNames(points, "figures");
    if (axes.length === 0 || figures.length === 0) {
        return null;
    }
    const choose = (names) => make("select", { change: () => draw() },
        ...names.map((n) => make("option", { value: n }, n)));
    const axis = choose(axes);
    const figure = choose(figures);
    const plot = make("div");
    function draw() {
        plot.replaceChildren(drawSweep(points, axis.value, figure.value));
    }
    figure.value = figures.includes("sim_ns") ? "sim_ns" : figures[0];
    draw();
    return wide(makeSection("plot", "Figures over axes", "",
        make("div", { class: "controls" }, make("label", {}, "Figure", figure),
            make("label", {}, "over", axis)), plot));
}

/* Two figures of the points; those of the Pareto front stand out. */
function paretoSection(data) {
    const { pareto, points } = data.document;
    if (!pareto) {
        return null;
    }
    const rows = pareto.map((i) => ({ index: i, ...points[i] }));
    return wide(makeSection("pareto", "Pareto front",
        "No other point is better in one objective and not worse in the others.",
        sweepTable("Pareto front", rows, points)));
}

function sweepTable(name, rows, points) {
    const axes = sweepNames(points, "axes");
    const figures = sweepNames(points, "figures")
        .filter((f) => !f.includes(".") || f.startsWith("metrics.")).slice(0, 10);
    const numeric = (member, key) => points.every((p) =>
        p[member][key] === undefined || typeof p[member][key] === "number");
    const columns = [...axes.map((a) => ["axes", a]), ...figures.map((f) => ["figures", f])];
    return makeTable(name, [
        { title: "point", value: (r) => r.index, text: formatNumber },
        ...columns.map(([member, key]) => ({
            title: key, value: (r) => r[member][key],
            text: numeric(member, key) ? formatNumber : undefined,
        })),
        { title: "bottleneck", value: (r) => r.ok ? r.bottleneck || "" : r.message || r.status },
    ], rows, { limit: 50 });
}

function pointsSection(data) {
    const { points } = data.document;
    if (points.length === 0) {
        return makeSection("points", "Points", "", emptyNote("The sweep has no points."));
    }
    return wide(makeSection("points", "Points", "A row is a run.",
        sweepTable("Points", points.map((p, index) => ({ index, ...p })), points)));
}

function effectsSection(data) {
    const axes = data.document.axes || [];
    if (axes.length === 0) {
        return null;
    }
    return makeSection("effects", "Effects of the axes",
        "Pairs of points that differ in this axis alone, and how many of them differ in a figure.",
        makeTable("Effects of the axes", [
            { title: "axis", value: (a) => a.axis },
            { title: "compared", value: (a) => a.compared, text: formatNumber },
            { title: "changed", value: (a) => a.changed, text: formatNumber },
        ], axes));
}
