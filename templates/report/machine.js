/*
 * machine.js: the machine, coloured by what was busy when.
 *
 * Dies stand as they do on the package. Lines between them are links, one for each direction. In a
 * cube there are its PEs, coloured by what their time went to, and bars for its memory and its
 * network, coloured by their busiest link.
 */

/* Shares are digits of base 64, one for each bin. */
const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

function shareAt(text, bin) {
    return DIGITS.indexOf(text[bin]) / 63;
}

/* In a bin, or over the whole run if bin is negative. */
function shareOf(text, bin) {
    if (bin >= 0) {
        return shareAt(text, bin);
    }
    let sum = 0;
    for (let i = 0; i < text.length; i++) {
        sum += shareAt(text, i);
    }
    return text.length > 0 ? sum / text.length : 0;
}

const PE_GROUPS = ["compute", "memory", "communication", "idle"];

/* Where everything is, in the units of the drawing. */
function layOutMachine(machine) {
    const peColumns = Math.max(2, Math.ceil(Math.sqrt(machine.pes)));
    const peRows = Math.ceil(machine.pes / peColumns);
    const cell = 13;
    const cube = { w: peColumns * cell + 32, h: peRows * cell + 40, gap: 26 };
    const sip = {
        w: machine.cube_w * (cube.w + cube.gap) - cube.gap + 36,
        h: machine.cube_h * (cube.h + cube.gap) - cube.gap + 88,
    };
    const columns = machine.sip_h > 1 ? machine.sip_w :
        Math.min(machine.sips, sip.w > 900 ? 2 : 4);
    const gap = machine.sip_links ? 76 : 40;
    const rows = Math.ceil(machine.sips / columns);
    const top = 74;
    const at = (i) => [30 + (i % columns) * (sip.w + gap),
        top + Math.floor(i / columns) * (sip.h + gap)];
    return {
        machine, peColumns, cell, cube, sip, at, columns, gap,
        width: 60 + columns * (sip.w + gap) - gap,
        height: top + rows * (sip.h + gap) - gap + 30,
        cubeAt(s, c) {
            const [x, y] = at(s);
            return [x + 18 + (c % machine.cube_w) * (cube.w + cube.gap),
                y + 70 + Math.floor(c / machine.cube_w) * (cube.h + cube.gap)];
        },
    };
}

/* The middle of a side of a box: north, east, south, west. */
function sideOf(x, y, w, h, side) {
    return [[x + w / 2, y], [x + w, y + h / 2], [x + w / 2, y + h], [x, y + h / 2]][side];
}

/* The point of a node outside of cubes, or of a cube's port; null for what is not drawn. */
function nodePoint(layout, [kind, sip, cube, index]) {
    const [x, y] = layout.at(sip);
    switch (kind) {
    case "host":
        return [layout.width / 2, 14];
    case "switch":
        return [layout.width / 2, 48];
    case "pcie_ep":
        return [x + layout.sip.w / 2, y];
    case "io_ucie":
        return [layout.cubeAt(sip, index)[0] + layout.cube.w / 2, y + 52];
    case "sip_port":
        return sideOf(x, y, layout.sip.w, layout.sip.h, index);
    case "ucie": {
        const [cx, cy] = layout.cubeAt(sip, cube);
        return sideOf(cx, cy, layout.cube.w, layout.cube.h, index);
    }
    default:
        return null;
    }
}

/* A path from one point to another, beside the one of the other direction. Links between SIPs that
 * are not neighbours go around in a curve. */
function linkPath(layout, from, to, kind) {
    const [x1, y1] = from;
    const [x2, y2] = to;
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const nx = (-(y2 - y1) / length) * 2.6;
    const ny = ((x2 - x1) / length) * 2.6;
    const a = `${x1 + nx} ${y1 + ny}`;
    const b = `${x2 + nx} ${y2 + ny}`;
    if (kind !== "sip_port" || length < layout.gap * 1.5) {
        return `M${a}L${b}`;
    }
    const bend = Math.abs(x2 - x1) > Math.abs(y2 - y1) ? [0, -length / 7] : [-length / 7, 0];
    return `M${a}Q${(x1 + x2) / 2 + bend[0] + nx} ${(y1 + y2) / 2 + bend[1] + ny} ${b}`;
}

