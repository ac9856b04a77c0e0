// The visible part of the graph: a closed scope represents all nodes inside it.
const scopes = (() => {
    const chainOf = (item) => { const chain = []; for (let at = item; at; at = at.parent) chain.unshift(at); return chain; };
    const isQuiet = (node) => node.kind === "parameter" || node.kind === "state" || node.kind === "constant";

    // The outermost closed scope around a node, or the node itself. A scope of one node only is never drawn.
    function shownFor(item, open) {
        for (const at of chainOf(item)) if (!at.node && at.nodes > 1 && !open.has(at.key)) return at;
        return item;
    }
    // A scope of one node only is drawn as that node.
    const single = (item) => { let at = item; while (!at.node && at.nodes === 1 && at.children.length === 1) at = at.children[0]; return at; };
    // The open scope around an item. The forward pass as a whole has no frame: it is always open.
    function frameOf(item) {
        let up = item.parent;
        while (up && up.parent && up.nodes < 2) up = up.parent;
        return up && (up.parent || up.phase !== "forward") ? up : undefined;
    }

    /* What is drawn: the items, the open scopes around them, and the edges between them with their shapes. Quiet
     * nodes (parameters, states, constants) are drawn only if asked for. */
    function visible(m, open, phases, quiet) {
        const shown = new Map(), items = new Map(), frames = new Map(), edges = new Map();
        for (const node of m.nodes) {
            const leaf = m.items.get(`node:${node.id}`);
            if (!phases.has(leaf.phase)) continue;
            const item = shownFor(leaf, open);
            if ((item.node || item.repeated) && isQuiet(node) && !quiet) continue;
            shown.set(node.id, item);
            if (items.has(item.key)) continue;
            items.set(item.key, item);
            for (let up = frameOf(item); up; up = frameOf(up)) frames.set(up.key, up);
        }
        for (const node of m.nodes) {
            const to = shown.get(node.id);
            for (const input of to ? node.in || [] : []) {
                const from = shown.get(input.node), producer = m.byId.get(input.node);
                if (!from || from === to || !producer) continue;
                const key = `${from.key}>${to.key}`, output = producer.outputs[input.output] || producer.outputs[0];
                if (!edges.has(key)) edges.set(key, { from, to, shapes: new Map(), count: 0 });
                const edge = edges.get(key);
                edge.count++;
                if (output) edge.shapes.set(output.shape, (edge.shapes.get(output.shape) || 0) + 1);
            }
        }
        return { items: [...items.values()], frames: [...frames.values()], edges: [...edges.values()] };
    }

    // The scopes of a name, outermost first: of the phase in which it occurs.
    function find(m, path) {
        for (const phase of ui.phases) if (m.items.has(`${phase}:${path}`)) return m.items.get(`${phase}:${path}`);
        return undefined;
    }

    // The shapes of edges with how often each occurs.
    function shapesOf(edges) {
        const shapes = new Map();
        for (const edge of edges) for (const [shape, n] of edge.shapes) shapes.set(shape, (shapes.get(shape) || 0) + n);
        return shapes;
    }
    function edgeText(edges) {
        const shapes = shapesOf(edges), [first] = shapes.keys();
        return shapes.size === 1 ? first.replace(/^f32 /, "") : shapes.size ? `${d3.sum(edges, (e) => e.count)} values` : "";
    }

    return { visible, chainOf, single, frameOf, find, shapesOf, edgeText };
})();
