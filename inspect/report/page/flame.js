// The flame graph over scopes: each width is a share of the thread time of a run.
const flame = (() => {
    const { el, svg } = ui, row = 24;

    function view(m) {
        const tree = { name: "run", children: ui.phases.filter((p) => m.roots[p]).map((p) => m.roots[p]) };
        const root = d3.hierarchy(tree, (d) => d.children).sum((d) => d.node ? data.busy(d.node) : 0);
        d3.partition()(root);
        const height = row * (Math.min(root.height, 24) + 1), picture = svg("svg", { class: "flame", height, role: "tree", "aria-label": "Flame graph" });
        let focus = root;

        function draw() {
            const width = picture.clientWidth;
            if (!width) return;
            const x = d3.scaleLinear([focus.x0, focus.x1], [0, width]);
            const shown = root.descendants().filter((d) => d.value && x(d.x1) > 0 && x(d.x0) < width && (x(d.x1) - x(d.x0) > 0.6 || d === focus));
            picture.replaceChildren(...shown.map((d) => {
                const left = Math.max(0, x(d.x0)), w = Math.min(width, x(d.x1)) - left, name = d.data.node ? d.data.name : d.data.name;
                const zoom = () => { if (d.data.node && d === focus) { location.hash = `#node/${d.data.node.id}`; return; } focus = d === focus && d.parent ? d.parent : d; draw(); };
                const g = svg("g", { class: `bar ${d.data.phase || "run"}${d.data.node ? " leaf" : ""}`, transform: `translate(${left},${d.depth * row})`, tabindex: w > 30 ? 0 : -1, role: "treeitem",
                    "aria-label": `${name}, ${format.percent(d.value / root.value)}`, onclick: zoom, onkeydown: (event) => event.key === "Enter" && zoom(),
                    onpointermove: (event) => ui.showTip(event, [d.data.node ? d.data.node.name : d.data.path || name, `${format.seconds(d.value / m.threads)}, ${format.percent(d.value / m.total)} of a run`,
                        d.data.node ? (d.data.node.outputs[0] || {}).shape : ""]), onpointerleave: ui.hideTip },
                    svg("rect", { width: Math.max(0.5, w - 1), height: row - 2, rx: 2, style: { "--level": Math.min(d.depth, 7) } }));
                const room = Math.floor((w - 7) / 6.6);
                if (room >= Math.min(3, name.length)) g.append(svg("text", { x: 5, y: 15 }, name.slice(0, room)));
                return g;
            }));
        }
        new ResizeObserver(draw).observe(picture);
        return ui.section("", "Each width is a share of the time of all threads, waiting included. Click a bar to enlarge it, and again to return.",
            ui.legend(ui.phases.filter((p) => m.roots[p]).map((p) => [ui.phaseName[p], ui.phaseColour(p)])), el("div", {}, picture));
    }

    return { view };
})();
