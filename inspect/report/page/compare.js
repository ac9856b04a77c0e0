// Two subjects side by side: figures, ops and scopes by their difference, nodes of one only, curves.
const compare = (() => {
    const { el } = ui;
    // key, label, format, and whether less is better (undefined: neither is).
    const figures = [["seconds", "Time of one run", format.seconds, true], ["arena_bytes", "Arena", format.bytes, true], ["lower_bound_bytes", "Peak of live bytes", format.bytes, true],
        ["sum_bytes", "Sum of buffers", format.bytes, true], ["state_bytes", "States", format.bytes, true], ["workspace_bytes", "Workspace of a thread", format.bytes, true], ["parameters", "Parameters", format.count],
        ["flops", "Work of one run", format.flops, true], ["bytes", "Read and written", format.bytes, true], ["nodes", "Nodes", format.integer], ["intervals", "Intervals", format.integer, true],
        ["barriers", "Barriers", format.integer, true], ["fused", "Fused nodes", format.integer, false], ["recomputed", "Nodes computed again", format.integer], ["buffers", "Buffers", format.integer],
        ["compute_seconds", "Computing, all threads", format.seconds, true], ["waiting_seconds", "Waiting, all threads", format.seconds, true]];
    const mark = (a, b, less) => less === undefined || a === b || !format.known(a) || !format.known(b) ? "" : (b < a) === less ? "better" : "worse";

    function summaryTable(a, b) {
        const rows = figures.filter(([key]) => format.known(a.summary[key]) || format.known(b.summary[key]));
        return ui.scroll(el("table", { class: "compare", "aria-label": "Figures of both" }, el("thead", {}, el("tr", {}, ["", `A: ${a.subject.name}`, `B: ${b.subject.name}`, "Difference"].map((t, i) => el("th", { scope: "col", class: i ? "number" : "" }, t)))),
            el("tbody", {}, rows.map(([key, label, text, less]) => {
                const x = a.summary[key], y = b.summary[key], cls = mark(x, y, less);
                return el("tr", {}, el("th", { scope: "row" }, label), el("td", { class: "number" }, text(x)), el("td", { class: "number" }, text(y)),
                    el("td", { class: `number ${cls}` }, format.change(x, y), cls && el("small", {}, ` ${cls}`)));
            }))));
    }

    function differences(a, b) {
        let by = "op";
        const box = el("div"), filter = table.filter("Filter rows", (t) => made.filter(t));
        let made;
        const measure = (m, r) => !r ? 0 : m.timed ? data.busy(r) / m.threads : r.flops;
        function draw() {
            const key = { op: (n) => n.op, scope: (n) => `${data.phaseOf(n) === "forward" ? "" : `${data.phaseOf(n)} `}${data.scopeName(n, 2)}`, node: (n) => n.name }[by];
            const both = [a, b].map((m) => new Map(data.rowsBy(m, key).map((r) => [r.name, r]))), timed = a.timed && b.timed, text = timed ? format.seconds : format.flops;
            const value = (m, r) => timed ? measure(m, r) : r ? r.flops : 0;
            const rows = [...new Set([...both[0].keys(), ...both[1].keys()])].map((name) => {
                const x = both[0].get(name), y = both[1].get(name);
                return { name, a: x && value(a, x), b: y && value(b, y), na: x ? x.nodes : 0, nb: y ? y.nodes : 0, difference: value(b, y) - value(a, x) };
            });
            const most = d3.max(rows, (r) => Math.abs(r.difference)) || 1;
            made = table.make([
                { label: by === "op" ? "Op" : by === "scope" ? "Scope" : "Node", value: (r) => r.name, cell: (r) => el("span", { class: "mono" }, r.name, !r.na ? el("small", { class: "only" }, "only in B") : !r.nb ? el("small", { class: "only" }, "only in A") : null) },
                { label: "Nodes A", numeric: true, value: (r) => r.na, text: format.integer }, { label: "Nodes B", numeric: true, value: (r) => r.nb, text: format.integer },
                { label: timed ? "Time A" : "Work A", numeric: true, value: (r) => r.a, text: (v) => v === undefined ? format.absent : text(v) }, { label: timed ? "Time B" : "Work B", numeric: true, value: (r) => r.b, text: (v) => v === undefined ? format.absent : text(v) },
                { label: "Difference", numeric: true, value: (r) => Math.abs(r.difference), cell: (r) => el("span", { class: r.difference < 0 ? "better" : r.difference > 0 ? "worse" : "" }, r.difference ? `${r.difference > 0 ? "+" : "−"}${text(Math.abs(r.difference))}` : "0"), bar: most },
                { label: "Change", numeric: true, value: (r) => r.a ? (r.b || 0) / r.a : undefined, text: (v, r) => r.a && r.b ? format.change(r.a, r.b) : format.absent },
            ], { rows, sort: 5, label: "Differences" });
            made.filter(filter.value);
            box.replaceChildren(made);
        }
        draw();
        return ui.section("Where they differ", "The largest differences first, from A to B.", el("div", { class: "bar-of-tools" }, ui.choice("Rows", [["op", "By op"], ["scope", "By scope"], ["node", "By node"]], by, (v) => { by = v; draw(); }), filter), box);
    }

    function render(app) {
        const [a, b] = app.models;
        return [ui.section("A and B", `${a.subject.command || a.subject.name} against ${b.subject.command || b.subject.name}`, summaryTable(a, b)),
            a.nodes.length && b.nodes.length ? differences(a, b) : null];
    }

    return { render };
})();
