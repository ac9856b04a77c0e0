// The panel of one node, or of one scope.
const node = (() => {
    const { el, link } = ui;
    const facts = (pairs) => el("dl", { class: "facts one" }, pairs.filter(([, v]) => v !== undefined && v !== "" && v !== false && v !== null)
        .map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, v))));
    const to = (n) => link(n.name, `#node/${n.id}`, { title: `${n.op} ${(n.outputs[0] || {}).shape || ""}` });

    function list(title, nodes) {
        if (!nodes.length) return null;
        const most = 12;
        return el("div", { class: "related" }, el("h3", {}, `${title}${nodes.length > 1 ? ` (${nodes.length})` : ""}`),
            el("ul", {}, nodes.slice(0, most).map((n) => el("li", {}, to(n)))),
            nodes.length > most && el("small", {}, `and ${nodes.length - most} more`));
    }

    function crumbs(item) {
        const chain = scopes.chainOf(item);
        return el("nav", { class: "crumbs", "aria-label": "Scopes" }, chain.map((at, i) => i === chain.length - 1
            ? el("span", { "aria-current": "location" }, at.name) : link(at.name, at.path ? `#graph/${at.phase}:${at.path}` : "#graph")));
    }

    function ofNode(m, n) {
        const item = m.items.get(`node:${n.id}`), op = (m.subject.ops || {})[n.op] || {};
        const buffers = (m.subject.buffers || []), out = n.outputs[0] || {};
        const members = n.head !== undefined && m.members.has(n.head) ? m.members.get(n.head) : m.members.get(n.id) || [];
        const head = n.head !== undefined ? m.byId.get(n.head) : members.length ? n : undefined;
        const own = m.bySource.get(n.gradient_of) || [], gradients = m.gradients.get(n.source) || [];
        const again = (m.nodes || []).filter((o) => o !== n && o.source === n.source && n.source !== undefined && o.phase !== n.phase);
        const buffer = buffers[out.buffer];
        return [crumbs(item), el("h2", { class: "mono" }, n.name), el("p", { class: `kind ${item.phase}` }, `${n.op}, ${item.phase}`),
            op.doc && el("p", { class: "doc" }, op.doc), op.formula && el("p", { class: "doc mono" }, op.formula),
            facts([...n.outputs.map((o, i) => [n.outputs.length > 1 ? `Output ${i}` : "Output", el("span", {}, el("span", { class: "mono" }, o.shape), ` ${format.bytes(o.bytes)}`)]),
                ...Object.entries(n.attrs || {}).map(([k, v]) => [k, v]),
                ["Time", n.seconds !== undefined && `${format.seconds(n.seconds / m.threads)}, ${format.percent(n.seconds / m.total)} of a run`],
                ["Waiting after it", n.waiting ? format.seconds(n.waiting / m.threads) : undefined],
                ["Work", n.flops ? format.flops(n.flops) : undefined],
                ["Rate", n.seconds && n.flops ? `${format.flopRate(m.threads * n.flops / n.seconds)}, ${format.byteRate(m.threads * n.bytes / n.seconds)}` : undefined],
                ["Of the roofline", n.roofline && n.seconds ? format.percent(n.roofline / n.seconds) : undefined],
                ["Buffer", buffer && link(`${format.bytes(buffer.bytes)} at ${format.bytes(buffer.offset)}, intervals ${buffer.first} to ${buffer.last}`, `#memory/${buffer.first}`)],
                ["Interval", n.interval !== undefined ? `${n.interval}, step ${n.step}` : undefined],
                ["First run only", n.fixed && "yes"]]),
            head && list("Fused with", [head].concat(members.filter((o) => o !== head)).filter((o) => o !== n)),
            list("Reads", (n.in || []).map((i) => m.byId.get(i.node)).filter(Boolean)),
            list("Is read by", m.readers.get(n.id) || []),
            list("Its gradient", gradients), list("Is a gradient of", own), list("Computed again, or declared as", again)];
    }

    function ofScope(m, item) {
        return [crumbs(item), el("h2", { class: "mono" }, item.path || item.name), el("p", { class: `kind ${item.phase}` }, `${format.integer(item.nodes)} nodes, ${item.phase}`),
            facts([["Parameters", item.parameters ? format.count(item.parameters) : undefined],
                ["Time", item.seconds ? `${format.seconds(item.seconds / m.threads)}, ${format.percent(item.seconds / m.total)} of a run` : undefined],
                ["Waiting", item.waiting ? format.seconds(item.waiting / m.threads) : undefined],
                ["Work", item.flops ? format.flops(item.flops) : undefined],
                ["Read and written", item.bytes ? format.bytes(item.bytes) : undefined]]),
            el("div", { class: "related" }, el("h3", {}, "Inside"), el("ul", {}, item.children.slice(0, 40).map((c) => el("li", {},
                c.node ? to(c.node) : link(c.name, `#graph/${c.phase}:${c.path}`)))))];
    }

    return { ofNode, ofScope };
})();
