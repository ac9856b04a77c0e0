// The timeline of one run: a track for each thread, a box for each interval of computing; gaps are waiting.
const timeline = (() => {
    const { el } = ui, track = 54, top = 26;

    function view(m) {
        const line = m.subject.timeline, events = line.events, whole = d3.max(events, (e) => e[2] + e[3]) || 1, ops = data.opsByTime(m), colour = ui.colours(ops);
        let from = 0, to = whole, marked;
        const threads = d3.max(events, (e) => e[0]) + 1, byThread = d3.range(threads).map((t) => events.filter((e) => e[0] === t).sort((a, b) => a[2] - b[2]));
        const canvas = ui.canvas(top + threads * (track + 10), draw, { role: "img", "aria-label": "Timeline of one run by thread", class: "drag" });
        const busyShare = d3.sum(events, (e) => e[3]) / (whole * threads);

        function draw(c, width, height) {
            const x = d3.scaleLinear([from, to], [0, width]), paint = new Map();
            c.font = "11px system-ui, sans-serif";
            c.textBaseline = "middle";
            c.fillStyle = ui.variable("--ink-3");
            for (const t of x.ticks(Math.max(2, width / 130))) {
                c.fillRect(x(t), top - 6, 1, 4);
                c.fillText(format.seconds(t * 1e-6), x(t) + 4, 9);
            }
            for (let t = 0; t < threads; t++) {
                const y = top + t * (track + 10);
                c.fillStyle = ui.variable("--sunk");
                c.fillRect(0, y, width, track);
                let last = -1;
                for (let i = d3.bisector((e) => e[2] + e[3]).left(byThread[t], from); i < byThread[t].length && byThread[t][i][2] <= to; i++) {
                    const e = byThread[t][i], left = x(e[2]), w = Math.max(0.6, x(e[2] + e[3]) - left), n = m.byId.get(e[1]);
                    if (left + w < last + 0.4) continue;
                    last = left + w;
                    const key = n ? n.op : "";
                    if (!paint.has(key)) paint.set(key, ui.resolved(colour(key)));
                    c.fillStyle = paint.get(key);
                    c.fillRect(left, y, w > 3 ? w - 0.6 : w, track);
                    if (marked === e) { c.strokeStyle = ui.variable("--ink"); c.lineWidth = 2; c.strokeRect(left + 1, y + 1, Math.max(1, w - 2), track - 2); }
                    if (w > 60) {
                        c.fillStyle = "#fff";
                        c.fillText((n ? n.name : "").slice(-Math.floor(w / 6.4)), left + 5, y + track / 2);
                    }
                }
            }
            canvas.dataset.shown = `${from.toFixed(1)} ${to.toFixed(1)}`;
        }
        function at(event) {
            const box = canvas.getBoundingClientRect(), t = Math.floor((event.clientY - box.top - top) / (track + 10)), when = from + (to - from) * (event.clientX - box.left) / box.width;
            return { when, event: (byThread[t] || []).find((e) => e[2] <= when && when <= e[2] + e[3]) };
        }
        function zoom(factor, center) {
            const span = Math.min(whole, Math.max(2, (to - from) * factor)), share = (center - from) / (to - from);
            from = Math.max(0, Math.min(whole - span, center - share * span));
            to = from + span;
            canvas.redraw();
        }
        const pan = (by) => { const span = to - from; from = Math.max(0, Math.min(whole - span, from + by)); to = from + span; canvas.redraw(); };
        let drag;
        canvas.addEventListener("wheel", (event) => {
            event.preventDefault();
            if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan((to - from) * event.deltaX / canvas.clientWidth);
            else zoom(Math.exp(event.deltaY * 0.002), at(event).when);
        }, { passive: false });
        canvas.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, from, moved: false }; canvas.setPointerCapture(event.pointerId); });
        canvas.addEventListener("pointermove", (event) => {
            if (drag && event.buttons) {
                drag.moved = drag.moved || Math.abs(event.clientX - drag.x) > 3;
                const span = to - from;
                from = Math.max(0, Math.min(whole - span, drag.from - span * (event.clientX - drag.x) / canvas.clientWidth));
                to = from + span;
                canvas.redraw();
                return;
            }
            const hit = at(event).event, n = hit && m.byId.get(hit[1]);
            if (hit !== marked) { marked = hit; canvas.redraw(); }
            if (n) ui.showTip(event, [n.name, `${n.op}, ${format.seconds(hit[3] * 1e-6)} at ${format.seconds(hit[2] * 1e-6)}`, (n.outputs[0] || {}).shape]);
            else ui.showTip(event, ["waiting", format.seconds(at(event).when * 1e-6)]);
        });
        canvas.addEventListener("pointerleave", () => { ui.hideTip(); marked = undefined; canvas.redraw(); });
        canvas.addEventListener("pointerup", (event) => {
            const hit = drag && !drag.moved && at(event).event;
            drag = undefined;
            if (hit) location.hash = `#node/${hit[1]}`;
        });
        canvas.addEventListener("keydown", (event) => {
            const middle = (from + to) / 2, span = to - from;
            if (event.key === "+" || event.key === "=") zoom(0.6, middle);
            else if (event.key === "-") zoom(1 / 0.6, middle);
            else if (event.key === "0") { from = 0; to = whole; canvas.redraw(); }
            else if (event.key === "ArrowLeft") pan(-span / 8);
            else if (event.key === "ArrowRight") pan(span / 8);
            else return;
            event.preventDefault();
        });
        return ui.section("", `One run of ${format.seconds(line.seconds || whole * 1e-6)}, a track for each of ${threads} threads. Colours are ops, gaps are waiting: the threads compute for ${format.percent(busyShare)} of the time. Zoom with the wheel or + and −, drag to move, click to see a node.`,
            ui.legend(ops.slice(0, 9).map((op) => [op, colour(op)]).concat(ops.length > 9 ? [["other ops", ui.otherColour]] : [])), canvas);
    }

    return { view };
})();
