// The graph: scopes that open and close, search, and a panel about what is selected.
const graph = (() => {
    const { el, svg } = ui, most = 420;
    const states = new WeakMap(); // by model: what is open survives a change of the section

    function stateOf(m) {
        if (!states.has(m)) {
            const open = new Set(Object.values(m.roots).filter((r) => r.phase === "forward" || Object.keys(m.roots).length === 1).map((r) => r.key));
            states.set(m, { open, phases: new Set(ui.phases), quiet: false, selected: undefined, note: "" });
        }
        return states.get(m);
    }

    function render(app, go) {
        const m = app.model, s = stateOf(m), root = svg("svg", { class: "canvas", tabindex: 0, role: "tree", "aria-label": "Graph of the model" });
        const world = svg("g"), panel = el("aside", { class: "panel", "aria-label": "Details", "aria-live": "polite" });
        const note = el("p", { class: "graph-note", role: "status" }), results = el("ul", { class: "results", role: "listbox", hidden: true });
        root.append(svg("defs", {}, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
            svg("path", { d: "M0,0.6 L7.4,4 L0,7.4 Z", class: "arrow" }))), world);
        let placed, timer;

        const zoom = d3.zoom().scaleExtent([0.05, 3]).on("zoom", () => {
            const now = d3.zoomTransform(root);
            world.setAttribute("transform", now.toString());
            root.classList.toggle("far", now.k < 0.45);
        });
        const view = d3.select(root).call(zoom).on("dblclick.zoom", null);
        const move = (t) => ui.stillness() ? view.call(zoom.transform, t) : view.transition().duration(220).call(zoom.transform, t);

        // Shows the whole graph, or one box of it; of what would be too small to read, the upper end.
        function fit(wanted) {
            const { width, height } = root.getBoundingClientRect(), room = 24;
            const box = wanted || { x: placed.width / 2, y: placed.height / 2, width: placed.width, height: placed.height };
            if (!width || !box.width) return;
            const tall = height / (box.height + room), k = Math.min(1, width / (box.width + room), tall < 0.55 ? 0.8 : tall);
            const top = box.y - box.height / 2, y = box.height * k + room <= height ? height / 2 - k * box.y : room / 2 - k * top;
            move(d3.zoomIdentity.translate(width / 2 - k * box.x, y).scale(Math.max(0.05, k)));
        }

        function edgePath(points) { return d3.line().x((p) => p.x).y((p) => p.y).curve(d3.curveBasis)(points); }

        function drawFrame(key) {
            const at = placed.box(key), close = () => { s.open.delete(key); draw(key); };
            const label = svg("g", { class: "frame-label", tabindex: 0, role: "treeitem", "aria-expanded": "true", "aria-label": `Close ${at.frame.path || at.frame.name}`, onclick: close,
                onkeydown: (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), close()) },
                svg("text", { x: at.x - at.width / 2 + 10, y: at.y - at.height / 2 + 16 }, `− ${at.frame.name}`));
            return svg("g", { class: `frame ${at.frame.phase}${s.selected === key ? " selected" : ""}` },
                svg("rect", { x: at.x - at.width / 2, y: at.y - at.height / 2, width: at.width, height: at.height, rx: 8 }), label);
        }

        function drawItem(key) {
            const { item, texts, x, y, width, height } = placed.box(key), kind = item.node ? item.node.kind : "scope";
            const act = () => {
                if (item.node) { location.hash = `#node/${item.node.id}`; return; }
                openItem(item);
            };
            return svg("g", { class: `item ${item.phase} ${kind}${s.selected === key ? " selected" : ""}`, "data-key": key, transform: `translate(${x - width / 2},${y - height / 2})`,
                tabindex: 0, role: "treeitem", "aria-expanded": item.node ? undefined : "false", "aria-label": `${texts[0]}, ${texts[1]}`,
                onclick: act, onkeydown: (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), act()),
                onpointerenter: (event) => ui.showTip(event, [item.node ? item.node.name : item.path || item.name, layout.detail(item, m), item.node ? "" : "click to open"]),
                onpointerleave: ui.hideTip },
                svg("rect", { width, height, rx: kind === "scope" ? 9 : 4 }), !item.node && svg("rect", { class: "back", x: 4, y: 4, width, height, rx: 9 }),
                svg("text", { class: "name", x: width / 2, y: 19 }, texts[0]), svg("text", { class: "detail", x: width / 2, y: 35 }, texts[1]));
        }

        const nameOf = (item) => item.node ? item.node.name : item.path || item.name;
        function drawEdge(segment, labelled) {
            const { edges, points, crosses } = segment, [first] = edges, d = edgePath(points);
            const near = edges.some((e) => s.selected === e.from.key || s.selected === e.to.key), middle = points[Math.floor(points.length / 2)];
            const label = !crosses && labelled(scopes.edgeText(edges), middle);
            return svg("g", { class: `link${near ? " near" : ""}${crosses ? " crosses" : ""}` },
                svg("path", { class: "edge", d, "marker-end": segment.to.startsWith("out ") ? undefined : "url(#arrow)" }),
                svg("path", { class: "edge-hit", d, onpointerleave: ui.hideTip, onpointermove: (event) => ui.showTip(event,
                    [edges.length === 1 ? `${nameOf(first.from)} → ${nameOf(first.to)}` : `${edges.length} edges, ${nameOf(first.from)} → ${nameOf(first.to)} and others`,
                        ...[...scopes.shapesOf(edges)].slice(0, 6).map(([shape, n]) => n > 1 ? `${n} × ${shape}` : shape)]) }),
                label && svg("text", { class: "edge-label", x: middle.x + 5, y: middle.y + 3 }, label));
        }

        // Decides which edges have a label: none that would lie on another label or on a box.
        function labels(boxes) {
            const place = ui.placer(boxes.map((b) => [b.x - b.width / 2, b.y - b.height / 2, b.x + b.width / 2, b.y + b.height / 2]));
            return (text, at) => text && place([at.x + 3, at.y - 8, at.x + 7 + 5.6 * text.length, at.y + 7]) ? text : "";
        }

        // Draws again; the item of `anchor` stays where it was on the screen.
        function draw(anchor) {
            const before = anchor && placed && placed.box(anchor), at = d3.zoomTransform(root);
            const shown = scopes.visible(m, s.open, s.phases, s.quiet);
            placed = layout.compute(m, shown);
            const labelled = labels(shown.items.map((i) => placed.box(i.key)));
            world.replaceChildren(svg("g", {}, shown.frames.sort((a, b) => scopes.chainOf(a).length - scopes.chainOf(b).length).map((f) => drawFrame(f.key))),
                svg("g", {}, placed.segments.map((e) => drawEdge(e, labelled))), svg("g", {}, shown.items.map((i) => drawItem(i.key))));
            note.textContent = s.note || `${format.integer(shown.items.length)} of ${format.integer(m.nodes.length)} nodes and scopes`;
            const after = anchor && placed.box(anchor);
            if (before && after) {
                const top = (b) => b.y - b.height / 2;
                view.call(zoom.transform, d3.zoomIdentity.translate(at.x + at.k * (before.x - after.x), at.y + at.k * (top(before) - top(after))).scale(at.k));
            }
            const focus = anchor && world.querySelector(`[data-key="${CSS.escape(anchor)}"]`);
            if (focus) focus.focus({ preventScroll: true });
        }

        // Opens a scope, and with it a scope that is all that it holds.
        function openItem(item) {
            const opened = [item];
            while (opened.at(-1).children.length === 1 && !opened.at(-1).children[0].node) opened.push(opened.at(-1).children[0]);
            for (const scope of opened) s.open.add(scope.key);
            const count = scopes.visible(m, s.open, s.phases, s.quiet).items.length;
            s.note = "";
            if (count > most) {
                for (const scope of opened) s.open.delete(scope.key);
                s.note = `${item.name} has too many nodes to draw (${count}): close other scopes, or search for a node.`;
            }
            s.selected = item.key;
            draw(item.key);
            showPanel(node.ofScope(m, item));
        }

        function showPanel(content) {
            panel.replaceChildren(el("button", { type: "button", class: "close quiet", "aria-label": "Close the details", onclick: closePanel }, "×"), ...content.flat().filter(Boolean));
            panel.hidden = false;
            panel.scrollTop = 0;
        }
        function closePanel() { panel.hidden = true; s.selected = undefined; draw(); root.focus({ preventScroll: true }); }

        // Opens the scopes around an item, closes others if too many nodes would be visible, and goes there.
        function goTo(wanted) {
            const item = scopes.single(wanted), chain = scopes.chainOf(item);
            s.phases.add(item.phase);
            if (item.node && !s.quiet && /^(parameter|state|constant)$/.test(item.node.kind)) { s.quiet = true; quietBox.querySelector("input").checked = true; }
            for (const at of chain.slice(0, -1)) s.open.add(at.key);
            if (scopes.visible(m, s.open, s.phases, s.quiet).items.length > most) {
                s.open.clear();
                for (const at of chain.slice(0, -1)) s.open.add(at.key);
            }
            s.selected = item.key;
            s.note = "";
            showPanel(item.node ? node.ofNode(m, item.node) : node.ofScope(m, item));
            draw();
            if (placed.box(item.key)) fit(placed.box(item.key));
        }

        function search(text) {
            const wanted = text.trim().toLowerCase();
            results.hidden = !wanted;
            if (!wanted) return;
            const found = [];
            for (const item of m.items.values()) {
                const name = item.node ? `${item.node.name} ${item.node.op}` : item.path;
                if (name && name.toLowerCase().includes(wanted)) found.push(item);
                if (found.length > 400) break;
            }
            found.sort((a, b) => !!a.node - !!b.node || (a.node ? a.node.name : a.path).length - (b.node ? b.node.name : b.path).length);
            results.replaceChildren(...found.slice(0, 14).map((item, i) => el("li", { role: "option", "aria-selected": String(!i), class: item.phase, onclick: () => pick(item) },
                el("span", { class: "mono" }, item.node ? item.node.name : item.path), el("small", {}, item.node ? layout.detail(item, m) : layout.detail(item, m)))));
            if (!found.length) results.replaceChildren(el("li", { class: "empty" }, "Nothing matches."));
            results.found = found;
        }
        function pick(item) {
            results.hidden = true;
            field.value = "";
            const hash = item.node ? `#node/${item.node.id}` : `#graph/${item.phase}:${item.path}`;
            if (location.hash === hash) goTo(item);
            else location.hash = hash;
        }
        const field = el("input", { type: "search", class: "filter", placeholder: "Search nodes, ops and scopes", "aria-label": "Search nodes, ops and scopes",
            oninput: () => { clearTimeout(timer); timer = setTimeout(() => search(field.value), 80); },
            onkeydown: (event) => {
                const all = [...results.children], at = all.findIndex((li) => li.getAttribute("aria-selected") === "true");
                if (event.key === "Enter") { search(field.value); if (results.found && results.found[Math.max(0, at)]) pick(results.found[Math.max(0, at)]); }
                if (event.key === "Escape") results.hidden = true;
                if ((event.key !== "ArrowDown" && event.key !== "ArrowUp") || !all.length) return;
                event.preventDefault();
                const next = Math.max(0, Math.min(all.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)));
                all.forEach((li, i) => li.setAttribute("aria-selected", String(i === next)));
            } });

        const phaseBoxes = ui.phases.filter((p) => m.roots[p]).map((p) => ui.toggle(ui.phaseName[p], s.phases.has(p), (on) => {
            if (on) s.phases.add(p); else s.phases.delete(p);
            draw();
            fit();
        }, ui.phaseColour(p)));
        const quietBox = ui.toggle("Parameters", s.quiet, (on) => { s.quiet = on; draw(); });
        const button = (text, label, act) => el("button", { type: "button", title: label, "aria-label": label, onclick: act }, text);
        const scale = (f) => ui.stillness() ? view.call(zoom.scaleBy, f) : view.transition().duration(150).call(zoom.scaleBy, f);
        const closeAll = () => { s.open = new Set(Object.values(m.roots).filter((r) => r.phase === "forward" || Object.keys(m.roots).length === 1).map((r) => r.key)); s.note = ""; draw(); fit(); };

        root.addEventListener("keydown", (event) => {
            const by = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
            if (by) { event.preventDefault(); const t = d3.zoomTransform(root); view.call(zoom.transform, d3.zoomIdentity.translate(t.x + by[0], t.y + by[1]).scale(t.k)); }
            if (event.key === "+" || event.key === "=") scale(1.3);
            if (event.key === "-") scale(1 / 1.3);
            if (event.key === "0") fit();
        });

        function moveTo(next) {
            if (next.name === "node") {
                const item = m.items.get(`node:${next.path[0]}`);
                if (item) goTo(item);
                return true;
            }
            if (next.name === "graph" && next.path.length) {
                const key = next.path.join("/"), item = m.items.get(key) || scopes.find(m, key);
                if (item) { if (!item.node) s.open.add(item.key); goTo(item); }
            }
            return next.name === "graph";
        }

        panel.hidden = true;
        app.move = moveTo;
        app.close = () => { if (!results.hidden) results.hidden = true; else if (!panel.hidden) closePanel(); };
        app.shown = () => {
            draw();
            const whole = d3.zoomIdentity;
            view.call(zoom.transform, whole);
            fit();
            moveTo(go);
        };
        return el("div", { class: "graph" },
            el("div", { class: "bar-of-tools graph-tools" }, el("div", { class: "search" }, field, results), phaseBoxes, quietBox,
                el("span", { class: "buttons" }, button("+", "Zoom in", () => scale(1.3)), button("−", "Zoom out", () => scale(1 / 1.3)), button("Fit", "Fit the graph", () => fit()),
                    button("Close all", "Close all scopes", closeAll)), note),
            el("div", { class: "graph-area" }, root, panel));
    }

    return { render };
})();
