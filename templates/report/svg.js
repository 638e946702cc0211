/* svg.js: elements of the page, colours, the tooltip. Texts enter the page as text nodes only. */

/* make("p", {class: "note"}, "text", element): null and undefined children are left out. */
function make(name, attributes, ...children) {
    return fill(document.createElement(name), attributes, children);
}

function makeSvg(name, attributes, ...children) {
    return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
    for (const [key, value] of Object.entries(attributes || {})) {
        if (typeof value === "function") {
            element.addEventListener(key, value);
        } else if (value !== null && value !== undefined && value !== false) {
            element.setAttribute(key, value === true ? "" : value);
        }
    }
    for (const child of children) {
        if (child !== null && child !== undefined) {
            element.append(child);
        }
    }
    return element;
}

/* ---- Colours ---- */

function cssColour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

/* The colours of utilization, in 65 steps, for the theme that is set. */
let heatSteps = null;

function heatColour(share) {
    if (!heatSteps) {
        const stops = [0, 1, 2, 3].map((i) => {
            const hex = cssColour("heat" + i);
            return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
        });
        heatSteps = Array.from({ length: 65 }, (_, step) => {
            const at = (step / 64) * 3;
            const from = Math.min(Math.floor(at), 2);
            const mixed = stops[from].map((c, k) =>
                Math.round(c + (stops[from + 1][k] - c) * (at - from)));
            return `rgb(${mixed.join(",")})`;
        });
    }
    return heatSteps[Math.round(Math.max(0, Math.min(1, share)) * 64)];
}

/* Redrawn when the theme changes: colours of drawings are computed. */
const redrawn = [];

function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    heatSteps = null;
    for (const draw of redrawn) {
        draw();
    }
}

function drawNowAndOnTheme(draw) {
    redrawn.push(draw);
    draw();
}

/* ---- The tooltip ---- */

function showTip(text, x, y) {
    const tip = document.getElementById("tip");
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 14 + box.width > innerWidth ? x - box.width - 10 : x + 14;
    const top = y + 16 + box.height > innerHeight ? y - box.height - 8 : y + 16;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, top) + "px";
}

function hideTip() {
    document.getElementById("tip").hidden = true;
}

/* Shows what describe() says while the pointer is on the element, or it has the focus. */
function addTip(element, describe) {
    element.addEventListener("mousemove", (event) =>
        showTip(describe(), event.clientX, event.clientY));
    element.addEventListener("mouseleave", hideTip);
    element.addEventListener("focus", () => {
        const box = element.getBoundingClientRect();
        showTip(describe(), box.left + box.width / 2, box.bottom);
    });
    element.addEventListener("blur", hideTip);
}

/* ---- Axes ---- */

/* About `count` round values from low to high. */
function roundTicks(low, high, count) {
    const raw = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12); i++) {
        ticks.push(i === 0 ? 0 : i * step); // not -0
    }
    return ticks;
}

/* Powers of the base, at most nine; for logarithmic axes. */
function logTicks(low, high, base = high / low > 300 ? 10 : 2) {
    const ticks = [];
    const first = Math.ceil(Math.log(low) / Math.log(base) - 1e-9);
    const last = Math.floor(Math.log(high) / Math.log(base) + 1e-9);
    const every = Math.max(1, Math.ceil((last - first) / 8));
    for (let k = first; k <= last; k += every) {
        ticks.push(base ** k);
    }
    return ticks;
}

function makeScale(low, high, from, to, isLog) {
    const f = isLog ? Math.log : (x) => x;
    return (x) => from + ((f(x) - f(low)) / (f(high) - f(low) || 1)) * (to - from);
}

function legendItem(colour, text) {
    return make("li", {}, make("span", { class: "swatch", style: `background:${colour}` }), text);
}

/* ---- Sections ---- */

function makeSection(id, title, note, ...children) {
    return make("section", { id, "aria-labelledby": id + "-title" },
        make("h2", { id: id + "-title" }, title),
        note ? make("p", { class: "note" }, note) : null, ...children);
}

function wide(section) {
    section.classList.add("wide");
    return section;
}

function emptyNote(text) {
    return make("p", { class: "empty" }, text);
}