function toLink(row) {
    const [name, kind, from, to, gbs, bytes, waited, bins] = row;
    return { name, kind, from, to, gbs, bytes, waited, bins };
}

function describeLink(link, bin) {
    const now = bin >= 0 ? `\n${formatPercent(shareOf(link.bins, bin))} busy in this bin` : "";
    return `${link.name}\n${formatRate(link.gbs)}, ${formatBytes(link.bytes)} carried` +
        `\n${formatPercent(shareOf(link.bins, -1))} busy over the run${now}` +
        `\npackets waited ${formatTime(link.waited)} for it, all together`;
}

/* What is drawn, as parts with update(bin). */
function drawMachine(layout, data, state) {
    const { machine } = layout;
    const { activity } = data;
    const parts = [];
    const svg = makeSvg("svg", {
        viewBox: `0 0 ${layout.width} ${layout.height}`,
        role: "group", style: `max-width:${Math.round(layout.width * 1.6)}px`,
        "aria-label": `The machine ${machine.name}: ${plural(machine.sips, "SIP")} of ` +
            `${plural(machine.cubes, "cube")} of ${plural(machine.pes, "PE")}`,
    });

    const linkColour = (share) => heatColour(share / state.top);

    function box(x, y, w, h, share, describe, parent = svg) {
        const rect = makeSvg("rect", { x, y, width: w, height: h, rx: 2 });
        parts.push((bin) => rect.setAttribute("fill", share(bin)));
        if (describe) {
            addTip(rect, describe);
        }
        parent.append(rect);
    }

    function drawPe(parent, sip, cube, pe, x, y) {
        const index = (sip * machine.cubes + cube) * machine.pes + pe;
        const perPe = activity.pes.length === machine.sips * machine.cubes * machine.pes;
        const groups = activity.pes[perPe ? index : sip * machine.cubes + cube];
        const name = `sip${sip}.cube${cube}.pe${pe}`;
        const colour = (bin) => {
            if (!groups) {
                return cssColour("none");
            }
            return heatColour(shareOf(groups[PE_GROUPS.indexOf(state.measure)], bin));
        };
        const describe = () => groups ? name + (perPe ? "" : " (mean of its cube)") +
            PE_GROUPS.map((g, i) => `\n${g}: ${formatPercent(shareOf(groups[i], state.bin))}`)
                .join("") : `${name}\nran no kernel`;
        box(x, y, layout.cell - 2, layout.cell - 2, colour, describe, parent);
    }

    function drawCube(sip, cube) {
        const [x, y] = layout.cubeAt(sip, cube);
        const { w, h } = layout.cube;
        const name = `sip${sip}.cube${cube}`;
        const [hbm, noc] = activity.cubes[sip * machine.cubes + cube];
        const group = makeSvg("g", {
            class: "cube", tabindex: 0, role: "button", "aria-label": `Links of ${name}`,
            click: () => state.choose(name),
            keydown: (event) => {
                if (event.key === "Enter" || event.key === " ") {
                    event.preventDefault();
                    state.choose(name);
                }
            },
        }, makeSvg("rect", { class: "die", x, y, width: w, height: h, rx: 4 }),
        makeSvg("text", { x: x + 6, y: y + 13, class: "axis" }, "cube" + cube));
        group.dataset.name = name;
        for (let pe = 0; pe < machine.pes; pe++) {
            drawPe(group, sip, cube, pe, x + 6 + (pe % layout.peColumns) * layout.cell,
                y + 19 + Math.floor(pe / layout.peColumns) * layout.cell);
        }
        const busiest = (what, text) => () =>
            `${name} ${what}: busiest link ${formatPercent(shareOf(text, state.bin))} busy`;
        box(x + w - 16, y + 19, 10, h - 40, (bin) => linkColour(shareOf(noc, bin)),
            busiest("network", noc), group);
        box(x + 6, y + h - 16, w - 12, 10, (bin) => linkColour(shareOf(hbm, bin)),
            busiest("memory", hbm), group);
        svg.append(group);
    }

    /* Where links are, also if they carried nothing. */
    function drawWires(sip) {
        const wire = (from, to) => svg.append(makeSvg("line", { class: "wire", x1: from[0],
            y1: from[1], x2: to[0], y2: to[1] }));
        const port = (cube, side) => nodePoint(layout, ["ucie", sip, cube, side]);
        for (let cube = 0; cube < machine.cubes; cube++) {
            const column = cube % machine.cube_w;
            if (column + 1 < machine.cube_w && cube + 1 < machine.cubes) {
                wire(port(cube, 1), port(cube + 1, 3));
            }
            if (cube + machine.cube_w < machine.cubes) {
                wire(port(cube, 2), port(cube + machine.cube_w, 0));
            }
            if (cube < machine.cube_w) {
                wire(nodePoint(layout, ["io_ucie", sip, 0, cube]), port(cube, 0));
            }
        }
    }

    function drawSip(sip) {
        const [x, y] = layout.at(sip);
        svg.append(makeSvg("rect",
            { class: "sip", x, y, width: layout.sip.w, height: layout.sip.h, rx: 8 }));
        svg.append(makeSvg("text", { x: x + 18, y: y + 21, "font-weight": 600 }, "sip" + sip));
        const links = data.links.filter((l) => l.from[1] === sip && l.from[0].startsWith("io_"));
        const share = (bin) => Math.max(0, ...links.map((l) => shareOf(l.bins, bin)));
        box(x + 18, y + 32, layout.sip.w - 36, 20, (bin) => linkColour(share(bin)),
            () => `sip${sip}.io\nbusiest link ${formatPercent(share(state.bin))} busy`);
        svg.append(makeSvg("text", { x: x + 26, y: y + 46, class: "axis on-heat",
            "pointer-events": "none" }, "IO chiplet"));
        drawWires(sip);
    }

    /* A link between SIPs goes from a port to the network of the other SIP: it is drawn to the
     * side that faces the port. */
    function endOf(link) {
        const [kind, sip] = link.to;
        const [fromKind, fromSip, , side] = link.from;
        return fromKind === "sip_port" && kind === "io_noc" && sip !== fromSip ?
            ["sip_port", sip, 0, (side + 2) % 4] : link.to;
    }

    function drawLink(link) {
        const from = nodePoint(layout, link.from);
        const to = nodePoint(layout, endOf(link));
        if (!from || !to) {
            return;
        }
        const d = linkPath(layout, from, to, link.from[0]);
        const path = makeSvg("path", { d, fill: "none", "stroke-width": 4 });
        const target = makeSvg("path",
            { d, fill: "none", "stroke-width": 9, stroke: "transparent" });
        parts.push((bin) => path.setAttribute("stroke", linkColour(shareOf(link.bins, bin))));
        addTip(target, () => describeLink(link, state.bin));
        svg.append(path, target);
    }

    /* Links of the host pass below the SIPs. */
    const isOfHost = (link) =>
        [link.from[0], link.to[0]].some((k) => k === "host" || k === "switch");
    data.links.filter(isOfHost).forEach(drawLink);
    for (let sip = 0; sip < machine.sips; sip++) {
        drawSip(sip);
    }
    data.links.filter((link) => !isOfHost(link)).forEach(drawLink);
    for (let sip = 0; sip < machine.sips; sip++) {
        for (let cube = 0; cube < machine.cubes; cube++) {
            drawCube(sip, cube);
        }
    }
    for (const [node, label] of [["host", "host"], ["switch", "switch"]]) {
        const [x, y] = nodePoint(layout, [node, 0, 0, 0]);
        svg.append(makeSvg("rect",
            { class: "die", x: x - 34, y: y - 11, width: 68, height: 20, rx: 4 }));
        svg.append(makeSvg("text", { x, y: y + 4, "text-anchor": "middle", class: "axis" }, label));
    }
    return { svg, update: (bin) => parts.forEach((part) => part(bin)) };
}

