// The arena over a run: a rectangle for each buffer, the bytes alive, and what is alive at the cursor.
const memory = (() => {
    const { el } = ui, top = 60, foot = 22;

    function render(app, go) {
        const m = app.model, s = m.summary, intervals = Math.max(1, s.intervals || 1), all = m.subject.buffers;
        const buffers = all.map((b, i) => ({ ...b, index: i, end: Math.min(b.last, intervals - 1), writer: m.byId.get(b.node), lastReader: m.byId.get(b.reader) }));
        const arena = s.arena_bytes || d3.max(buffers, (b) => b.offset + b.bytes), live = new Float64Array(intervals + 1);
        for (const b of buffers) { live[Math.min(b.first, intervals)] += b.bytes; live[Math.min(b.end + 1, intervals)] -= b.bytes; }
        for (let i = 1; i <= intervals; i++) live[i] += live[i - 1];
        const peakAt = d3.maxIndex(live.subarray(0, intervals)), times = m.subject.interval_seconds || [];
        const scopeWeights = d3.rollups(buffers.filter((b) => b.writer), (v) => d3.sum(v, (b) => b.bytes * (b.end - b.first + 1)), (b) => data.scopeName(b.writer, 1)).sort((a, b) => b[1] - a[1]).map((d) => d[0]);
        const byScope = ui.colours(scopeWeights);
        let at = go.path[0] !== undefined && Number.isFinite(+go.path[0]) ? +go.path[0] : peakAt, colouring = "phase", axis = "interval", hover;
        at = Math.max(0, Math.min(intervals - 1, at));
        const starts = new Float64Array(intervals + 1);
        for (let i = 0; i < intervals; i++) starts[i + 1] = starts[i] + (axis === "time" ? times[i] || 0 : 1);
        const colourOf = (b) => b.scratch ? ui.otherColour : !b.writer ? ui.otherColour : colouring === "phase" ? ui.phaseColour(data.phaseOf(b.writer)) : byScope(data.scopeName(b.writer, 1));
        const list = el("div", { class: "block" }), legend = el("div", {}), heading = el("h2", {}), about = el("p", { class: "note" });

        const canvas = ui.canvas(440, draw, { role: "slider", "aria-label": "The arena over a run; arrow keys move the cursor", "aria-valuemin": 0, "aria-valuemax": intervals - 1, class: "memory-canvas" });
        function scales(width, height) {
            return { x: d3.scaleLinear([0, starts[intervals] || 1], [0, width]), y: d3.scaleLinear([0, arena], [height - foot, top + 8]), l: d3.scaleLinear([0, arena], [top - 4, 6]) };
        }
        function draw(c, width, height) {
            const { x, y, l } = scales(width, height), paint = new Map();
            for (const b of buffers) {
                const colour = colourOf(b);
                if (!paint.has(colour)) paint.set(colour, ui.resolved(colour));
                const left = x(starts[b.first]), w = Math.max(0.7, x(starts[b.end + 1]) - left), upper = y(b.offset + b.bytes), h = Math.max(0.5, y(b.offset) - upper);
                const alive = b.first <= at && at <= b.end;
                c.globalAlpha = b === hover ? 1 : alive ? 0.92 : 0.42;
                c.fillStyle = paint.get(colour);
                c.fillRect(left, upper, w > 2 ? w - 0.5 : w, h > 2 ? h - 0.5 : h);
            }
            c.globalAlpha = 1;
            c.strokeStyle = ui.variable("--ink-2");
            c.lineWidth = 1.2;
            c.beginPath();
            for (let i = 0; i < intervals; i++) { c.lineTo(x(starts[i]), l(live[i])); c.lineTo(x(starts[i + 1]), l(live[i])); }
            c.stroke();
            c.font = "11px system-ui, sans-serif";
            c.fillStyle = ui.variable("--ink-3");
            c.fillText("bytes alive", 2, 22);
            c.setLineDash([4, 4]);
            c.strokeStyle = ui.variable("--ink-3");
            c.beginPath();
            c.moveTo(0, l(live[peakAt])); c.lineTo(width, l(live[peakAt]));
            c.moveTo(0, y(arena)); c.lineTo(width, y(arena));
            if (s.lower_bound_bytes && s.lower_bound_bytes < arena * 0.995) { c.moveTo(0, y(s.lower_bound_bytes)); c.lineTo(width, y(s.lower_bound_bytes)); }
            c.stroke();
            c.setLineDash([]);
            c.textAlign = "right";
            c.fillText(`arena ${format.bytes(arena)}${s.lower_bound_bytes ? `, peak of live bytes ${format.bytes(s.lower_bound_bytes)}` : ""}`, width - 4, top + 2);
            c.textAlign = "left";
            c.fillText(axis === "time" ? "time of one run →" : `intervals 0 to ${intervals - 1} →`, 2, height - 6);
            c.strokeStyle = ui.variable("--ink");
            c.lineWidth = 1.5;
            c.beginPath();
            const mid = (x(starts[at]) + x(starts[at + 1])) / 2;
            c.moveTo(mid, 4); c.lineTo(mid, height - foot);
            c.stroke();
        }
        function intervalAt(event) {
            const box = canvas.getBoundingClientRect(), { x } = scales(box.width, box.height), v = x.invert(event.clientX - box.left);
            return Math.max(0, Math.min(intervals - 1, d3.bisectRight(starts, v) - 1));
        }
        function bufferAt(event) {
            const box = canvas.getBoundingClientRect(), { y } = scales(box.width, box.height), bytes = y.invert(event.clientY - box.top), g = intervalAt(event);
            return buffers.find((b) => b.first <= g && g <= b.end && b.offset <= bytes && bytes < b.offset + b.bytes);
        }
        const nameOf = (b) => b.scratch ? `scratch of ${b.writer ? b.writer.name : "a node"}` : b.writer ? b.writer.name : "input";
        function why(b) {
            if (b.scratch) return "scratch memory of this node";
            if (b.reason === "target") return "can be read after the run";
            if (b.reason === "kept") return "kept from run to run";
            return b.lastReader ? `last read by ${b.lastReader.name}` : "";
        }
        function listAlive() {
            const alive = buffers.filter((b) => b.first <= at && at <= b.end).sort((a, b) => b.bytes - a.bytes), most = alive.length ? alive[0].bytes : 1;
            const running = m.nodes.filter((n) => n.interval === at);
            heading.textContent = `Group ${at}: ${format.bytes(live[at])} alive`;
            about.textContent = `${alive.length} buffers are alive while ${running.slice(0, 3).map((n) => n.name).join(", ") || "nothing"}${running.length > 3 ? ` and ${running.length - 3} more` : ""} ${running.length === 1 ? "runs" : "run"}.` + (at === peakAt ? " This is the peak." : "");
            list.replaceChildren(table.make([
                { label: "Buffer of", value: nameOf, cell: (b) => el("span", { class: "mono" }, el("i", { class: "swatch", style: { background: colourOf(b), "margin-right": "8px" } }), nameOf(b)) },
                { label: "Bytes", numeric: true, value: (b) => b.bytes, text: format.bytes, bar: most },
                { label: "Shape", value: (b) => b.writer && !b.scratch ? (b.writer.outputs.find((o) => o.buffer === b.index) || b.writer.outputs[0] || {}).shape || "" : "" },
                { label: "Groups", value: (b) => b.first, text: (v, b) => `${b.first} – ${b.end}` },
                { label: "Why it is alive", value: why, cell: (b) => b.lastReader && b.reason !== "target" && b.reason !== "kept" && !b.scratch ? el("span", {}, "last read by ", ui.link(b.lastReader.name, `#node/${b.lastReader.id}`)) : why(b) },
            ], { rows: alive, sort: 1, label: "Buffers that are alive", limit: 14, open: (b) => { if (b.writer) location.hash = `#node/${b.writer.id}`; } }));
            canvas.setAttribute("aria-valuenow", at);
            canvas.setAttribute("aria-valuetext", heading.textContent);
        }
        function setCursor(g) { at = Math.max(0, Math.min(intervals - 1, g)); canvas.redraw(); listAlive(); }
        let dragging = false;
        canvas.addEventListener("pointerdown", (event) => { dragging = true; canvas.setPointerCapture(event.pointerId); setCursor(intervalAt(event)); });
        canvas.addEventListener("pointerup", () => { dragging = false; });
        canvas.addEventListener("pointermove", (event) => {
            if (dragging) { setCursor(intervalAt(event)); return; }
            const found = bufferAt(event);
            if (found !== hover) { hover = found; canvas.redraw(); }
            if (found) ui.showTip(event, [nameOf(found), `${format.bytes(found.bytes)} at ${format.bytes(found.offset)}`, `intervals ${found.first} to ${found.end}`, why(found)]);
            else ui.hideTip();
        });
        canvas.addEventListener("pointerleave", () => { hover = undefined; ui.hideTip(); canvas.redraw(); });
        canvas.addEventListener("keydown", (event) => {
            const step = event.shiftKey ? Math.max(1, Math.round(intervals / 20)) : 1, to = { ArrowLeft: at - step, ArrowRight: at + step, Home: 0, End: intervals - 1 }[event.key];
            if (to === undefined) return;
            event.preventDefault();
            setCursor(to);
        });
        const drawLegend = () => legend.replaceChildren(ui.legend(colouring === "phase" ? ui.phases.filter((p) => m.roots[p]).map((p) => [ui.phaseName[p], ui.phaseColour(p)])
            : scopeWeights.slice(0, 9).map((n) => [n, byScope(n)]).concat(scopeWeights.length > 9 ? [["others", ui.otherColour]] : [])));
        drawLegend();
        listAlive();
        app.move = (next) => next.name === "memory" && (next.path[0] !== undefined && setCursor(+next.path[0]), true);
        const timesToo = times.length >= intervals && ui.choice("Axis", [["interval", "By interval"], ["time", "By time"]], axis, (v) => {
            axis = v;
            for (let i = 0; i < intervals; i++) starts[i + 1] = starts[i] + (axis === "time" ? times[i] || 0 : 1);
            canvas.redraw();
        });
        return [ui.section("The arena over a run", `${format.integer(buffers.length)} buffers share ${format.bytes(arena)}; without sharing they would take ${format.bytes(s.sum_bytes)}. Click, drag or use the arrow keys to move the cursor.`,
            el("div", { class: "bar-of-tools" }, ui.choice("Colours", [["phase", "By phase"], ["scope", "By scope"]], colouring, (v) => { colouring = v; drawLegend(); canvas.redraw(); listAlive(); }), timesToo,
                el("button", { type: "button", onclick: () => setCursor(peakAt) }, "Go to the peak"), legend), canvas),
        el("section", { class: "block" }, heading, about, list)];
    }

    return { render };
})();
