/*
 * timeline.js: what each unit did when. Rows are PEs with the cause of their time; a PE opens to
 * its units. Only what is visible is drawn; slices that are narrower than a pixel are drawn as one.
 */

const ROW = 20;
const GUTTER = 160;
const UNIT_COLOURS = ["idle", "series6", "compute", "series3", "memory", "series4", "series5",
    "communication"];

/* The slices of a lane, as objects. */
function decodeSlices(numbers, activity) {
    const slices = [];
    let start = 0;
    for (let i = 0; i < numbers.length; i += 6) {
        start += numbers[i];
        slices.push({
            start: start / 1000, end: (start + numbers[i + 1]) / 1000, busy: numbers[i + 2] / 1000,
            count: numbers[i + 3], title: activity.texts[numbers[i + 4]],
            place: numbers[i + 5] ? activity.texts[numbers[i + 5]] : "",
        });
    }
    return slices;
}

/* Lanes in the order of display: the path, the host, then by PE. */
function buildLanes(data) {
    const { activity, machine } = data;
    const lanes = [];
    if (data.path) {
        lanes.push({ name: "critical path", pe: -2, unit: 0, slices: data.path });
    }
    for (const [pe, unit, numbers] of activity.lanes) {
        const slices = decodeSlices(numbers, activity);
        if (pe < 0) {
            lanes.push({ name: "host", pe, unit: -1, slices });
            continue;
        }
        const cube = Math.floor(pe / machine.pes);
        const name = `sip${Math.floor(cube / machine.cubes)}.cube${cube % machine.cubes}` +
            `.pe${pe % machine.pes}`;
        lanes.push({
            name: unit === 0 ? name : activity.units[unit], peName: name, pe, unit, slices,
        });
    }
    return lanes;
}

function laneColour(lane, slice, activity) {
    if (lane.pe === -2) {
        return "bad";
    }
    if (lane.pe < 0) {
        return "quiet";
    }
    return lane.unit === 0 ? activity.cause_groups[slice.title] || "idle" :
        UNIT_COLOURS[lane.unit];
}

function describeSlice(lane, slice) {
    const where = lane.peName && lane.unit > 0 ? `${lane.peName} ${lane.name}` : lane.name;
    const many = slice.count > 1 ?
        `${formatNumber(slice.count)} operations, the longest: ` : "";
    const busy = slice.count > 1 ? `\nat work for ${formatTime(slice.busy)}` : "";
    return `${where}\n${many}${slice.title.replaceAll("_", " ")}\n` +
        `${formatTime(slice.start)} to ${formatTime(slice.end)}: ` +
        `${formatTime(slice.end - slice.start)}${busy}${slice.place ? "\n" + slice.place : ""}`;
}

