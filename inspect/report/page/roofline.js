// The roofline (Williams et al. 2009): arithmetic intensity against rate, with the measured peaks as roofs.
const roofline = (() => {
    const { el, svg } = ui, height = 420, margin = { left: 70, right: 20, top: 16, bottom: 42 };

    function view(m) {
        const s = m.summary, threads = m.threads, picture = svg("svg", { class: "chart roofline", height, role: "img", "aria-label": "Roofline of the ops" });
        let by = "op";
        const ops = data.opsByTime(m), colour = ui.colours(ops);
        function dots() {
            const rows = by === "op" ? data.rowsBy(m, (n) => n.op) : data.rowsBy(m, (n) => n.id).map((r) => ({ ...r, name: r.list[0].name, node: r.list[0] }));
            return rows.filter((r) => r.seconds > 0 && r.flops > 0 && r.bytes > 0)
                .map((r) => ({ ...r, intensity: r.flops / r.bytes, rate: threads * r.flops / r.seconds, op: r.node ? r.node.op : r.name })).sort((a, b) => b.seconds - a.seconds);
        }
        function draw() {
            const width = picture.clientWidth, list = dots();
            if (!width || !list.length) return;
            const peak = s.peak_flops, bandwidth = s.peak_bytes, ridge = peak && bandwidth ? peak / bandwidth : 1;
            const x = d3.scaleLog([Math.min(d3.min(list, (d) => d.intensity), ridge / 8) / 2, Math.max(d3.max(list, (d) => d.intensity), ridge * 8) * 2], [margin.left, width - margin.right]);
            const y = d3.scaleLog([d3.min(list, (d) => d.rate) / 3, Math.max(peak || 0, d3.max(list, (d) => d.rate)) * 1.8], [height - margin.bottom, margin.top]);
            const tens = (scale) => scale.ticks().filter((t) => Math.abs(Math.log10(t) - Math.round(Math.log10(t))) < 1e-9);
            picture.replaceChildren();
            for (const t of tens(y)) picture.append(svg("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y(t), y2: y(t) }),
                svg("text", { class: "tick", x: margin.left - 8, y: y(t) + 4, "text-anchor": "end" }, format.flopRate(t)));
            for (const t of tens(x)) picture.append(svg("text", { class: "tick", x: x(t), y: height - margin.bottom + 18, "text-anchor": "middle" }, format.value(t)));
            picture.append(svg("text", { class: "tick", x: (width + margin.left) / 2, y: height - 6, "text-anchor": "middle" }, "arithmetic intensity: FLOP for each byte"));
            if (peak && bandwidth) {
                const [x0, x1] = x.domain(), low = Math.max(x0, y.domain()[0] / bandwidth);
                picture.append(svg("path", { class: "roof", d: `M${x(low)},${y(low * bandwidth)}L${x(ridge)},${y(peak)}L${x(x1)},${y(peak)}` }),
                    svg("text", { class: "tick strong", "text-anchor": "end", x: x(ridge) - 8, y: y(peak) + 4 }, (x(ridge) - margin.left > 190 ? "matrix products " : "") + format.flopRate(peak)),
                    svg("text", { class: "tick strong", x: x(low) + 10, y: y(low * bandwidth) + 20 }, `memory ${format.byteRate(bandwidth)}`));
            }
            const size = d3.scaleSqrt([0, d3.max(list, (d) => d.seconds)], [2.5, by === "op" ? 20 : 10]);
            for (const d of list)
                picture.append(svg("circle", { class: "dot", cx: x(d.intensity), cy: y(d.rate), r: size(d.seconds), tabindex: by === "op" ? 0 : -1, "aria-label": `${d.name}, ${format.flopRate(d.rate)}`, style: { fill: colour(d.op) },
                    onpointermove: (event) => ui.showTip(event, [d.name, `${format.flopRate(d.rate)}, ${format.byteRate(threads * d.bytes / d.seconds)}`, `${format.value(d.intensity)} FLOP for each byte`, `${format.seconds(d.seconds / threads)} of a run`]),
                    onpointerleave: ui.hideTip, onclick: () => { if (d.node) location.hash = `#node/${d.node.id}`; } }));
            if (by !== "op") return;
            // The name of a dot stands right of, left of, above or below it, where there is room.
            const taken = [...picture.querySelectorAll(".strong")].map((t) => t.getBBox()).map((b) => [b.x, b.y, b.x + b.width, b.y + b.height]);
            const place = ui.placer(taken.concat(list.map((d) => [x(d.intensity) - size(d.seconds), y(d.rate) - size(d.seconds), x(d.intensity) + size(d.seconds), y(d.rate) + size(d.seconds)])));
            for (const d of list) {
                const r = size(d.seconds) + 4, w = 6.8 * d.name.length, cx = x(d.intensity), cy = y(d.rate);
                const spot = [[cx + r, cy], [cx - r - w, cy], [cx - w / 2, cy - r - 6], [cx - w / 2, cy + r + 6]]
                    .find(([left, middle]) => left > margin.left && left + w < width && place([left, middle - 6, left + w, middle + 6]));
                if (spot) picture.append(svg("text", { class: "dot-label", x: spot[0], y: spot[1] + 4 }, d.name));
            }
        }
        new ResizeObserver(draw).observe(picture);
        return ui.section("", "Under the slope an op is limited by memory, under the flat roof by arithmetic. The area of a dot is its time. What stays in the caches can exceed the slope.",
            el("div", { class: "bar-of-tools" }, ui.choice("Dots", [["op", "Ops"], ["node", "Nodes"]], by, (v) => { by = v; draw(); })), el("div", {}, picture));
    }

    return { view };
})();
