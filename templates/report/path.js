/* path.js: the critical path: the chain of steps that the end of the run waited for. */

const PATH_DIVISIONS = [
    ["by_category", "cause"], ["by_resource", "resource"], ["by_kernel", "kernel"],
    ["by_line", "source line"], ["by_unit", "unit"], ["by_pe", "PE"], ["by_link", "link"],
    ["by_place", "memory"],
];

/* The steps as slices of a lane of the timeline. */
function pathSlices(path) {
    return (path.path || []).map((step) => ({
        start: step.from_fs / 1e6, end: step.to_fs / 1e6, busy: (step.to_fs - step.from_fs) / 1e6,
        count: 1, title: step.what, pe: step.pe, unit: step.unit,
        place: step.parts.map((p) => `${p.name}: ${formatTime(p.fs / 1e6)}`).join("\n"),
    }));
}

/* What a resource that is faster by a factor would save, as the path has it. */
function estimateTable(path) {
    const rows = (path.estimates || []).filter((e) =>
        Object.values(e.saves_fs).some((fs) => fs > 0));
    if (rows.length === 0) {
        return null;
    }
    const column = (factor) => ({
        title: `${factor} times faster`, value: (e) => e.saves_fs[factor] === null ? null :
            e.saves_fs[factor] / path.fs,
        text: (share) => "- " + formatPercent(share), bar: factor === "2",
    });
    return make("div", {}, make("h3", {}, "What would be saved"),
        make("p", { class: "note" }, "Estimates from the path alone, relative to the run: another " +
            "chain may take its place. kernbench explain measures them by running again."),
        makeTable("Estimated savings", [
            { title: "if this were", value: (e) => e.name }, column("1.25"), column("2"),
            column("4"),
        ], rows, { limit: 8, order: { column: 2, down: true } }));
}

function pathSection(data) {
    const path = data.critical_path;
    if (!path || !path.by_resource) {
        return null;
    }
    const table = make("div");
    const buttons = PATH_DIVISIONS.filter(([key]) => path[key] && path[key].length > 0)
        .map(([key, name]) => make("button", { type: "button", click: () => show(key) }, name));

    function show(key) {
        const [, name] = PATH_DIVISIONS.find((d) => d[0] === key);
        buttons.forEach((b) => b.setAttribute("aria-pressed", String(b.textContent === name)));
        table.replaceChildren(makeTable(`Critical path by ${name}`, [
            { title: name, value: (g) => g.name },
            { title: "time", value: (g) => g.ns, text: formatTime },
            { title: "of the run", value: (g) => g.share, text: formatPercent, bar: true },
            { title: "steps", value: (g) => g.steps, text: formatNumber },
        ], path[key], { limit: 10 }));
    }

    show("by_category");
    const dropped = path.recorded && path.recorded.dropped > 0 ?
        ` Operations from ${formatTime(path.recorded.dropped_from_ns)} on did not fit in memory.` :
        "";
    return wide(makeSection("path", "Critical path",
        `${path.headline || ""} ${plural(path.steps, "step")}; each division adds up to the run.` +
        dropped,
        make("div", { class: "controls", role: "group", "aria-label": "Divide by" },
            make("span", {}, "Divided by"), ...buttons),
        make("div", { class: "pair" }, table, estimateTable(path) || "")));
}
