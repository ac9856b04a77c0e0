/* Layout of the visible graph. Each open scope is laid out on its own by dagre (layers, Sugiyama et al. 1981) and is
 * then one box of the scope around it, so the cost is that of many small graphs. An edge that enters an open scope
 * ends at a port on its upper side, from which others lead inside; one that leaves it begins at a port below. */
const layout = (() => {
    const font = 7.1, heightOfItem = 46, label = 22, gridFrom = 24;

    // A node that has a name of its own shows it; the op is then a part of the second line.
    const isNamed = (item) => item.name.replace(/#\d+$/, "") !== item.node.op;
    const title = (item) => item.node ? item.name.replace(/#\d+$/, "") : item.name;
    function detail(item, m) {
        if (item.node) return `${isNamed(item) && item.node.kind === "op" ? `${item.node.op} ` : ""}${(item.node.outputs[0] || { shape: "" }).shape}`;
        const time = m.timed && item.seconds ? `, ${format.seconds(item.seconds / m.threads)}` : "";
        return `${format.integer(item.nodes)} ${item.nodes === 1 ? "node" : "nodes"}${time}`;
    }
    const cut = (text, n) => text.length > n ? `${text.slice(0, Math.ceil(n / 2) - 1)}…${text.slice(text.length - Math.floor(n / 2))}` : text;
    const inPort = (key) => `in ${key}`, outPort = (key) => `out ${key}`;

    function boxOf(item, m) {
        const texts = [cut(title(item), 34), cut(detail(item, m), 34)];
        return { item, texts, width: Math.max(84, font * Math.max(texts[0].length * 1.04, texts[1].length * 0.9) + 28), height: heightOfItem };
    }

    /* For the whole ("") and each open scope: its children, and the segments between them and its ports. An edge is a
     * segment at the level where its ends part, and one at each level between that and its ends; an edge from one phase
     * to another stops at the borders, or the backward pass would be a curtain of lines. */
    function levelsOf(shown) {
        const levels = new Map([["", { children: [], segments: new Map() }]]), chains = new Map();
        const chain = (one) => {
            if (!chains.has(one.key)) {
                const frame = scopes.frameOf(one);
                chains.set(one.key, [...(frame ? chain(frame) : [""]), one.key]);
            }
            return chains.get(one.key);
        };
        for (const frame of shown.frames) levels.set(frame.key, { children: [], segments: new Map() });
        for (const one of [...shown.frames, ...shown.items]) levels.get(chain(one)[chain(one).length - 2]).children.push(one.key);
        const add = (level, from, to, edge) => {
            const { segments } = levels.get(level), key = `${from}>${to}`;
            if (!segments.has(key)) segments.set(key, { from, to, edges: [], crosses: true });
            const segment = segments.get(key);
            segment.edges.push(edge);
            segment.crosses = segment.crosses && edge.from.phase !== edge.to.phase;
        };
        for (const edge of shown.edges) {
            const a = chain(edge.from), b = chain(edge.to);
            let at = 0;
            while (a[at + 1] === b[at + 1]) at++;
            add(a[at], a[at + 1], b[at + 1], edge);
            if (edge.from.phase !== edge.to.phase) continue;
            for (let i = at + 1; i < a.length - 1; i++) add(a[i], a[i + 1], outPort(a[i]), edge);
            for (let i = at + 1; i < b.length - 1; i++) add(b[i], inPort(b[i]), b[i + 1], edge);
        }
        return levels;
    }

    // Many children without edges between them stand in rows: in one layer they would be a line of many screens.
    function asGrid(level, boxes) {
        const size = level.children.map((key) => boxes.get(key)), columns = Math.ceil(Math.sqrt(size.length / 3));
        const width = d3.max(size, (b) => b.width) + 14, height = d3.max(size, (b) => b.height) + 14;
        size.forEach((box, i) => { box.x = 14 + (i % columns + 0.5) * width; box.y = 14 + (Math.floor(i / columns) + 0.5) * height; });
        level.segments.clear();
        return { width: columns * width + 28, height: Math.ceil(size.length / columns) * height + 28 };
    }

    // Places the children of a level relative to it, inner levels first; returns its size.
    function arrange(key, levels, boxes, ports) {
        const level = levels.get(key);
        for (const child of level.children) {
            if (!levels.has(child)) continue;
            const box = boxes.get(child), inside = arrange(child, levels, boxes, ports);
            box.width = Math.max(inside.width, 40 + font * box.frame.name.length);
            box.height = inside.height + label;
        }
        const own = new Set(level.children), between = [...level.segments.values()].some((s) => own.has(s.from) && own.has(s.to));
        if (level.children.length >= gridFrom && !between) return asGrid(level, boxes);
        const g = new dagre.graphlib.Graph();
        g.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 34, edgesep: 8, marginx: 16, marginy: 14 });
        for (const child of level.children) g.setNode(child, { width: boxes.get(child).width, height: boxes.get(child).height });
        for (const segment of level.segments.values()) {
            for (const end of [segment.from, segment.to]) if (!own.has(end)) g.setNode(end, { width: 1, height: 1 });
            g.setEdge(segment.from, segment.to, { weight: segment.crosses ? 0 : 1 });
        }
        dagre.layout(g);
        for (const child of level.children) Object.assign(boxes.get(child), { x: g.node(child).x, y: g.node(child).y });
        for (const port of g.nodes().filter((n) => !own.has(n))) ports.set(port, { x: g.node(port).x });
        for (const segment of level.segments.values()) segment.points = g.edge(segment.from, segment.to).points;
        return { width: g.graph().width, height: g.graph().height };
    }

    // From places relative to a level to those in the whole.
    function shift(key, x, y, levels, boxes, ports) {
        const level = levels.get(key), frame = boxes.get(key);
        if (ports.has(inPort(key))) ports.set(inPort(key), { x: x + ports.get(inPort(key)).x, y: frame.y - frame.height / 2 });
        if (ports.has(outPort(key))) ports.set(outPort(key), { x: x + ports.get(outPort(key)).x, y: frame.y + frame.height / 2 });
        for (const segment of level.segments.values()) segment.points = segment.points.map((p) => ({ x: x + p.x, y: y + p.y }));
        for (const child of level.children) {
            const box = boxes.get(child);
            box.x += x;
            box.y += y;
            if (levels.has(child)) shift(child, box.x - box.width / 2, box.y - box.height / 2 + label, levels, boxes, ports);
        }
    }

    // The ends of a segment at open scopes are the ports of these.
    function attach(segment, ports) {
        const begin = ports.get(segment.from) || ports.get(outPort(segment.from)), end = ports.get(segment.to) || ports.get(inPort(segment.to));
        const points = segment.points.slice();
        if (begin) points[0] = begin;
        if (end) points[points.length - 1] = end;
        return { ...segment, points };
    }

    // { box(key): { x, y (its middle), width, height, item and texts, or frame }, segments, width, height }.
    function compute(m, shown) {
        const levels = levelsOf(shown), boxes = new Map(), ports = new Map();
        for (const frame of shown.frames) boxes.set(frame.key, { frame });
        for (const item of shown.items) boxes.set(item.key, boxOf(item, m));
        const size = arrange("", levels, boxes, ports);
        shift("", 0, 0, levels, boxes, ports);
        const segments = [...levels.values()].flatMap((level) => [...level.segments.values()].map((s) => attach(s, ports)));
        return { box: (key) => boxes.get(key), segments, width: size.width, height: size.height };
    }

    return { compute, title, detail };
})();