/* The first slice that ends after the time. */
function firstAfter(slices, time) {
    let low = 0;
    let high = slices.length;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (slices[middle].end > time) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

class Timeline {
    constructor(data) {
        this.activity = data.activity;
        this.lanes = buildLanes(data);
        this.end = Math.max(data.activity.end_ns, 1e-3);
        this.from = 0;
        this.to = this.end;
        this.pathOfPe = new Map(); // steps of the critical path, by PE
        for (const step of data.path || []) {
            if (step.pe !== undefined) {
                this.pathOfPe.set(step.pe, [...(this.pathOfPe.get(step.pe) || []), step]);
            }
        }
        this.open = new Set(this.lanes.filter((l) => l.pe >= 0).slice(0, 1).map((l) => l.pe));
        this.query = "";
        this.found = [];
        this.foundAt = -1;
        this.build();
        this.layOut();
    }

    build() {
        this.axis = makeSvg("svg", { height: 24, "aria-hidden": true });
        this.svg = makeSvg("svg", { "aria-hidden": true });
        this.names = make("div");
        this.window = make("div", { class: "window" }, this.names, this.svg);
        this.space = make("div");
        this.rows = make("div", {
            class: "rows", tabindex: 0, role: "group",
            "aria-label": "Timeline: arrow keys pan, plus and minus zoom",
            scroll: () => this.draw(), keydown: (event) => this.onKey(event),
        }, this.window, this.space);
        this.svg.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
        this.svg.addEventListener("mousedown", (event) => this.onDrag(event));
        this.svg.addEventListener("mousemove", (event) => this.onHover(event));
        this.svg.addEventListener("mouseleave", hideTip);
        this.element = make("div", { class: "timeline" }, this.axis, this.rows);
        new ResizeObserver(() => this.draw()).observe(this.element);
    }

    /* The rows that are shown: of closed PEs the states alone. */
    layOut() {
        const matches = (lane) => !this.query || this.matchesLane(lane);
        const hit = new Set(this.lanes.filter(matches).map((l) => l.pe));
        this.visible = this.lanes.filter((l) =>
            (l.unit <= 0 || this.open.has(l.pe)) && (!this.query || hit.has(l.pe)));
        const height = Math.min(this.visible.length * ROW, 520);
        this.rows.style.height = height + "px";
        this.window.style.height = height + "px";
        this.space.style.height = Math.max(0, this.visible.length * ROW - height) + "px";
        this.draw();
    }

    matchesLane(lane) {
        return (lane.peName || lane.name).toLowerCase().includes(this.query) ||
            lane.slices.some((s) => this.matches(s));
    }

    matches(slice) {
        return (slice.title + " " + slice.place).toLowerCase().includes(this.query);
    }

    width() {
        return Math.max(200, this.element.clientWidth - GUTTER - 16);
    }

    draw() {
        const width = this.width();
        const height = this.rows.clientHeight;
        const first = Math.floor(this.rows.scrollTop / ROW);
        const shift = first * ROW - this.rows.scrollTop;
        const shown = this.visible.slice(first, first + Math.ceil(height / ROW) + 1);
        this.drawAxis(width);
        this.svg.setAttribute("width", width + GUTTER);
        this.svg.setAttribute("height", height);
        this.svg.replaceChildren();
        this.names.replaceChildren();
        shown.forEach((lane, i) => {
            const y = shift + i * ROW;
            this.drawName(lane, y);
            this.drawLane(lane, y, width);
        });
    }

    drawAxis(width) {
        this.axis.setAttribute("width", width + GUTTER);
        this.axis.replaceChildren();
        const scale = makeScale(this.from, this.to, GUTTER, GUTTER + width);
        for (const tick of roundTicks(this.from, this.to, Math.max(2, width / 140))) {
            const x = scale(tick);
            this.axis.append(makeSvg("line", { class: "frame", x1: x, x2: x, y1: 18, y2: 24 }));
            this.axis.append(makeSvg("text", {
                class: "axis", x, y: 14, "text-anchor": x > GUTTER + width - 30 ? "end" :
                    x < GUTTER + 10 ? "start" : "middle",
            }, formatTime(tick)));
        }
    }

    drawName(lane, y) {
        const style = `top:${y}px`;
        if (lane.unit !== 0 || lane.pe < 0) {
            this.names.append(make("div", { class: "lane-name", style }, lane.name));
            return;
        }
        const isOpen = this.open.has(lane.pe);
        this.names.append(make("button", {
            type: "button", class: "lane-name", style, title: lane.name, "aria-expanded": isOpen,
            click: () => this.toggle(lane.pe),
        }, (isOpen ? "\u25be " : "\u25b8 ") + lane.name));
    }

    drawLane(lane, y, width) {
        const scale = makeScale(this.from, this.to, GUTTER, GUTTER + width);
        this.svg.append(makeSvg("line", {
            class: "grid", x1: GUTTER, x2: GUTTER + width, y1: y + ROW - 0.5, y2: y + ROW - 0.5,
        }));
        let until = -1;
        for (let i = firstAfter(lane.slices, this.from); i < lane.slices.length; i++) {
            const slice = lane.slices[i];
            if (slice.start >= this.to) {
                break;
            }
            const x = Math.max(scale(slice.start), GUTTER);
            const end = Math.min(scale(slice.end), GUTTER + width);
            if (end < until + 0.6) {
                continue; // within the pixel of the slice before
            }
            until = Math.max(end, x + 0.8);
            const next = lane.slices[i + 1]; // may overlap: a DMA has several channels
            this.drawSlice(lane, slice, x, y, until - x,
                Math.min(until, next ? scale(next.start) : until) - x);
        }
        if (lane.unit === 0) {
            this.drawPath(lane.pe, y, scale);
        }
    }

    /* A line below the times at which the critical path is at the PE. */
    drawPath(pe, y, scale) {
        for (const step of this.pathOfPe.get(pe) || []) {
            const x = scale(Math.max(step.start, this.from));
            const end = scale(Math.min(step.end, this.to));
            if (step.end > this.from && step.start < this.to) {
                this.svg.append(makeSvg("rect", { x, y: y + ROW - 4, width: Math.max(1, end - x),
                    height: 3, fill: "var(--bad)" }));
            }
        }
    }

    /* The title has so much room. */
    drawSlice(lane, slice, x, y, w, room) {
        const colour = laneColour(lane, slice, this.activity);
        const faded = this.query && !this.matches(slice) &&
            !(lane.peName || lane.name).toLowerCase().includes(this.query);
        const share = slice.end > slice.start ? slice.busy / (slice.end - slice.start) : 1;
        this.svg.append(makeSvg("rect", {
            x, y: y + 2, width: w, height: ROW - 4, rx: w > 6 ? 2 : 0, fill: `var(--${colour})`,
            opacity: faded ? 0.12 : 0.35 + 0.65 * Math.min(1, share),
        }));
        const title = slice.title.replaceAll("_", " ");
        if (room > title.length * 6.6 + 10 && !faded) {
            this.svg.append(makeSvg("text", {
                x: x + 5, y: y + 14, "font-size": 11, style: "fill:var(--card)",
                "pointer-events": "none",
            }, title));
        }
    }

    toggle(pe) {
        if (!this.open.delete(pe)) {
            this.open.add(pe);
        }
        this.layOut();
        const again = [...this.names.querySelectorAll("button")].find((b) =>
            b.title === this.lanes.find((l) => l.pe === pe).peName);
        if (again) {
            again.focus();
        }
    }

    /* Shows the times from `from` to `to`, as far as there are any. */
    setRange(from, to) {
        const span = Math.min(this.end, Math.max(to - from, Math.min(this.end, 0.01)));
        this.from = Math.max(0, Math.min(from, this.end - span));
        this.to = this.from + span;
        this.draw();
    }

    zoom(factor, centre = (this.from + this.to) / 2) {
        this.setRange(centre - (centre - this.from) * factor, centre + (this.to - centre) * factor);
    }

    pan(share) {
        const span = this.to - this.from;
        this.setRange(this.from + span * share, this.to + span * share);
    }

    reset() {
        this.setRange(0, this.end);
    }

    timeAt(event) {
        const x = event.clientX - this.svg.getBoundingClientRect().left - GUTTER;
        return this.from + (x / this.width()) * (this.to - this.from);
    }

    onKey(event) {
        const actions = {
            ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2),
            "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
            0: () => this.reset(),
        };
        if (event.target === this.rows && actions[event.key] && !event.ctrlKey) {
            event.preventDefault();
            actions[event.key]();
        }
    }

    onWheel(event) {
        if (event.ctrlKey || event.shiftKey) {
            event.preventDefault();
            const turn = event.deltaY || event.deltaX;
            this.zoom(turn > 0 ? 1.25 : 0.8, this.timeAt(event));
        }
    }

    onDrag(event) {
        const start = event.clientX;
        const { from, to } = this;
        const move = (e) => {
            const by = ((start - e.clientX) / this.width()) * (to - from);
            this.setRange(from + by, to + by);
        };
        const stop = () => {
            removeEventListener("mousemove", move);
            removeEventListener("mouseup", stop);
        };
        addEventListener("mousemove", move);
        addEventListener("mouseup", stop);
    }

    onHover(event) {
        const box = this.svg.getBoundingClientRect();
        const row = Math.floor((event.clientY - box.top + this.rows.scrollTop) / ROW);
        const lane = this.visible[row];
        const time = this.timeAt(event);
        const near = ((this.to - this.from) / this.width()) * 1.5;
        const slice = lane && time >= this.from ?
            lane.slices[firstAfter(lane.slices, time - near)] : null;
        if (slice && slice.start <= time + near) {
            showTip(describeSlice(lane, slice), event.clientX, event.clientY);
        } else {
            hideTip();
        }
    }

    search(text) {
        this.query = text.trim().toLowerCase();
        this.found = [];
        this.foundAt = -1;
        for (const lane of this.query ? this.lanes : []) {
            for (const slice of lane.slices) {
                if (this.matches(slice)) {
                    this.found.push({ lane, slice });
                }
            }
        }
        this.layOut();
        return this.found.length;
    }

    /* Shows the next slice that was found, in the middle. */
    next() {
        if (this.found.length === 0) {
            return;
        }
        this.foundAt = (this.foundAt + 1) % this.found.length;
        const { lane, slice } = this.found[this.foundAt];
        if (lane.unit > 0) {
            this.open.add(lane.pe);
        }
        this.layOut();
        const middle = (slice.start + slice.end) / 2;
        const span = Math.max((slice.end - slice.start) * 8, this.end / 2000);
        this.rows.scrollTop = Math.max(0, (this.visible.indexOf(lane) - 4) * ROW);
        this.setRange(middle - span / 2, middle + span / 2);
    }
}

