// Charts of lines over steps: axes, a logarithmic scale if asked for, and the values under the pointer.
const charts = (() => {
    const { el, svg } = ui;

    /* series: [{ name, colour, points: [[x, y], ...], faint, dots }]; options: { title, height, log, x: label,
     * text(y) }. Values that a logarithmic axis cannot show are left out. */
    function lines(series, options) {
        const height = options.height || 220, margin = { left: 56, right: 12, top: 10, bottom: 26 };
        const root = svg("svg", { class: "chart", height, role: "img", "aria-label": options.title });
        const box = el("figure", { class: "figure" }, el("figcaption", {}, options.title), root);
        const good = (p) => format.known(p[0]) && format.known(p[1]) && (!options.log || p[1] > 0);
        const shown = series.map((s) => ({ ...s, points: s.points.filter(good) })).filter((s) => s.points.length);
        const text = options.text || format.value;

        function draw() {
            const width = root.clientWidth;
            if (!width || !shown.length) return;
            const points = shown.flatMap((s) => s.points);
            const [x0, x1] = d3.extent(points, (p) => p[0]), [y0, y1] = d3.extent(points, (p) => p[1]);
            const pad = y0 === y1 ? Math.abs(y0) * 0.1 || 1 : 0;
            const x = d3.scaleLinear([x0, x1 === x0 ? x0 + 1 : x1], [margin.left, width - margin.right]);
            const y = (options.log ? d3.scaleLog() : d3.scaleLinear()).domain([options.log ? y0 : y0 - pad, y1 + pad])
                .range([height - margin.bottom, margin.top]).nice();
            root.replaceChildren();
            const ticks = options.log ? y.ticks(4).filter((t, i, all) => all.length < 9 || /^1e?/.test(t.toExponential())) : y.ticks(5);
            for (const t of ticks)
                root.append(svg("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y(t), y2: y(t) }),
                    svg("text", { class: "tick", x: margin.left - 8, y: y(t) + 4, "text-anchor": "end" }, text(t)));
            for (const t of x.ticks(Math.max(2, Math.floor(width / 110))))
                root.append(svg("text", { class: "tick", x: x(t), y: height - 6, "text-anchor": "middle" }, format.value(t)));
            const path = d3.line().x((p) => x(p[0])).y((p) => y(p[1]));
            for (const s of shown) {
                root.append(svg("path", { class: s.faint ? "line faint" : "line", d: path(s.points), style: { stroke: s.colour } }));
                if (s.dots || s.points.length === 1)
                    s.points.forEach((p) => root.append(svg("circle", { cx: x(p[0]), cy: y(p[1]), r: 2.5, style: { fill: s.colour } })));
            }
            const mark = svg("line", { class: "cursor", y1: margin.top, y2: height - margin.bottom, visibility: "hidden" });
            root.append(mark);
            root.onpointermove = (event) => {
                const at = x.invert(event.clientX - root.getBoundingClientRect().left);
                const near = shown.map((s) => [s, s.points[d3.minIndex(s.points, (p) => Math.abs(p[0] - at))]]);
                const step = near[d3.minIndex(near, (n) => Math.abs(n[1][0] - at))][1][0];
                mark.setAttribute("x1", x(step));
                mark.setAttribute("x2", x(step));
                mark.setAttribute("visibility", "visible");
                ui.showTip(event, [`${options.x || "step"} ${format.value(step)}`, ...near.map(([s, p]) => `${s.name}: ${text(p[1])}${p[0] === step ? "" : ` (${format.value(p[0])})`}`)]);
            };
            root.onpointerleave = () => { mark.setAttribute("visibility", "hidden"); ui.hideTip(); };
        }

        new ResizeObserver(draw).observe(root);
        return box;
    }

    return { lines };
})();
