/* page.js: reads the data and puts the page together. Runs once, when the page is loaded. */

function makeFigures(figures) {
    return make("dl", { class: "figures" }, ...figures.filter((f) => f[1] !== "").map((f) =>
        make("div", {}, make("dt", {}, f[0]), make("dd", {}, f[1]))));
}

function verifiedText(run) {
    return run.verified === null ? "not done" : run.verified ? "passed" : "FAILED";
}

function runFigures(run) {
    const roof = run.roofline;
    return [
        ["simulated time", formatTime(run.sim_ns)],
        ["verification", verifiedText(run)],
        ["PEs", roof ? formatNumber(roof.pes) : ""],
        ["matrix", roof && roof.tflops > 0 ?
            `${formatNumber(roof.tflops)} of ${formatNumber(roof.peak_tflops)} TFLOP/s` : ""],
        ["local memory", roof && roof.gbs > 0 ?
            `${formatNumber(roof.gbs)} of ${formatNumber(roof.peak_gbs)} GB/s` : ""],
        ["events", formatNumber(run.events)],
    ];
}

function copyButton(text) {
    const button = make("button", { type: "button", click: () => {
        navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; },
            () => { button.textContent = "Not allowed"; });
    } }, "Copy");
    return navigator.clipboard ? button : null;
}

/* The machine, its settings and the parameters, in one line. */
function describeSetup(data) {
    const { topology, parameters } = data.document;
    const parts = [];
    if (topology) {
        parts.push(`machine ${topology.name} (${topology.hash})`, ...topology.set);
    }
    for (const [name, value] of Object.entries(parameters || {})) {
        parts.push(`${name}=${value}`);
    }
    parts.push(`KernBench ${data.version}`);
    return parts.join(" \u00b7 ");
}

function makeHeadline(data, verdict, figures) {
    const { error } = data.document;
    const theme = make("button", { type: "button", click: () =>
        setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark") },
    "Light or dark");
    document.getElementById("headline").append(
        make("h1", {}, data.title), make("div", { class: "tools" }, theme),
        make("div", { style: "grid-column: 1 / -1" },
            error ? make("p", { class: "verdict error" }, error.message) : null,
            verdict ? make("p", { class: "verdict" }, verdict) : null,
            make("p", { class: "note" }, describeSetup(data))),
        makeFigures(figures));
    if (data.command) {
        document.getElementById("headline").append(make("div", { class: "command" },
            make("code", {}, data.command), copyButton(data.command)));
    }
}

/* The sections of each kind of report; those that return null have nothing to say. */
const SECTIONS = {
    run: [
        causesSection, pathSection, collectiveSection, machineSection, timelineSection,
        kernelsSection, linesSection, unitsSection, rooflineSection, waitsSection, trafficSection,
    ],
    traffic: [trafficLinksSection, trafficKindsSection],
    probe: [loadSection, casesSection],
    sweep: [drawingSection, sweepPlotSection, paretoSection, effectsSection, pointsSection],
};

const HEADLINES = {
    run: (data) => [data.document.verdict, runFigures(data.document)],
    traffic: trafficHeadline,
    probe: probeHeadline,
    sweep: sweepHeadline,
};

/* Adds the sections one after the other, and lets the browser paint in between. */
function addSections(data, builders) {
    const [build, ...rest] = builders;
    const section = build(data);
    if (section) {
        document.getElementById("sections").append(section);
        document.getElementById("contents").append(
            make("a", { href: "#" + section.id }, section.querySelector("h2").textContent));
    }
    if (rest.length > 0) {
        setTimeout(() => addSections(data, rest));
    } else {
        document.documentElement.dataset.complete = "true";
    }
}

function buildPage() {
    const data = JSON.parse(document.getElementById("data").textContent);
    data.critical_path = data.critical_path || data.document.critical_path; // of saved runs
    if (data.activity && data.activity.bins === 0) {
        data.activity = null; // no time has passed
    }
    if (data.activity) {
        data.links = data.activity.links.map(toLink);
        data.path = data.critical_path ? pathSlices(data.critical_path) : null;
    }
    const dark = matchMedia("(prefers-color-scheme: dark)");
    setTheme(dark.matches ? "dark" : "light");
    dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
    addEventListener("beforeprint", () => setTheme("light"));
    makeHeadline(data, ...HEADLINES[data.kind](data));
    document.getElementById("footer").textContent =
        `Made by KernBench ${data.version}. The page needs no network; its data are in it.`;
    addSections(data, SECTIONS[data.kind]);
}

buildPage();