function timelineSection(data) {
    if (!data.activity) {
        return null;
    }
    const timeline = new Timeline(data);
    const { activity } = data;
    const count = make("output", { "aria-live": "polite" });
    const search = make("input", {
        type: "search", placeholder: "operation, tensor, line, PE", "aria-label": "Search",
        input: () => {
            const found = timeline.search(search.value);
            count.textContent = search.value ? plural(found, "slice") : "";
        },
        keydown: (event) => {
            if (event.key === "Enter") {
                timeline.next();
            }
        },
    });
    const button = (text, action) => make("button", { type: "button", click: action }, text);
    drawNowAndOnTheme(() => timeline.draw());
    const merged = activity.resolution_ns > 0 ?
        ` Of ${formatNumber(activity.ops)} operations, neighbours closer than ` +
        `${formatTime(activity.resolution_ns)} are shown as one slice.` : "";
    const hidden = activity.lanes_of_pes < data.machine.sips * data.machine.cubes * data.machine.pes ?
        ` The first ${formatNumber(activity.lanes_of_pes)} PEs have rows.` : "";
    return wide(makeSection("timeline", "Timeline",
        "A row is a PE, coloured by what its time goes to; open it to see its units. Drag or use " +
        "the arrow keys to pan, Ctrl and the wheel or + and - to zoom, 0 to see all." + merged +
        hidden,
        make("div", { class: "controls" }, search, button("Next", () => timeline.next()), count,
            button("Zoom in", () => timeline.zoom(0.5)),
            button("Zoom out", () => timeline.zoom(2)), button("All", () => timeline.reset())),
        make("ul", { class: "legend" }, ...PE_GROUPS.map((g) => legendItem(`var(--${g})`, g)),
            data.path ? legendItem("var(--bad)", "critical path") : null),
        timeline.lanes.length > 0 ? timeline.element : emptyNote("No operation was recorded.")));
}
