// Layout of the visible graph by dagre: boxes in layers, open scopes as frames around theirs.
const layout = (() => {
    const font = 7.1, heightOfItem = 46;

    // A node that has a name of its own shows it; the op is then a part of the second line.
    const isNamed = (item) => item.name.replace(/#\d+$/, "") !== item.node.op;
    const title = (item) => item.node ? item.name.replace(/#\d+$/, "") : item.name;
    function detail(item, m) {
        if (item.node) return `${isNamed(item) && item.node.kind === "op" ? `${item.node.op} ` : ""}${(item.node.outputs[0] || { shape: "" }).shape}`;
        const time = m.timed && item.seconds ? `, ${format.seconds(item.seconds / m.threads)}` : "";
        return `${format.integer(item.nodes)} ${item.nodes === 1 ? "node" : "nodes"}${time}`;
    }
    const cut = (text, n) => text.length > n ? `${text.slice(0, Math.ceil(n / 2) - 1)}…${text.slice(text.length - Math.floor(n / 2))}` : text;

    function compute(m, shown) {
        const g = new dagre.graphlib.Graph({ compound: true });
        g.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 34, edgesep: 8, marginx: 20, marginy: 20 });
        g.setDefaultEdgeLabel(() => ({}));
        for (const frame of shown.frames) g.setNode(frame.key, { frame });
        for (const item of shown.items) {
            const texts = [cut(title(item), 34), cut(detail(item, m), 34)];
            const width = Math.max(84, font * Math.max(texts[0].length * 1.04, texts[1].length * 0.9) + 28);
            g.setNode(item.key, { item, texts, width, height: heightOfItem });
        }
        for (const one of [...shown.frames, ...shown.items])
            if (scopes.frameOf(one)) g.setParent(one.key, scopes.frameOf(one).key);
        for (const edge of shown.edges) g.setEdge(edge.from.key, edge.to.key, { edge });
        dagre.layout(g);
        return g;
    }

    return { compute, title, detail };
})();
