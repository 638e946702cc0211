/*
 * table.js: tables that sort by a click on a heading.
 *
 *     makeTable("Kernels", [
 *         {title: "kernel", value: (row) => row.name},
 *         {title: "time", value: (row) => row.ns, text: formatTime, bar: true},
 *     ], rows)
 *
 * A column with a `text` function has numbers. `bar` shows them as bars too, relative to the
 * largest. Rows past `limit` are shown on request.
 */
function makeTable(name, columns, rows, options = {}) {
    const limit = options.limit || 12;
    let order = options.order || null; // {column, down}
    let all = false;
    const body = make("tbody");
    const more = make("button", { type: "button", click: () => { all = !all; draw(); } });
    const heads = columns.map((column, i) =>
        make("th", { scope: "col", class: column.text ? "number" : null },
            make("button", { type: "button", click: () => sortBy(i) }, column.title)));
    const largest = columns.map((c) =>
        c.bar ? Math.max(...rows.map((row) => c.value(row) || 0), 0) : 0);

    function sortBy(i) {
        const down = order && order.column === i ? !order.down : Boolean(columns[i].text);
        order = { column: i, down };
        draw();
    }

    function compare(a, b) {
        const x = columns[order.column].value(a);
        const y = columns[order.column].value(b);
        const known = (y === null || y === undefined) - (x === null || x === undefined);
        const sign = known || (x > y) - (x < y);
        return order.down ? -sign : sign;
    }

    function cell(column, i, row) {
        const value = column.value(row);
        const text = column.text ? (value === null || value === undefined ? "-" :
            column.text(value)) : value;
        const swatch = column.colour ?
            make("span", { class: "swatch", style: `background:${column.colour(row)}` }) : null;
        const bar = column.bar && largest[i] > 0 ? make("span", { class: "bar" },
            make("span", { style: `width:${(100 * (value || 0)) / largest[i]}%` })) : null;
        return make("td", { class: column.text ? "number" : i === 0 ? "name" : null },
            swatch, bar, bar ? make("span", { class: "figure" }, text) : text);
    }

    function draw() {
        const sorted = order ? [...rows].sort(compare) : rows;
        const shown = all ? sorted : sorted.slice(0, limit);
        body.replaceChildren(...shown.map((row) =>
            make("tr", {}, ...columns.map((column, i) => cell(column, i, row)))));
        heads.forEach((head, i) => {
            const by = order && order.column === i;
            head.setAttribute("aria-sort", by ? (order.down ? "descending" : "ascending") : "none");
            head.firstChild.textContent =
                columns[i].title + (by ? (order.down ? " \u25be" : " \u25b4") : "");
        });
        more.textContent = all ? "Show fewer" : `Show all ${formatNumber(rows.length)}`;
    }

    draw();
    return make("div", {},
        make("div", { class: "scroll" },
            make("table", { "aria-label": name }, make("thead", {}, make("tr", {}, ...heads)),
                body)),
        rows.length > limit ? make("div", { class: "more" }, more) : null);
}
