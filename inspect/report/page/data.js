// The document, indexed: nodes by id, who reads them, the tree of scopes of each phase with its sums.
const data = (() => {
    const sums = ["seconds", "waiting", "flops", "bytes"];
    const phaseOf = (node) => ui.phases.includes(node.phase) ? node.phase : "forward";
    // Backward nodes lie in "grad.SCOPE"; the phase says that already.
    const scopeOf = (node) => (node.scope || "").replace(/^grad(\.|$)/, "");

    // The components of a scope are separated by single dots; other dots belong to a component.
    const components = (scope) => scope.split(/(?<=[^.])\.(?=\.*[^.])/);

    function group(key, name, path, phase, parent) {
        return { key, name, path, phase, parent, children: [], nodes: 0, seconds: 0, waiting: 0, flops: 0, bytes: 0, parameters: 0 };
    }

    // A tree of scopes for each phase; leaves are nodes. Keys are "phase:scope" and "node:id".
    function trees(nodes, items) {
        const roots = {};
        const scope = (phase, path) => {
            const key = `${phase}:${path}`;
            if (items.has(key)) return items.get(key);
            const own = components(path).pop();
            const parent = path ? scope(phase, path.slice(0, Math.max(0, path.length - own.length - 1))) : null;
            const item = group(key, path ? own : ui.phaseName[phase], path, phase, parent);
            if (parent) parent.children.push(item);
            else roots[phase] = item;
            items.set(key, item);
            return item;
        };
        for (const node of nodes) {
            const parent = scope(phaseOf(node), scopeOf(node));
            const leaf = { key: `node:${node.id}`, name: shortName(node), path: scopeOf(node), phase: parent.phase, parent, node, children: [] };
            items.set(leaf.key, leaf);
            parent.children.push(leaf);
            for (let up = parent; up; up = up.parent) {
                up.nodes++;
                for (const sum of sums) up[sum] += node[sum] || 0;
                if (node.kind === "parameter") up.parameters += elements(node.outputs[0]);
            }
        }
        return roots;
    }

    // "f32 [32, 256]" has 8192 elements; a scalar has one.
    function elements(output) {
        const dims = /\[(.*)\]/.exec(output ? output.shape : "");
        return dims ? dims[1].split(",").filter((d) => d.trim()).reduce((n, d) => n * Number(d), 1) : 1;
    }

    function shortName(node) {
        const scope = node.scope || "", name = node.name || node.op;
        const inner = scope && name.startsWith(scope) ? name.slice(scope.length).replace(/^[./]/, "") : name;
        return inner || node.op;
    }

    // Many adjacent nodes of one op become one group, so that a scope stays readable.
    function groupRepeated(item, items) {
        for (const child of [...item.children]) if (!child.node) groupRepeated(child, items);
        const byOp = index(item.children.filter((c) => c.node), (c) => c.node.op);
        for (const [op, leaves] of byOp) {
            if (leaves.length < 12) continue;
            const made = group(`${item.key}*${op}`, `${op} × ${leaves.length}`, item.path, item.phase, item);
            made.repeated = op;
            for (const leaf of leaves) {
                leaf.parent = made;
                for (const sum of sums) made[sum] += leaf.node[sum] || 0;
            }
            made.nodes = leaves.length;
            made.children = leaves;
            item.children = item.children.filter((c) => !leaves.includes(c));
            item.children.push(made);
            items.set(made.key, made);
        }
    }

    // The values of a list by key; those without a key are left out.
    function index(list, key) {
        const map = new Map();
        for (const value of list) {
            const k = key(value);
            if (k === undefined) continue;
            if (!map.has(k)) map.set(k, []);
            map.get(k).push(value);
        }
        return map;
    }

    // A subject with its indices.
    function model(subject) {
        const nodes = subject.nodes || [], summary = subject.summary || {}, items = new Map();
        const roots = trees(nodes, items);
        for (const root of Object.values(roots)) groupRepeated(root, items);
        const readers = new Map();
        for (const node of nodes)
            for (const input of node.in || []) {
                if (!readers.has(input.node)) readers.set(input.node, []);
                readers.get(input.node).push(node);
            }
        const threads = summary.threads || (subject.timeline && subject.timeline.threads) || 1;
        return { subject, nodes, summary, items, roots, readers, threads, byId: new Map(nodes.map((n) => [n.id, n])),
            bySource: index(nodes.filter((n) => n.gradient_of === undefined), (n) => n.source),
            gradients: index(nodes, (n) => n.gradient_of), members: index(nodes, (n) => n.head),
            byName: new Map(nodes.map((n) => [n.name, n])),
            // Thread seconds of a run that are accounted for: the whole of every share.
            total: summary.seconds ? summary.seconds * threads : d3.sum(nodes, busy),
            timed: nodes.some((n) => n.seconds !== undefined) };
    }

    const busy = (x) => (x.seconds || 0) + (x.waiting || 0);

    // Rows of sums over the nodes that run, by a key; the key is the row's name.
    function rowsBy(m, key) {
        const rows = new Map();
        for (const node of m.nodes) {
            if (node.seconds === undefined && !node.flops && !node.bytes) continue;
            const name = key(node);
            if (!rows.has(name)) rows.set(name, { name, nodes: 0, seconds: 0, waiting: 0, flops: 0, bytes: 0, limit: 0, phases: new Set(), list: [] });
            const row = rows.get(name);
            row.nodes++;
            row.list.push(node);
            row.phases.add(phaseOf(node));
            for (const sum of sums) row[sum] += node[sum] || 0;
            row.limit += node.roofline || 0;
        }
        for (const row of rows.values()) row.roofline = row.seconds && row.limit ? row.limit / row.seconds : undefined;
        return [...rows.values()];
    }

    const opsByTime = (m) => rowsBy(m, (n) => n.op).sort((a, b) => busy(b) - busy(a) || b.flops - a.flops).map((r) => r.name);

    // The first `depth` components of a node's scope; 0: all.
    function scopeName(node, depth) {
        const parts = components(scopeOf(node));
        return (depth ? parts.slice(0, depth) : parts).join(".") || "(no scope)";
    }

    function load() {
        const document_ = JSON.parse(document.getElementById("weft-data").textContent);
        return { document: document_, models: document_.subjects.map(model) };
    }

    return { load, model, index, phaseOf, scopeOf, scopeName, components, rowsBy, opsByTime, busy, elements };
})();
