// Where the time goes: a table by op, scope or node, the flame graph, the timeline and the roofline.
const time = (() => {
    const { el } = ui;
    const views = [["table", "Table"], ["flame", "Flame graph"], ["timeline", "Timeline"], ["roofline", "Roofline"]];

    function tableView(m) {
        let by = "op", depth = 2;
        const box = el("div", { class: "block" }), filter = table.filter("Filter rows", (text) => made.filter(text));
        const depthChoice = ui.choice("Depth of scopes", [[1, "1"], [2, "2"], [3, "3"], [0, "All"]], depth, (d) => { depth = d; draw(); });
        let made;
        function rows() {
            if (by === "op") return data.rowsBy(m, (n) => n.op);
            if (by === "scope") return data.rowsBy(m, (n) => (data.phaseOf(n) === "forward" ? "" : `${data.phaseOf(n)} `) + data.scopeName(n, depth));
            return data.rowsBy(m, (n) => n.id).map((r) => ({ ...r, name: r.list[0].name, node: r.list[0] }));
        }
        function draw() {
            const list = rows(), most = d3.max(list, data.busy) || 0, threads = m.threads;
            depthChoice.hidden = by !== "scope";
            const timed = m.timed, rate = (r, key) => r.seconds ? threads * r[key] / r.seconds : undefined;
            const columns = [
                { label: by === "op" ? "Op" : by === "scope" ? "Scope" : "Node", value: (r) => r.name, cell: (r) => el("span", { class: "mono", title: r.name }, r.name) },
                by === "node" && { label: "Output", value: (r) => (r.node.outputs[0] || {}).shape || "" },
                by !== "node" && { label: "Nodes", numeric: true, value: (r) => r.nodes, text: format.integer },
                timed && { label: "Time", title: "computing and waiting, of one run, averaged over the threads", numeric: true, value: data.busy, text: (v) => format.seconds(v / threads), bar: most },
                timed && { label: "Share", numeric: true, value: (r) => data.busy(r) / m.total, text: format.percent },
                timed && { label: "Waiting", title: "at the barrier after the nodes", numeric: true, value: (r) => r.waiting, text: (v) => format.seconds(v / threads) },
                { label: "Work", numeric: true, value: (r) => r.flops, text: format.flops },
                { label: "Bytes", title: "read and written at least", numeric: true, value: (r) => r.bytes, text: format.bytes },
                timed && { label: "FLOP/s", numeric: true, value: (r) => rate(r, "flops"), text: (v) => v ? format.flopRate(v) : format.absent },
                timed && { label: "B/s", numeric: true, value: (r) => rate(r, "bytes"), text: format.byteRate },
                timed && { label: "Roofline", title: "minimum time at the measured peaks over the time computing", numeric: true, value: (r) => r.roofline, text: format.percent },
            ].filter(Boolean);
            made = table.make(columns, { rows: list, sort: timed ? columns.findIndex((c) => c.label === "Time") : columns.findIndex((c) => c.label === "Work"), label: `Time by ${by}`,
                open: by === "node" ? (r) => { location.hash = `#node/${r.node.id}`; } : by === "scope" ? (r) => { location.hash = `#graph/${r.name.replace(/^(backward|update) /, (_, p) => `${p}:`)}`; } : undefined });
            made.filter(filter.value);
            box.replaceChildren(made);
        }
        draw();
        return [el("div", { class: "bar-of-tools" }, ui.choice("Rows", [["op", "By op"], ["scope", "By scope"], ["node", "By node"]], by, (v) => { by = v; draw(); }), depthChoice, filter), box];
    }

    function render(app, go) {
        const m = app.model, content = el("div", { class: "block" });
        const has = (name) => name === "table" || (name === "timeline" ? ((m.subject.timeline || {}).events || []).length > 0 : m.timed);
        const shown = views.filter(([name]) => has(name));
        const show = (name) => {
            const make = { table: tableView, flame: flame.view, timeline: timeline.view, roofline: roofline.view }[name] || tableView;
            content.replaceChildren(...[make(m)].flat());
        };
        const choice = ui.choice("View", shown, go.path[0] || "table", (name) => { history.replaceState(null, "", `#time/${name}`); show(name); });
        app.move = (next) => next.name === "time" && (show(next.path[0] || "table"), choice.querySelectorAll("button").forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.value === (next.path[0] || "table")))), true);
        show(go.path[0] || "table");
        return [el("div", { class: "bar-of-tools" }, choice), content];
    }

    return { render };
})();
