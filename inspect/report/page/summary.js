// The summary: figures as tiles, where memory and time go, the layers as a table.
const summary = (() => {
    const { el } = ui;

    const tile = (label, value, note) => value !== format.absent &&
        el("div", { class: "tile" }, el("dt", {}, label), el("dd", {}, value), note && el("small", {}, note));

    function tiles(m) {
        const s = m.summary;
        const rate = s.seconds && s.flops ? s.flops / s.seconds : undefined;
        const arenaNote = s.lower_bound_bytes ? `${format.bytes(s.lower_bound_bytes)} is the minimum` : "";
        return ui.grid("dl", { class: "tiles" }, 168,
            tile("Parameters", format.count(s.parameters), [s.trainable !== undefined && s.trainable !== s.parameters && `${format.count(s.trainable)} trainable`,
                s.parameter_bytes && format.bytes(s.parameter_bytes)].filter(Boolean).join(", ")),
            tile("Time of one run", format.seconds(s.seconds), s.threads && `${s.threads} threads, mean of ${s.runs} runs`),
            rate && s.peak_flops && tile("Of the matrix peak", format.percent(rate / s.peak_flops), `${format.flopRate(rate)} of ${format.flopRate(s.peak_flops)}`),
            s.seconds && s.roofline_seconds && tile("Of the roofline", format.percent(s.roofline_seconds / s.seconds), `at least ${format.seconds(s.roofline_seconds)} on this machine`),
            tile("Arena", format.bytes(s.arena_bytes), arenaNote),
            tile(m.subject.run ? "Work of a step" : "Work of one run", format.flops(s.flops), s.bytes && `${format.bytes(s.bytes)} read and written`),
            tile("Nodes", format.integer(s.nodes), s.intervals && `${format.integer(s.intervals)} intervals, ${format.integer(s.fused)} fused`));
    }

    function memory(m) {
        const s = m.summary;
        const parts = [
            { name: "Arena", value: s.arena_bytes, colour: "var(--forward)" },
            { name: "Parameters", value: s.parameter_bytes, colour: "var(--update)" },
            { name: "Other states", value: Math.max(0, (s.state_bytes || 0) - (s.parameter_bytes || 0)), colour: "var(--backward)" },
            { name: "Workspace", value: s.workspace_bytes, colour: "var(--hue-other)" },
        ].filter((p) => p.value).map((p) => ({ ...p, text: format.bytes(p.value) }));
        if (!parts.length) return null;
        const note = s.sum_bytes && s.arena_bytes && `The arena holds ${format.integer(s.buffers)} buffers of ${format.bytes(s.sum_bytes)} in ` +
            `${format.bytes(s.arena_bytes)}: ${format.percent(s.arena_bytes / s.sum_bytes)} of their sum` +
            (s.lower_bound_bytes ? `, ${(s.arena_bytes / s.lower_bound_bytes).toFixed(3)} times the lower bound.` : ".");
        return ui.section("Where the memory goes", note, ui.partsBar(parts, "Memory"));
    }

    function time(m) {
        const s = m.summary;
        if (!m.timed || !s.seconds) return null;
        const parts = ui.phases.filter((p) => m.roots[p] && m.roots[p].seconds)
            .map((p) => ({ name: ui.phaseName[p], value: m.roots[p].seconds / m.threads, colour: ui.phaseColour(p) }));
        parts.push({ name: "Waiting", value: (s.waiting_seconds || 0) / m.threads, colour: "var(--hue-other)" });
        if (s.start_seconds) parts.push({ name: "Start of threads", value: s.start_seconds / m.threads, colour: "var(--line)" });
        return ui.section("Where the time goes", null,
            ui.partsBar(parts.map((p) => ({ ...p, text: format.seconds(p.value) })), "Time"));
    }

    /* Rows of layers in order with their parents. The document lists every level of scopes; a row is shown while
     * all its parents are open. */
    function layerRows(layers) {
        const byScope = new Map(), rows = [];
        for (const layer of layers) {
            const parts = data.components(layer.scope);
            const row = { layer, name: parts[parts.length - 1] || "(no scope)", depth: parts.length, children: 0 };
            row.parent = parts.length > 1 ? byScope.get(parts.slice(0, -1).join(".")) : undefined;
            if (row.parent) row.parent.children++;
            byScope.set(layer.scope, row);
            rows.push(row);
        }
        // Children follow their parent, whatever the order of the document.
        const under = data.index(rows, (r) => r.parent || null), out = [];
        const put = (row) => { out.push(row); (under.get(row) || []).forEach(put); };
        (under.get(null) || []).forEach(put);
        return out;
    }

    function layers(m) {
        const list = m.subject.layers || [];
        if (!list.length) return null;
        const rows = layerRows(list), closed = new Set(), deepest = d3.max(rows, (r) => r.depth);
        const total = d3.sum(rows.filter((r) => !r.parent), (r) => r.layer.seconds || 0);
        const timed = total > 0, body = el("tbody");
        const closeAt = (depth) => {
            closed.clear();
            if (depth) rows.filter((r) => r.children && r.depth >= depth).forEach((r) => closed.add(r));
        };
        const hidden = (row) => { for (let up = row.parent; up; up = up.parent) if (closed.has(up)) return true; return false; };

        function rowElement(row) {
            const { layer } = row, open = !closed.has(row);
            const flip = () => { if (!row.children) return; if (open) closed.add(row); else closed.delete(row); draw(row); };
            const button = row.children ? el("button", { type: "button", class: "twist", "aria-expanded": String(open), tabindex: -1, onclick: flip,
                "aria-label": `${open ? "Close" : "Open"} ${layer.scope}` }) : el("i", { class: "twist" });
            const share = timed ? (layer.seconds || 0) / total : 0;
            const node = el("tr", { tabindex: -1, "data-scope": layer.scope, class: row.depth === 1 ? "first" : "" },
                el("th", { scope: "row", style: { "--depth": row.depth - 1 } }, button,
                    ui.link(row.name, `#graph/${layer.scope}`, { title: layer.scope, tabindex: -1 }), layer.ops && el("small", {}, layer.ops)),
                el("td", { class: "mono" }, layer.output || ""),
                el("td", { class: "number" }, layer.parameters ? format.count(layer.parameters) : ""),
                el("td", { class: "number" }, layer.flops ? format.flops(layer.flops) : ""),
                timed && el("td", { class: "number" }, layer.seconds ? format.seconds(layer.seconds / m.threads) : ""),
                timed && el("td", { class: "share" }, el("i", { class: "bar", style: { width: `${100 * share}%` } }), el("span", {}, format.percent(share))));
            node.addEventListener("keydown", (event) => {
                if (event.target !== node) return;
                if ((event.key === "ArrowLeft" && open) || (event.key === "ArrowRight" && !open)) flip();
                else if (event.key === "Enter") location.hash = `#graph/${layer.scope}`;
                else table.rove(event, body);
            });
            return node;
        }

        function draw(focus) {
            const shown = rows.filter((r) => !hidden(r));
            body.replaceChildren(...shown.map(rowElement));
            const at = Math.max(0, shown.indexOf(focus));
            body.children[at].tabIndex = 0;
            if (focus) body.children[at].focus();
        }

        const depths = d3.range(1, deepest).map((d) => [d, d]).concat([[0, "All"]]);
        const first = rows.length > 40 && deepest > 2 ? 2 : 0;
        closeAt(first);
        draw();
        return ui.section("Layers", timed ? "Forward pass. Sums include inner scopes; time is compute time, averaged over the threads." : "Sums include inner scopes.",
            el("div", { class: "bar-of-tools" }, el("span", { class: "label" }, "Depth"),
                ui.choice("Depth of layers", depths, first, (d) => { closeAt(d); draw(); })),
            ui.scroll(el("table", { class: "layers", "aria-label": "Layers" },
                el("thead", {}, el("tr", {}, ["Layer", "Output", "Parameters", "Work", timed && "Time", timed && "Share of forward"].filter(Boolean)
                    .map((t, i) => el("th", { scope: "col", class: i > 1 ? "number" : "" }, t)))), body)));
    }

    function facts(m, machine) {
        const s = m.summary;
        const pairs = [["Command", m.subject.command], ["Processor", machine.processor], ["Threads", m.summary.threads], ["Instructions", machine.isa],
            ["Matrix products by", machine.gemm_f32], ["Memory bandwidth", s.peak_bytes && format.byteRate(s.peak_bytes)], ["Packing of the arena", s.packing], ["weft", machine.version],
            ["Run", m.subject.run && m.subject.run.folder]];
        return ui.section("Measured with", null, ui.grid("dl", { class: "facts" }, 240, pairs.filter(([, v]) => v !== undefined && v !== "")
            .map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, v)))));
    }

    // The batch that the figures of a run's plan are of.
    function batch(m) {
        const b = m.subject.batch;
        if (!m.subject.run || !m.nodes.length) return null;
        if (!b) return el("p", { class: "note" }, "Work, arena and layers are those of a training step with the model's default batch.");
        const rows = `${format.integer(b.rows)} ${b.rows === 1 ? "row" : "rows"}`, of = b.target_len ? ` of ${format.integer(b.target_len)} tokens` : "";
        return el("p", { class: "note" }, `Work, arena and layers are those of a training step with the run's largest batch: ${rows}${of}.`);
    }

    function render(app) {
        const m = app.model;
        return [el("div", { class: "block tiles-block" }, tiles(m), batch(m)), el("div", { class: "halves" }, memory(m), time(m)), layers(m), facts(m, app.document.machine || {})];
    }

    return { render, tiles };
})();