/* The links of a cube, or the busiest of all, for the bin that is chosen. */
function linkTable(links, name, bin) {
    const of = name ? links.filter((l) => (l.name + ">").split(">").some((end) =>
        end.startsWith(name + "."))) : links;
    const rows = of.map((l) => ({ link: l, share: shareOf(l.bins, bin) }))
        .sort((a, b) => b.share - a.share);
    if (rows.length === 0) {
        return emptyNote(`No link${name ? " of " + name : ""} carried anything.`);
    }
    return makeTable(`Links of ${name || "the machine"}`, [
        { title: "link", value: (r) => shortLink(r.link.name) },
        { title: "busy", value: (r) => r.share, text: formatPercent, bar: true },
    ], rows, { limit: 14 });
}

/* The utilization that has the strongest colour: a round one that the means of links reach. */
function colourTop(links) {
    const busiest = Math.max(0, ...links.map((l) => shareOf(l.bins, -1)));
    return [0.05, 0.1, 0.2, 0.5, 1].find((top) => top >= busiest) || 1;
}

function machineSection(data) {
    const { machine, activity } = data;
    if (!activity) {
        return null;
    }
    const state = { bin: -1, measure: "compute", chosen: "", choose: null, top: 1 };
    const adapted = colourTop(data.links);
    const top = make("output");
    const scale = make("button", { type: "button", click: () => {
        state.top = state.top === 1 ? adapted : 1;
        update();
    } }, "Scale to the busiest");
    const layout = layOutMachine(machine);
    const drawing = drawMachine(layout, data, state);
    const side = make("div", { "aria-live": "polite" });
    const output = make("output");
    const slider = make("input", {
        type: "range", min: 0, max: Math.max(0, activity.bins - 1), value: 0, id: "machine-time",
        "aria-label": "Time", input: () => setBin(Number(slider.value)),
    });
    const whole = make("button", { type: "button", click: () => setBin(-1) }, "Whole run");
    const measure = make("select", { change: () => { state.measure = measure.value; update(); } },
        ...PE_GROUPS.map((g) => make("option", { value: g }, g)));

    function setBin(bin) {
        state.bin = bin;
        update();
    }

    function update() {
        const { bin } = state;
        drawing.update(bin);
        whole.setAttribute("aria-pressed", String(bin < 0));
        scale.setAttribute("aria-pressed", String(state.top < 1));
        top.textContent = `${100 * state.top} %`;
        const start = bin * activity.bin_ns;
        output.textContent = bin < 0 ? `mean over ${formatTime(activity.end_ns)}` :
            `${formatTime(start)} to ` +
            formatTime(Math.min(start + activity.bin_ns, activity.end_ns));
        side.replaceChildren(
            make("h3", {}, state.chosen ? `Links of ${state.chosen}` : "Busiest links"),
            state.chosen ? make("button", { type: "button", click: () => state.choose("") },
                "All links") : null || "",
            linkTable(data.links, state.chosen, bin));
    }

    state.choose = (name) => {
        state.chosen = state.chosen === name ? "" : name;
        for (const cube of drawing.svg.querySelectorAll(".cube")) {
            cube.classList.toggle("chosen", cube.dataset.name === state.chosen);
        }
        update();
    };
    state.top = adapted;
    drawNowAndOnTheme(update);
    const listed = activity.links.length < activity.active_links ?
        ` ${plural(activity.links.length, "link")} of ${formatNumber(activity.active_links)} that ` +
        "carried something are listed: those between dies, and the busiest others." : "";
    return wide(makeSection("machine", "Machine",
        "Links by their utilization, one line for each direction; PEs by the share of their time. " +
        "In a cube, the bar on the right is its network and the one below its memory, each by its " +
        "busiest link. Choose a cube to list its links." + listed,
        make("div", { class: "controls" },
            make("label", {}, "Time", slider), output, whole,
            make("label", {}, "PEs by", measure),
            make("span", {}, "Links 0 % ", make("span", { class: "ramp" }), " ", top),
            adapted < 1 ? scale : null),
        make("div", { class: "machine" }, make("div", { class: "sips" }, drawing.svg), side)));
}
