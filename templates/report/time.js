/* time.js: where the time of a run goes: by cause, kernel, source line and unit; and queue waits. */

function groupOf(causes, key) {
    const found = causes.find((c) => c[0] === key);
    return found ? found[2] : "idle";
}

/* The causes of an object {"matrix_ns": 12.5, ...} that are not 0, the largest first. */
function listCauses(data, object) {
    return Object.entries(object)
        .map(([key, ns]) => [key.replace(/_ns$/, ""), ns])
        .filter(([, ns]) => ns > 0)
        .map(([key, ns]) => {
            const known = data.causes.find((c) => c[0] === key);
            return { key, ns, label: known ? known[1] : key, group: groupOf(data.causes, key) };
        })
        .sort((a, b) => b.ns - a.ns);
}

/* One bar, divided by group; within a group by cause. */
function stackedBar(causes, total) {
    const width = 1000;
    const svg = makeSvg("svg", {
        viewBox: `0 0 ${width} 30`, width: "100%", height: 30, preserveAspectRatio: "none",
        role: "img",
        "aria-label": causes.map((c) => `${c.label}: ${formatPercent(c.ns / total)}`).join(", "),
    });
    const sorted = [...causes].sort((a, b) =>
        PE_GROUPS.indexOf(a.group) - PE_GROUPS.indexOf(b.group) || b.ns - a.ns);
    let x = 0;
    for (const cause of sorted) {
        const w = (cause.ns / total) * width;
        const rect = makeSvg("rect", {
            x, y: 0, width: Math.max(0, w - (w > 4 ? 1.5 : 0)), height: 30,
            fill: `var(--${cause.group})`,
        });
        addTip(rect, () => `${cause.label}\n${formatTime(cause.ns)}, ` +
            formatPercent(cause.ns / total));
        svg.append(rect);
        x += w;
    }
    return svg;
}

function causesSection(data) {
    const { document: run } = data;
    const causes = listCauses(data, run.causes);
    const total = run.sim_ns;
    if (causes.length === 0) {
        return wide(makeSection("time", "Where the time goes", "",
            emptyNote("The run took no simulated time.")));
    }
    const sums = PE_GROUPS.map((g) => ({
        group: g, ns: causes.filter((c) => c.group === g).reduce((sum, c) => sum + c.ns, 0),
    }));
    return wide(makeSection("time", "Where the time goes",
        `The ${formatTime(run.sim_ns)} of the run, by what the PEs that ran kernels did or waited ` +
        "for. The parts add up to the whole.",
        stackedBar(causes, total),
        make("ul", { class: "legend" }, ...sums.map((s) =>
            legendItem(`var(--${s.group})`, `${s.group} ${formatPercent(s.ns / total)}`))),
        makeTable("Time by cause", [
            { title: "cause", value: (c) => c.label, colour: (c) => `var(--${c.group})` },
            { title: "time", value: (c) => c.ns, text: formatTime, bar: true },
            { title: "share", value: (c) => c.ns / total, text: formatPercent },
        ], causes, { limit: 8 })));
}

/* Launches by name. */
function sumKernels(launches) {
    const kernels = new Map();
    for (const launch of launches) {
        const k = kernels.get(launch.name) ||
            { name: launch.name, launches: 0, pes: 0, total: 0, exec: 0, network: 0, causes: {} };
        k.launches++;
        k.pes = Math.max(k.pes, launch.pes);
        k.total += launch.total_ns;
        k.exec += launch.pe_exec_ns;
        k.network += launch.network_ns;
        for (const [key, ns] of Object.entries(launch.causes)) {
            k.causes[key] = (k.causes[key] || 0) + ns;
        }
        kernels.set(launch.name, k);
    }
    return [...kernels.values()].sort((a, b) => b.total - a.total);
}

function kernelsSection(data) {
    const kernels = sumKernels(data.document.kernels);
    if (kernels.length === 0) {
        return makeSection("kernels", "Kernels", "", emptyNote("The run launched no kernel."));
    }
    const main = (k) => {
        const causes = listCauses(data, k.causes);
        return causes.length > 0 ? causes[0].label : "-";
    };
    return makeSection("kernels", "Kernels",
        "Launches by name: times are sums over launches, one for each SIP that takes part.",
        makeTable("Kernels", [
            { title: "kernel", value: (k) => k.name },
            { title: "launches", value: (k) => k.launches, text: formatNumber },
            { title: "PEs", value: (k) => k.pes, text: formatNumber },
            { title: "total", value: (k) => k.total, text: formatTime, bar: true },
            { title: "on the PEs", value: (k) => k.exec, text: formatTime },
            { title: "main cause", value: main },
        ], kernels, { limit: 10 }));
}

function linesSection(data) {
    const profile = data.document.profile || [];
    const lines = new Map();
    for (const row of profile) {
        const place = row.file ? `${row.file.split("/").pop()}:${row.line}` : row.operation;
        const line = lines.get(place) || { place, source: row.source, ns: 0, bytes: 0, flops: 0,
            causes: {} };
        line.ns += row.time_ns;
        line.bytes += row.bytes;
        line.flops += row.flops;
        for (const [key, ns] of Object.entries(row.causes || {})) {
            line.causes[key] = (line.causes[key] || 0) + ns;
        }
        lines.set(place, line);
    }
    const rows = [...lines.values()].sort((a, b) => b.ns - a.ns);
    if (rows.length === 0) {
        return null;
    }
    const total = rows.reduce((sum, row) => sum + row.ns, 0) || 1;
    const hasSource = rows.some((row) => row.source);
    return makeSection("lines", "Source lines",
        "The time of all PEs by the line of the kernel that it belongs to.",
        makeTable("Source lines", [
            { title: "line", value: (r) => r.place },
            hasSource ? { title: "source", value: (r) => r.source || "" } : null,
            { title: "share", value: (r) => r.ns / total, text: formatPercent, bar: true },
            { title: "moved", value: (r) => r.bytes, text: formatBytes },
            { title: "main cause", value: (r) => (listCauses(data, r.causes)[0] ||
                { label: "-" }).label },
        ].filter((column) => column), rows, { limit: 10 }));
}

function unitsSection(data) {
    const units = data.document.units.filter((u) => u.count > 0 && u.unit !== "host");
    if (units.length === 0) {
        return null;
    }
    return makeSection("units", "Units",
        "Units of all PEs. The share is of the time in which kernels ran, mean over PEs.",
        makeTable("Units", [
            { title: "unit", value: (u) => u.unit },
            { title: "at work", value: (u) => u.share, text: formatPercent, bar: true },
            { title: "operations", value: (u) => u.count, text: formatNumber },
            { title: "moved", value: (u) => u.bytes || null, text: formatBytes },
            { title: "FLOP", value: (u) => u.flops || null, text: formatFlops },
        ], units, { order: { column: 1, down: true } }));
}

function waitsSection(data) {
    const { waits, texts } = data.activity || { waits: [] };
    if (waits.length === 0) {
        return null;
    }
    return makeSection("waits", "Queue waits",
        "How long kernels were stopped for messages of other PEs, and for free slots at receivers.",
        makeTable("Queue waits", [
            { title: "waiting", value: (w) => texts[w[0]] },
            { title: "times", value: (w) => w[1], text: formatNumber },
            { title: "all PEs", value: (w) => w[2], text: formatTime, bar: true },
            { title: "longest", value: (w) => w[3], text: formatTime },
            { title: "at", value: (w) => w[4] },
        ], waits, { order: { column: 2, down: true } }));
}
