// A table that sorts by a click on a header, filters by text and shows long lists in steps.
const table = (() => {
    const { el } = ui;
    const step = 100;

    /* columns: [{ label, title, value(row), text(value, row), cell(row), numeric, bar: largest value }];
     * options: { rows, sort: index, ascending, open(row), name(row) for the filter, label, limit }.
     * Returns an element with refresh(rows) and filter(text). */
    function make(columns, options) {
        let rows = options.rows, sort = options.sort ?? -1, ascending = !!options.ascending, limit = options.limit || step, wanted = "";
        const head = el("tr"), body = el("tbody"), more = el("button", { type: "button", class: "more" });
        const box = el("div", { class: "table-box" },
            ui.scroll(el("table", { "aria-label": options.label }, el("thead", {}, head), body)), more);
        const headers = columns.map((column, i) => {
            const button = el("button", { type: "button", title: column.title, onclick: () => sortBy(i) }, column.label);
            const th = el("th", { scope: "col", class: column.numeric ? "number" : "" }, button);
            head.append(th);
            return th;
        });
        more.addEventListener("click", () => { limit *= 10; draw(); });

        function sortBy(index) {
            ascending = index === sort ? !ascending : !columns[index].numeric;
            sort = index;
            draw();
        }

        function sorted() {
            const name = options.name || ((row) => String(columns[0].value(row)));
            const found = wanted ? rows.filter((row) => name(row).toLowerCase().includes(wanted)) : rows.slice();
            if (sort < 0) return found;
            const value = columns[sort].value, sign = ascending ? 1 : -1;
            // Absent values come last, whatever the order.
            return found.sort((a, b) => {
                const x = value(a), y = value(b);
                if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
                return sign * (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y);
            });
        }

        function cell(column, row) {
            const value = column.value(row), kind = column.numeric ? "number" : "";
            if (column.cell) return el("td", { class: kind }, column.cell(row));
            const text = value === undefined ? format.absent : column.text ? column.text(value, row) : String(value);
            const bar = column.bar && value > 0 && el("i", { class: "bar", style: { width: `${Math.min(100, 100 * value / column.bar)}%` } });
            return el("td", { class: kind, title: column.numeric ? undefined : text }, bar, el("span", {}, text));
        }

        function draw() {
            const found = sorted();
            headers.forEach((th, i) => th.setAttribute("aria-sort", i !== sort ? "none" : ascending ? "ascending" : "descending"));
            body.replaceChildren(...found.slice(0, limit).map((row, i) => {
                const tr = el("tr", { tabindex: options.open ? (i ? -1 : 0) : undefined, class: options.open ? "opens" : "" },
                    columns.map((column) => cell(column, row)));
                if (options.open) tr.addEventListener("click", (event) => event.target.closest("a") || options.open(row));
                return tr;
            }));
            if (!found.length) body.append(el("tr", {}, el("td", { colspan: columns.length, class: "empty" }, "Nothing matches.")));
            more.hidden = found.length <= limit;
            more.textContent = `Show more of ${format.integer(found.length)} rows`;
        }

        body.addEventListener("keydown", (event) => rove(event, body));
        box.refresh = (next) => { rows = next; draw(); };
        box.filter = (text) => { wanted = text.trim().toLowerCase(); draw(); };
        draw();
        return box;
    }

    // Arrow keys move between rows, Enter opens: one stop of the Tab key for the whole table.
    function rove(event, body) {
        const row = event.target.closest("tr"), all = [...body.children], at = all.indexOf(row);
        const next = { ArrowDown: all[at + 1], ArrowUp: all[at - 1], Home: all[0], End: all[all.length - 1] }[event.key];
        if (event.target !== row) return;
        if (event.key === "Enter") row.click();
        if (!next || next.tabIndex === undefined) return;
        event.preventDefault();
        row.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
    }

    const filter = (label, change) => el("input", { type: "search", class: "filter", placeholder: label, "aria-label": label,
        oninput: (event) => change(event.target.value) });

    return { make, filter, rove };
})();
